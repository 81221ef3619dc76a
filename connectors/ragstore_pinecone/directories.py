"""A path or a prefix in, the directories out under which rows are found, because Pinecone has no operator for prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ragstore_pinecone.strings import storable

_DEEPEST: Final = 16
_LONGEST: Final = 256
"""Bytes. What is deeper or longer is not kept: 254 levels of a long path would take more than a record may hold."""


def directories(path: str) -> list[str]:
    """Every directory above the path that is kept, each with its `/` at the end: `a/b/c.md` has `a/` and `a/b/`.

    Whether one is kept depends on itself alone, never on the path below it, so that a search for it misses no row.
    """
    return list(_kept(path))


def nearest_directory(prefix: str) -> str | None:
    """The longest kept directory with which every path starts that starts with the prefix; the prefix itself where it is one."""
    found = None
    for found in _kept(prefix):  # noqa: B007 - the last one is wanted
        pass
    return found


def _kept(path: str) -> Iterator[str]:
    end = path.find("/")
    for _ in range(_DEEPEST):
        if end < 0 or len(storable(path[: end + 1]).encode()) > _LONGEST:
            return
        yield path[: end + 1]
        end = path.find("/", end + 1)
