"""Blobs and commits for the ledger's tests."""

from datetime import UTC, datetime

from ragstore.ledger import ChunkRecord, Commit
from ragstore.models import AccessAttributes, BlobId, BlobState


def blob(path: str, *, etag: str = "e1", tags: dict[str, str] | None = None) -> BlobState:
    """A blob of three bytes in the container `docs`."""
    name = BlobId(account="local", container="docs", path=path)
    access = AccessAttributes(account="local", container="docs", path=path, tags=tags or {})
    return BlobState(id=name, etag=etag, size=3, modified=datetime(2026, 1, 1, tzinfo=UTC), access=access)


def commit_of(state: BlobState, *, generation: int = 0, chunks: tuple[str, ...] | None = ("a",), pending: bool = False) -> Commit:
    """A generation with a chunk per name, whose id is `PATH-NAME`."""
    records = (
        None
        if chunks is None
        else tuple(
            ChunkRecord(chunk_id=f"{state.id.path}-{name}", start=i, end=i + 1, page=None, heading=None, text_hash=name)
            for i, name in enumerate(chunks)
        )
    )
    return Commit(
        state=state, sha256="00" * 32, media_type="text/plain", title=None, pipeline="p1", columns_hash="c1",
        expected_generation=generation, chunks=records, pending=pending,
    )  # fmt: skip
