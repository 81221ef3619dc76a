"""Blobs of the ledger and a store in; their committed rows out, as many at a time as memory holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence

from ragstore.contracts import Store
from ragstore.ledger import KnownBlob
from ragstore.models import Row


def groups_of(known: Iterable[KnownBlob], *, chunks: int) -> Iterator[list[KnownBlob]]:
    """The blobs in their order, in groups of at least so many chunks; only the last group has fewer."""
    group: list[KnownBlob] = []
    held = 0
    for blob in known:
        group.append(blob)
        held += blob.chunks
        if held >= chunks:
            yield group
            group, held = [], 0
    if group:
        yield group


async def rows_of(store: Store, blobs: Sequence[KnownBlob], wanted: Collection[str], *, at_once: int) -> AsyncIterator[list[Row]]:
    """The rows of these blobs whose chunk ids are wanted, so many at a time: one blob alone may have more than memory holds."""
    if not wanted:
        return
    rows: list[Row] = []
    async for row in store.rows([blob.document_id for blob in blobs]):
        if row.chunk_id in wanted:
            rows.append(row)
        if len(rows) >= at_once:
            yield rows
            rows = []
    if rows:
        yield rows
