"""Azure Blob Storage as a source of blobs."""

from __future__ import annotations

from ragstore_azure.blobs import AzureBlobSource

__all__ = ["AzureBlobSource"]
