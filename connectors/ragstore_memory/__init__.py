"""A store in this process's memory: exact, without a file, the reference for every other store."""

from __future__ import annotations

from ragstore_memory.store import MemoryStore

__all__ = ["MemoryStore"]
