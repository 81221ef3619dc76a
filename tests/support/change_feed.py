"""A change feed that tests read: what they ask of its reader, and what they see of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragstore.models import Event
from ragstore_azure import ChangeFeed
from tests.support.feed_writer import record

Open = Callable[..., ChangeFeed]
SOURCE_OPTIONS: dict[str, Any] = {"url": "docs", "connection_string_env": "AZURITE_CONNECTION"}


async def read(feed: ChangeFeed, cursor: str | None = None) -> tuple[list[Event], str | None]:
    """All events that there are now, and the cursor behind them."""
    events: list[Event] = []
    async for batch in feed.read(cursor):
        events += batch.events
        cursor = batch.cursor
    return events, cursor


def paths(events: list[Event]) -> list[str]:
    """Of what the events tell."""
    return [event.blob.path for event in events]


def records(letter: str, count: int, first: int = 0) -> list[dict[str, Any]]:
    """Blobs that are written one after the other: `a0`, `a1`, and so on."""
    return [record(f"{letter}{number}", number=number) for number in range(first, first + count)]
