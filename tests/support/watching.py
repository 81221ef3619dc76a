"""A folder that is watched, and what its feed says of it, for tests."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ragstore.errors import FeedGapError
from ragstore_folder import FolderSource, WatchFeed

DEADLINE = 15.0
"""Seconds to wait for what must come; what comes ends the wait."""


Start = Callable[..., Any]


def feed_of(root: Path, *, debounce_seconds: float = 0.1, poll: bool = False, **options: Any) -> WatchFeed:
    options = {"path": root.name, **options}
    source = FolderSource(base=root.parent, **options)
    return WatchFeed(base=root.parent, source=source, source_options=options, debounce_seconds=debounce_seconds, poll=poll)


def write(file: Path, content: str = "x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    return file


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def move(old: Path, new: Path) -> None:
    old.rename(new)


def make_folder(folder: Path) -> None:
    folder.mkdir()


def write_odd(folder: Path) -> None:
    """A file whose name is not Unicode."""
    Path(os.fsdecode(os.fsencode(folder) + b"/b\xff.md")).touch()


Said = set[tuple[str, str]]


async def said_once(feed: WatchFeed) -> Said:
    """What one read says; settled at once."""
    found: Said = set()
    async for batch in feed.read(None):
        found |= {(event.hint, event.blob.path) for event in batch.events}
        await feed.settle(batch)
    return found


async def said(feed: WatchFeed, *wanted: tuple[str, str]) -> Said:
    """All that is said until each of these has been."""
    found: Said = set()
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        async with aclosing(feed.read(None)) as read:
            async for batch in read:
                found |= {(event.hint, event.blob.path) for event in batch.events}
                await feed.settle(batch)
                if found.issuperset(wanted):
                    return found
    raise AssertionError(f"waited for {wanted}, and heard {found}")


async def gap(feed: WatchFeed, match: str) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            await said_once(feed)
        except FeedGapError as error:
            assert re.search(match, str(error))  # noqa: PT017 - it comes with one of several reads
            return
    raise AssertionError("no gap was told")


def atomic(file: Path, text: str) -> None:
    write(file.with_name("tmp8f3a.tmp"), text).replace(file)
