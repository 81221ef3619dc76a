"""Any sentence-transformers model as an embedder; needs torch."""

from ragstore_sentence_transformers.embedder import SentenceTransformersEmbedder

__all__ = ["SentenceTransformersEmbedder"]
