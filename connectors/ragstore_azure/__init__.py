"""Azure Blob Storage as a source of blobs, the feeds that say what happened to them, and the directory that knows who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragstore_azure.blobs import AzureBlobSource
    from ragstore_azure.changefeed import ChangeFeed
    from ragstore_azure.event_queue import EventQueue
    from ragstore_azure.graph import GraphDirectory

__all__ = ["AzureBlobSource", "ChangeFeed", "EventQueue", "GraphDirectory"]

_HOMES = {"AzureBlobSource": "blobs", "ChangeFeed": "changefeed", "EventQueue": "event_queue", "GraphDirectory": "graph"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import what is asked for: `ragstore_azure.search` must work where the SDK of storage is not installed."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"ragstore_azure.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ragstore_azure' has no attribute {name!r}")
