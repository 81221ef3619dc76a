"""Documents marked as pending in, a store that holds exactly their committed rows out: what a crash or a failure left is cleaned up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from ragstore.contracts import DropDocument, DropRows, Retag, Write
from ragstore.ingest.parts import Parts
from ragstore.ledger import KnownBlob
from ragstore.models import AccessAttributes, RowKey


async def recover_idle(parts: Parts) -> None:
    """`recover` for every pending document that no worker has in hand: what is queued is recovered by whoever takes it."""
    pending = await asyncio.to_thread(parts.ledger.documents.pending)
    if pending and parts.ledger.shared:
        queued = await asyncio.to_thread(parts.ledger.work.queued, [known.document_id for known in pending])
        pending = [known for known in pending if known.document_id not in queued]
    await recover(parts, pending)


async def recover(parts: Parts, pending: Sequence[KnownBlob]) -> None:
    """Drop rows that no committed generation lists, set access columns anew, and have blobs read again whose rows are missing."""
    if not pending:
        return
    stored: dict[str, list[RowKey]] = defaultdict(list)
    async for key in parts.store.keys([known.document_id for known in pending]):
        stored[key.document_id].append(key)
    writes: list[Write] = []
    missing: dict[str, frozenset[str]] = {}
    for known in pending:
        listed = parts.ledger.documents.chunk_ids(known.document_id) if known.serves else frozenset()
        keys = stored[known.document_id]
        writes.extend(_corrections(parts, known, listed, keys))
        if lacking := listed - {key.chunk_id for key in keys}:
            missing[known.document_id] = lacking
            if not keys:
                # Deletes nothing, but asks: a store that is empty because it is another one, which may not be written, costs no list.
                writes.append(DropDocument(document_id=known.document_id, generation=0))
    if writes:
        await parts.store.apply(writes)
    await asyncio.to_thread(parts.ledger.documents.forget_rows, missing)
    await asyncio.to_thread(parts.ledger.documents.clear_pending, [known.document_id for known in pending])


def _corrections(parts: Parts, known: KnownBlob, listed: frozenset[str], keys: Sequence[RowKey]) -> list[Write]:
    """The writes that make the stored rows of one document what the ledger says."""
    # A generation that was being written when it failed is one above the committed one.
    generation = known.generation + 1
    if not listed:
        return [DropDocument(document_id=known.document_id, generation=generation)] if keys else []
    writes: list[Write] = []
    extra = frozenset(key.chunk_id for key in keys) - listed
    if extra:
        writes.append(DropRows(document_id=known.document_id, generation=generation, chunk_ids=extra))
    columns = parts.columns(AccessAttributes.from_json(known.access), known.media_type)
    if any(key.access != columns for key in keys):
        writes.append(Retag(document_id=known.document_id, access=columns))
    return writes
