"""Reranking by any service that speaks the `/rerank` of Cohere, Jina, Voyage or Hugging Face's text-embeddings-inference."""

from ragstore_rerank_api.reranker import RerankAPI

__all__ = ["RerankAPI"]
