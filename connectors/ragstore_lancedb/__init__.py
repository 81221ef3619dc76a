"""A store in LanceDB: a folder or an Azure container, many readers beside a writer, full text and exact filters."""

from __future__ import annotations

from ragstore_lancedb.allocation import use_system_memory_in_arrow

use_system_memory_in_arrow()

from ragstore_lancedb.store import LanceDBStore  # noqa: E402 - imports pyarrow, which must find its allocator chosen

__all__ = ["LanceDBStore"]
