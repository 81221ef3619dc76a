"""LangChain: an index and a principal in, a retriever out (extra `langchain`)."""

from ragstore_langchain.retriever import RagstoreRetriever

__all__ = ["RagstoreRetriever"]
