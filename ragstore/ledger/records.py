"""The values that go into and come out of the ledger."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

from typing_extensions import override

from ragstore.models import BlobId, BlobState

State = Literal["new", "live", "stale", "quarantined", "deferred", "deleted"]
"""`new`: seen, nothing committed yet. `live`: committed and up to date. `stale`: committed, but the blob has changed since and could not
be indexed. `quarantined`: cannot be indexed. `deferred`: archived, waits for rehydration. `deleted`: a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBlob:
    """What the ledger knows of a blob, without its chunks."""

    id: BlobId
    document_id: str
    state: State
    generation: int
    pending: bool
    """The store may hold rows or access columns of this document that are not the committed ones."""
    etag: str
    size: int
    content_type: str | None
    sha256: str | None
    media_type: str
    title: str | None
    pipeline: str
    access: str
    """JSON of the attributes of the committed generation."""
    current_access: str
    """JSON of the attributes as last seen."""
    columns_hash: str
    chunks: int
    sequencer: str | None = None
    """Of the last event that was applied, where the feed gives one."""

    @property
    def serves(self) -> bool:
        """Whether a committed generation of this blob can be found."""
        return self.state in {"live", "stale"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a feed stands."""

    feed: str
    cursor: str | None
    """None for a feed that remembers by itself."""
    updated_at: float
    """When it was saved, in seconds since the epoch."""
    last_event: float | None
    """The moment of the newest event that was applied, in seconds since the epoch."""
    lag: float | None
    """Seconds from an event to its being searchable, as last measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """One chunk of a committed generation; the order in a list is the order in the document."""

    chunk_id: str
    start: int
    end: int
    page: int | None
    heading: str | None
    text_hash: str


class PackedChunks(Sequence[ChunkRecord]):
    """Chunk records that take about 70 bytes each instead of 350: a text of 256 MB has some 400 thousand.

    Chunk ids and text hashes must be 32 hex digits; `append` raises `ValueError` for others.
    """

    __slots__ = ("_digests", "_headings", "_numbers", "_places")

    def __init__(self) -> None:
        self._digests = bytearray()  # chunk id and text hash, 16 bytes each
        self._places = array("q")  # start, end, page and heading; -1 stands for None
        self._headings: list[str] = []
        self._numbers: dict[str, int] = {}

    def append(self, record: ChunkRecord) -> None:
        """List one more."""
        digests = bytes.fromhex(record.chunk_id + record.text_hash)
        if len(digests) != _DIGESTS:
            raise ValueError(f"not 32 hex digits: {record.chunk_id!r} or {record.text_hash!r}")
        heading = -1 if record.heading is None else self._numbers.setdefault(record.heading, len(self._headings))
        if heading == len(self._headings) and record.heading is not None:
            self._headings.append(record.heading)
        self._digests += digests
        self._places.extend((record.start, record.end, -1 if record.page is None else record.page, heading))

    def chunk_ids(self) -> Iterator[str]:
        """The ids alone."""
        for at in range(0, len(self._digests), _DIGESTS):
            yield self._digests[at : at + _DIGESTS // 2].hex()

    @override
    def __len__(self) -> int:
        return len(self._digests) // _DIGESTS

    @overload
    def __getitem__(self, index: int) -> ChunkRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChunkRecord]: ...
    @override
    def __getitem__(self, index: int | slice) -> ChunkRecord | Sequence[ChunkRecord]:
        position = range(len(self))[index]
        return self._record(position) if isinstance(position, int) else [self._record(each) for each in position]

    @override
    def __iter__(self) -> Iterator[ChunkRecord]:
        return map(self._record, range(len(self)))

    def _record(self, position: int) -> ChunkRecord:
        at = position * _DIGESTS
        digests = self._digests[at : at + _DIGESTS].hex()
        start, end, page, heading = self._places[position * 4 : position * 4 + 4]
        return ChunkRecord(
            chunk_id=digests[:_DIGESTS],
            start=start,
            end=end,
            page=None if page < 0 else page,
            heading=None if heading < 0 else self._headings[heading],
            text_hash=digests[_DIGESTS:],
        )


_DIGESTS = 32
"""Bytes of a chunk id and a text hash together; hex digits of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A new generation of one document, or (where `chunks` is None) new attributes of the one that is committed."""

    state: BlobState
    """As read after the content."""
    sha256: str | None
    media_type: str
    title: str | None
    pipeline: str
    columns_hash: str
    seen_at: float = field(default_factory=time.time)
    """When one began to look at the blob, in seconds since the epoch: attributes that were seen later stay the current ones."""
    expected_generation: int
    """Compare-and-set: where the ledger holds another generation, nothing is written."""
    chunks: Sequence[ChunkRecord] | None
    pending: bool
    """Whether the store still has to be brought in line after this commit."""

    @property
    def document_id(self) -> str:
        """Derived from the blob's id."""
        return self.state.id.document_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A blob in the quarantine, or one whose last attempt failed for a passing reason (`kind` is `transient`)."""

    document_id: str
    blob: str
    kind: str
    reason: str
    attempts: int
    since: float
    """Seconds since the epoch."""
    etag: str
    sha256: str | None
    pipeline: str
    dismissed: bool
