"""Blocks of a document in, chunks out: token-sized, structure-aware, with exact spans that stay put when text nearby is edited."""

from __future__ import annotations

from ragstore.chunking.chunker import CHUNKER_VERSION, Chunker, DocumentChunker

__all__ = ["CHUNKER_VERSION", "Chunker", "DocumentChunker"]
