"""Azure Blob Storage as a source of blobs, the feeds that say what happened to them, and the directory that knows who asks."""

from __future__ import annotations

from ragstore_azure.blobs import AzureBlobSource
from ragstore_azure.changefeed import ChangeFeed
from ragstore_azure.event_queue import EventQueue
from ragstore_azure.graph import GraphDirectory

__all__ = ["AzureBlobSource", "ChangeFeed", "EventQueue", "GraphDirectory"]
