"""The rows of an index in one store in; the same rows in another, compared with the ledger afterwards, out. Nothing is embedded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Store, Write
from ragstore.ingest.committed import groups_of, rows_of
from ragstore.ingest.report import Clocked
from ragstore.ledger import KnownBlob, Ledger
from ragstore.models import AccessAttributes, AccessColumns, RowKey

_CHUNKS_AT_ONCE = 4096
_NEWEST = 2**62

Columns = Callable[[AccessAttributes, str], AccessColumns]
"""Attributes and media type in, the access columns of the blob's rows out."""


@dataclass(slots=True, kw_only=True)
class Copied:
    """What was done, and what is not as the ledger says after all."""

    chunks: int = 0
    """Rows that the ledger lists."""
    written: int = 0
    """Rows that were sent; the others were there from an earlier attempt."""
    missing: list[str] = field(default_factory=list)
    """Ids of chunks that the other store lacks."""
    stale: list[str] = field(default_factory=list)
    """Ids of chunks with other access columns there."""
    orphaned: list[str] = field(default_factory=list)
    """Ids of chunks there that the ledger does not list."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.stale or self.orphaned)

    def as_dict(self) -> dict[str, list[str]]:
        """Plain JSON values: what is not as it should be."""
        return {"missing": sorted(self.missing), "stale": sorted(self.stale), "orphaned": sorted(self.orphaned)}


async def copy_index(ledger: Ledger, *, old: Store, new: Store, columns: Columns, clock: Clocked) -> Copied:
    """Make `new` hold what the ledger lists, with the vectors and texts of `old`.

    What is there already from an attempt that was stopped stays; what is not listed goes. Nobody else may write meanwhile. Raises
    `TransientError` where a store is down: what was copied is kept for the next attempt.
    """
    known = await asyncio.to_thread(ledger.documents.known)
    serving = [blob for blob in known.values() if blob.serves]
    copied = Copied(chunks=sum(blob.chunks for blob in serving))
    clock.report.chunks, clock.report.bytes_total = copied.chunks, copied.chunks
    await _drop_strangers(new, {blob.document_id for blob in serving})
    for group in groups_of(serving, chunks=_CHUNKS_AT_ONCE):
        listed = await asyncio.to_thread(_listed, ledger, group)
        access = {blob.document_id: columns(AccessAttributes.from_json(blob.access), blob.media_type) for blob in group}
        there = await _keys(new, group)
        await _apply(
            new, [write for blob in group for write in _corrections(blob, listed[blob.document_id], there[blob.document_id], access)]
        )
        lacking = {chunk for blob in group for chunk in listed[blob.document_id] - there[blob.document_id].keys()}
        async for rows in rows_of(old, group, lacking, at_once=_CHUNKS_AT_ONCE):
            # With the columns that the ledger's attributes give: those of the old store may lag behind.
            await new.apply([PutRows(rows=[replace(row, access=access[row.document_id]) for row in rows])])
            copied.written += len(rows)
        clock.report.bytes_done += sum(blob.chunks for blob in group)
        clock.tick()
    await new.maintain(force=True)
    await _compare(ledger, new, serving, columns, copied)
    clock.tick(now=True)
    return copied


def _listed(ledger: Ledger, group: Sequence[KnownBlob]) -> dict[str, frozenset[str]]:
    return {blob.document_id: ledger.documents.chunk_ids(blob.document_id) for blob in group}


async def _keys(store: Store, group: Sequence[KnownBlob]) -> Mapping[str, dict[str, RowKey]]:
    """The stored rows of these documents by document and chunk."""
    found: dict[str, dict[str, RowKey]] = defaultdict(dict)
    async for key in store.keys([blob.document_id for blob in group]):
        found[key.document_id][key.chunk_id] = key
    return found


def _corrections(
    blob: KnownBlob, listed: frozenset[str], there: Mapping[str, RowKey], access: Mapping[str, AccessColumns]
) -> Iterator[Write]:
    """What an earlier attempt left of this document, as it must be now."""
    if extra := frozenset(there) - listed:
        yield DropRows(document_id=blob.document_id, generation=_NEWEST, chunk_ids=extra)
    if any(key.access != access[blob.document_id] for chunk, key in there.items() if chunk in listed):
        yield Retag(document_id=blob.document_id, access=access[blob.document_id])


async def _drop_strangers(store: Store, serving: set[str]) -> None:
    strangers: set[str] = set()
    async for key in store.keys():
        if key.document_id not in serving:
            strangers.add(key.document_id)
    await _apply(store, [DropDocument(document_id=document_id, generation=_NEWEST) for document_id in sorted(strangers)])


async def _apply(store: Store, writes: Sequence[Write]) -> None:
    if writes:
        await store.apply(writes)


async def _compare(ledger: Ledger, store: Store, serving: Sequence[KnownBlob], columns: Columns, copied: Copied) -> None:
    access = {blob.document_id: columns(AccessAttributes.from_json(blob.access), blob.media_type) for blob in serving}
    listed = dict(await asyncio.to_thread(lambda: [(chunk, document) for document, chunk in ledger.documents.all_chunk_ids()]))
    async for key in store.keys():
        if listed.pop(key.chunk_id, None) != key.document_id:
            copied.orphaned.append(key.chunk_id)
        elif key.access != access.get(key.document_id):
            copied.stale.append(key.chunk_id)
    copied.missing.extend(listed)
