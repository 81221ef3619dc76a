"""An index and its feeds in, an index that follows its sources for months out."""

from __future__ import annotations

from ragstore.worker.worker import Worker

__all__ = ["Worker"]
