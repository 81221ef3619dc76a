"""all-MiniLM-L6-v2 on onnxruntime: the default embedder, without torch and without a network."""

from ragstore_onnx.embedder import MiniLMEmbedder

__all__ = ["MiniLMEmbedder"]
