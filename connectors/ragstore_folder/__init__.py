"""A local folder as a source of blobs, and as a feed of what happens to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragstore_folder.source import FolderSource

if TYPE_CHECKING:
    from ragstore_folder.watch import WatchFeed as WatchFeed

__all__ = ["FolderSource", "WatchFeed"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as a module's attributes are
    """The feed, which needs `watchfiles`, on first use."""
    if name == "WatchFeed":
        from ragstore_folder.watch import WatchFeed

        return WatchFeed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
