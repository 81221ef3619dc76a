"""Any sentence-transformers model as an embedder, and any cross-encoder as a reranker; needs torch."""

from ragstore_sentence_transformers.embedder import SentenceTransformersEmbedder
from ragstore_sentence_transformers.reranker import CrossEncoderReranker

__all__ = ["CrossEncoderReranker", "SentenceTransformersEmbedder"]
