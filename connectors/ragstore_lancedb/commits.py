"""A batch of writes in, at most one commit of each kind out: set access columns, merge rows, delete rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ragstore.contracts import DropRows
from ragstore_lancedb.allocation import give_back_free_pages
from ragstore_lancedb.filters import one_of
from ragstore_lancedb.schema import schema, to_arrow, with_access

if TYPE_CHECKING:
    from lancedb.table import AsyncTable

    from ragstore.models import AccessColumns
    from ragstore_lancedb.batches import Batch
    from ragstore_lancedb.collection import Collection

_DOCUMENTS_PER_READ: Final = 500
_IDS_PER_DELETE: Final = 10_000
_ROWS_PER_RETAG: Final = 20_000
"""Rows are rewritten whole, so this bounds the memory that a retag takes: about 60 MB at 384 dimensions."""
_ROWS_PER_RELEASE: Final = 50_000
"""Free memory is given back after so many rows: to have it again costs more than to give it, and it grows slowly."""


async def carry_out(batch: Batch, collection: Collection, dimensions: int) -> None:
    """Apply the batch. Narrowed access is committed first, deletions last, so that a crash never widens what is visible."""
    if batch.retags:
        await _retag(batch.retags, collection, dimensions)
    if batch.puts:
        await _put(batch, collection, dimensions)
        collection.written += len(batch.puts)
        if collection.written >= _ROWS_PER_RELEASE:
            collection.written = 0
            await asyncio.to_thread(give_back_free_pages)
    for condition in _dropped(batch):
        await collection.read(partial(_delete, condition=condition))


async def _put(batch: Batch, collection: Collection, dimensions: int) -> None:
    data = await asyncio.to_thread(to_arrow, list(batch.puts.values()), dimensions)
    await collection.write(lambda table: _merge(table, data))


async def _merge(table: AsyncTable, data: pa.Table) -> None:
    """Insert or overwrite, where the stored row is not newer.

    Without an index on chunk ids, and on purpose: a merge reads that column in milliseconds, but through an index that does not cover
    the latest commits yet it takes ten times as long.
    """
    merge = table.merge_insert("chunk_id").when_matched_update_all(where="target.generation <= source.generation")
    await merge.when_not_matched_insert_all().use_index(use_index=False).execute(data)


async def _retag(access: dict[str, AccessColumns], collection: Collection, dimensions: int) -> None:
    """Rewrite the rows of these documents.

    Writing the access columns alone would be less data for one document, but it takes every row of the touched fragments out of the
    scalar indexes, and it cannot set different columns for different documents in one commit.
    """
    documents = list(access)
    for start in range(0, len(documents), _DOCUMENTS_PER_READ):
        part = {document_id: access[document_id] for document_id in documents[start : start + _DOCUMENTS_PER_READ]}
        await collection.read(partial(_retag_some, access=part, dimensions=dimensions))


async def _retag_some(table: AsyncTable, *, access: dict[str, AccessColumns], dimensions: int) -> None:
    columns = schema(dimensions)
    waiting: list[pa.RecordBatch] = []
    async for batch in await table.query().where(one_of("document_id", access)).select(columns.names).to_batches():
        waiting.append(batch)
        if sum(map(len, waiting)) >= _ROWS_PER_RETAG:
            await _overwrite(table, with_access(pa.Table.from_batches(waiting).select(columns.names), access))
            waiting = []
    if sum(map(len, waiting)) > 0:
        await _overwrite(table, with_access(pa.Table.from_batches(waiting).select(columns.names), access))


async def _overwrite(table: AsyncTable, data: pa.Table) -> None:
    """Update rows that are still those which were read; never insert, because a row that has gone must not come back."""
    merge = table.merge_insert("chunk_id").when_matched_update_all(where="target.generation = source.generation")
    await merge.use_index(use_index=False).execute(data)


async def _delete(table: AsyncTable, *, condition: str) -> None:
    await table.delete(condition)


def _dropped(batch: Batch) -> Iterator[str]:
    """The rows that the batch deletes, as conditions with few terms: writes of the same generation share one.

    One condition for all, unless it would name too many rows: a text of 256 MB that was rewritten drops some 400 thousand.
    """
    whole: defaultdict[int, set[str]] = defaultdict(set)
    parts: defaultdict[int, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for write in batch.drops:
        if isinstance(write, DropRows):
            documents, chunks = parts[write.generation]
            documents.add(write.document_id)
            chunks |= write.chunk_ids
        else:
            whole[write.generation].add(write.document_id)
    conditions = [f"({one_of('document_id', documents)} AND generation <= {generation:d})" for generation, documents in whole.items()]
    named = 0
    for generation, (documents, chunks) in parts.items():
        for some in _some_of(chunks, _IDS_PER_DELETE):
            if named + len(some) > _IDS_PER_DELETE:
                yield " OR ".join(conditions)
                conditions, named = [], 0
            named += len(some)
            conditions.append(f"({one_of('chunk_id', some)} AND {one_of('document_id', documents)} AND generation <= {generation:d})")
    if conditions:
        yield " OR ".join(conditions)


def _some_of(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of at most `size` ids."""
    iterator = iter(ids)
    while some := list(islice(iterator, size)):
        yield some
