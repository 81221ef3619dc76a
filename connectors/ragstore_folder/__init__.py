"""A local folder as a source of blobs."""

from __future__ import annotations

from ragstore_folder.source import FolderSource

__all__ = ["FolderSource"]
