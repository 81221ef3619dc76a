"""Where a reader stands in a change feed in; the text that says so, which is checked when it comes back, out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ragstore_azure.changefeed.layout import begin_of, chunk_number

_VERSION: Final = 1


class CursorError(Exception):
    """This text says of no place in this feed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a reader stands in the log of one shard of a segment: all chunks before this one are read."""

    chunk: str
    """Its name in the folder of the shard: `00000.avro`."""
    offset: int
    """Bytes: the begin of the next block that is not read to its end; 0 before anything of the chunk is read."""
    index: int = 0
    """Records of that block that are read."""
    passed: int = 0
    """Blocks that end at or before this byte were there when the reader took its place, and are none of its business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a reader stands in a feed."""

    host: str
    container: str
    start: datetime | None = None
    """Events before this time are left out; None: none are."""
    done: str | None = None
    """This segment and all before it are final and read; None: there is no such segment."""
    open: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    """Segments after that one which were looked into: by segment, by folder of the shard. They begin with one that was not final, or not
    read to its end; the others stay with it, because more may come before them."""

    def to_json(self) -> str:
        """Equal cursors have equal text."""
        shards = {
            segment: {shard: _positions(position) for shard, position in sorted(positions.items())}
            for segment, positions in sorted(self.open.items())
        }
        document = {
            "version": _VERSION,
            "host": self.host,
            "container": self.container,
            "start": self.start.isoformat() if self.start is not None else None,
            "done": self.done,
            "open": shards,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, host: str, container: str) -> Cursor:
        """The inverse of `to_json`, for this feed only. Raises `CursorError` for anything else."""
        try:
            document = json.loads(text)
            version = document["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise CursorError(f"{text[:80]!r} is not a cursor of a change feed") from error
        if version != _VERSION:
            raise CursorError(f"the cursor is of version {version!r}, and this program knows version {_VERSION}")
        found = (document.get("host"), document.get("container"))
        if found != (host, container):
            raise CursorError(f"the cursor is of {found[0]}/{found[1]}, and this feed is {host}/{container}")
        try:
            return cls(
                host=host,
                container=container,
                start=datetime.fromisoformat(document["start"]) if document["start"] is not None else None,
                done=_segment(document["done"]) if document["done"] is not None else None,
                open={
                    _segment(segment): {shard: _position(stored) for shard, stored in positions.items()}
                    for segment, positions in document["open"].items()
                },
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CursorError(f"the cursor is damaged ({error!r})") from error


def _positions(position: Position) -> list[str | int]:
    return [position.chunk, position.offset, position.index, *([position.passed] if position.passed else [])]


def _position(stored: Any) -> Position:  # noqa: ANN401 - JSON
    chunk, *numbers = stored
    chunk_number(chunk)
    if len(numbers) not in {2, 3} or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"{stored!r} is not a position")
    return Position(chunk=chunk, offset=numbers[0], index=numbers[1], passed=numbers[2] if len(numbers) > 2 else 0)  # noqa: PLR2004


def _segment(name: str) -> str:
    begin_of(name)
    return name
