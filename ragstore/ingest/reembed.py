"""An index of one embedder in, the same index with the vectors of another out; the old one serves until the new one is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ragstore.contracts import Embedder, PutRows, Store
from ragstore.ingest.committed import groups_of, rows_of
from ragstore.ingest.report import Clocked
from ragstore.ingest.supply import VectorSupply
from ragstore.ledger import Ledger
from ragstore.models import Row, text_hash

_CHUNKS_AT_ONCE = 2048
_TEXTS_AT_ONCE = 512


async def reembed(ledger: Ledger, *, old: Store, new: Store, embedder: Embedder, clock: Clocked) -> None:
    """Fill the new collection with every committed chunk of the old one.

    What an earlier attempt left in the new collection is thrown away; its vectors are in the cache, so nothing is paid twice.
    Raises `TransientError` where the embedder or a store is down.
    """
    if (await new.stats()).rows:
        await new.drop()
    supply = VectorSupply(embedder, ledger.vectors(embedder.fingerprint), clock)
    known = [blob for blob in (await asyncio.to_thread(ledger.documents.known)).values() if blob.serves]
    clock.report.bytes_total = sum(blob.size for blob in known)
    try:
        for group in groups_of(known, chunks=_CHUNKS_AT_ONCE):
            listed = {chunk_id for blob in group for chunk_id in ledger.documents.chunk_ids(blob.document_id)}
            async for rows in rows_of(old, group, listed, at_once=_TEXTS_AT_ONCE):
                await new.apply([PutRows(rows=await _with_new_vectors(rows, supply))])
                clock.report.chunks += len(rows)
            clock.report.bytes_done += sum(blob.size for blob in group)
            clock.tick()
    finally:
        await supply.close()
    await new.maintain(force=True)


async def _with_new_vectors(rows: Sequence[Row], supply: VectorSupply) -> list[Row]:
    hashes = [text_hash(row.text) for row in rows]
    vectors = await supply.of({key: row.text for key, row in zip(hashes, rows, strict=True)})
    return [replace(row, vector=vectors[key]) for key, row in zip(hashes, rows, strict=True)]
