"""all-MiniLM-L6-v2 on OpenVINO: the fast path on CPUs that multiply bfloat16."""

from ragstore_openvino.embedder import OpenVINOEmbedder

__all__ = ["OpenVINOEmbedder"]
