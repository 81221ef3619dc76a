"""A store in LanceDB: a folder or an Azure container, many readers beside a writer, full text and exact filters."""

from __future__ import annotations

from ragstore_lancedb.store import LanceDBStore

__all__ = ["LanceDBStore"]
