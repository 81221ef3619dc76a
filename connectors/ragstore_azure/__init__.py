"""Azure Blob Storage as a source of blobs, and the feeds that say what happened to them."""

from __future__ import annotations

from ragstore_azure.blobs import AzureBlobSource
from ragstore_azure.changefeed import ChangeFeed
from ragstore_azure.event_queue import EventQueue

__all__ = ["AzureBlobSource", "ChangeFeed", "EventQueue"]
