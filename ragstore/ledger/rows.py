"""Values in, rows of the ledger's tables out, and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from ragstore.ledger.records import ChunkRecord, Commit, KnownBlob
from ragstore.ledger.schema import blobs, chunks
from ragstore.models import AccessAttributes, BlobId, BlobState, CommittedChunk

KNOWN: list[Any] = [
    blobs.c[name]
    for name in (
        "document_id", "account", "container", "path", "state", "generation", "pending", "etag", "size", "content_type", "sha256",
        "media_type", "title", "pipeline", "access", "current_access", "columns_hash", "chunks", "sequencer",
    )
]  # fmt: skip
"""The columns of a `KnownBlob`."""
COMMITTED: list[Any] = [
    *(chunks.c[name] for name in ("chunk_id", "start", "end", "page", "heading")),
    *(
        blobs.c[name]
        for name in (
            "document_id", "account", "container", "path", "state", "title", "media_type", "version", "etag", "access", "current_access",
            "seen_at", "pending", "modified",
        )
    ),
]  # fmt: skip
"""The columns of a `CommittedChunk`."""


def committed_values(commit: Commit, now: float) -> dict[str, Any]:
    """The parameters of the statement that commits. Where only attributes change, generation and number of chunks stay."""
    state = commit.state
    return {
        "id": commit.document_id,
        "to_pending": int(commit.pending),
        "to_etag": state.etag,
        "to_version": state.version,
        "to_size": state.size,
        "to_modified": state.modified.astimezone(UTC).isoformat(),
        "to_content_type": state.content_type,
        "to_sha256": commit.sha256,
        "to_media_type": commit.media_type,
        "to_title": commit.title,
        "to_pipeline": commit.pipeline,
        "to_access": state.access.to_json(),
        "to_seen_at": commit.seen_at,
        "to_columns_hash": commit.columns_hash,
        "to_generation": commit.expected_generation + (commit.chunks is not None),
        "to_chunks": None if commit.chunks is None else len(commit.chunks),
        "now": now,
    }


def chunk_row(document_id: str, ordinal: int, record: ChunkRecord) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    return (record.chunk_id, document_id, ordinal, record.start, record.end, record.page, record.heading, record.text_hash)


def identity(blob: BlobId) -> dict[str, Any]:
    """The columns that say which blob it is."""
    return {"document_id": blob.document_id, "account": blob.account, "container": blob.container, "path": blob.path}


def blank(state: BlobState) -> dict[str, Any]:
    """A row for a blob of which nothing is committed yet."""
    access = state.access.to_json()
    return {
        "state": "new",
        "generation": 0,
        "etag": state.etag,
        "version": state.version,
        "size": state.size,
        "modified": state.modified.astimezone(UTC).isoformat(),
        "content_type": state.content_type,
        "media_type": "",
        "pipeline": "",
        "access": access,
        "current_access": access,
        "columns_hash": "",
        "chunks": 0,
        "indexed_at": time.time(),
    }


def known_blob(row: Row[*tuple[Any, ...]]) -> KnownBlob:
    """From a row of the columns `KNOWN`."""
    return KnownBlob(
        id=BlobId(account=row[1], container=row[2], path=row[3]),
        document_id=row[0],
        state=row[4],
        generation=row[5],
        pending=bool(row[6]),
        etag=row[7],
        size=row[8],
        content_type=row[9],
        sha256=row[10],
        media_type=row[11],
        title=row[12],
        pipeline=row[13],
        access=row[14],
        current_access=row[15],
        columns_hash=row[16],
        chunks=row[17],
        sequencer=row[18],
    )


def committed_chunk(row: Sequence[Any], read: Callable[[str], AccessAttributes]) -> CommittedChunk:
    """From a row of the columns `COMMITTED`; `read` makes attributes of their JSON."""
    chunk_id, start, end, page, heading, document_id, account, container, path, *rest = row  # all at once: one by one takes twice as long
    state, title, media_type, version, etag, access, current_access, seen_at, pending, modified = rest
    return CommittedChunk(
        chunk_id=chunk_id,
        document_id=document_id,
        blob=BlobId(account=account, container=container, path=path),
        start=start,
        end=end,
        page=page,
        heading=heading,
        title=title,
        media_type=media_type,
        version=version,
        etag=etag,
        stale=state == "stale",
        generation_access=read(access),
        current_access=read(current_access),
        seen_at=seen_at,
        pending=bool(pending),
        modified=datetime.fromisoformat(modified),
    )
