"""The values that go into and come out of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

    @property
    def serves(self) -> bool:
        """Whether a committed generation of this blob can be found."""
        return self.state in {"live", "stale"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """One chunk of a committed generation; the order in a list is the order in the document."""

    chunk_id: str
    start: int
    end: int
    page: int | None
    heading: str | None
    text_hash: str


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
    expected_generation: int
    """Compare-and-set: where the ledger holds another generation, nothing is written."""
    chunks: tuple[ChunkRecord, ...] | None
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
