"""The change feed of a storage account: append-only Avro logs in, events of one source out."""

from __future__ import annotations

from ragstore_azure.changefeed.feed import ChangeFeed

__all__ = ["ChangeFeed"]
