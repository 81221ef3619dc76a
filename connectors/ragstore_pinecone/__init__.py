"""A store in Pinecone: a namespace of a serverless index, whose filters take in too much rather than too little."""

from __future__ import annotations

from ragstore_pinecone.store import PineconeStore

__all__ = ["PineconeStore"]
