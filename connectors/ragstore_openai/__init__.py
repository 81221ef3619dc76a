"""Embeddings from any service that speaks OpenAI's `/v1/embeddings`."""

from ragstore_openai.embedder import OpenAIEmbedder

__all__ = ["OpenAIEmbedder"]
