"""LlamaIndex: an index and a principal in, a retriever out (extra `llama-index`)."""

from ragstore_llama_index.retriever import RagstoreRetriever

__all__ = ["RagstoreRetriever"]
