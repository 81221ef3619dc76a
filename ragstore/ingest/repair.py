"""Ledger and store in, a store that holds exactly what the ledger lists out; what it lost is noted, and read again by the next pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import numpy as np

from ragstore.contracts import DropDocument, TextQuery, VectorQuery
from ragstore.errors import StoreDamagedError
from ragstore.filters import ALWAYS
from ragstore.ingest.parts import Parts
from ragstore.ingest.recover import recover
from ragstore.ledger import KnownBlob

_LOG = logging.getLogger("ragstore.repair")

_NEWEST = 2**62


async def repair_store(parts: Parts) -> None:
    """Make the store hold exactly what the ledger lists; blobs whose rows are missing are read again by the next pass.

    A store that cannot be read is emptied first: it is made from the sources and the cached vectors.
    """
    known = await asyncio.to_thread(parts.ledger.documents.known)
    try:
        await probe(parts)
        await _drop_strangers(parts, known)
    except StoreDamagedError as error:
        _LOG.warning("%s", error)
        await parts.store.drop()
    await recover(parts, list(known.values()))


async def mend_losses(parts: Parts) -> int:
    """Where the store holds fewer rows than the ledger lists, do as `repair_store` does. Returns how many are missing."""
    counts = await asyncio.to_thread(parts.ledger.documents.counts)
    missing = counts["chunks"] - (await parts.store.stats()).rows
    if missing <= 0:
        return 0
    await repair_store(parts)
    return missing


async def probe(parts: Parts) -> None:
    """One search of either kind. Raises `StoreDamagedError` where rows can be listed, but not searched."""
    if not (await parts.store.stats()).rows:
        return
    vector = np.zeros(parts.embedder.dimensions, dtype=np.float32)
    vector[0] = 1.0
    await parts.store.search(VectorQuery(vector=vector), filter=ALWAYS, limit=1)
    if parts.store.capabilities.full_text:
        await parts.store.search(TextQuery(text="ragstore verify"), filter=ALWAYS, limit=1)


async def _drop_strangers(parts: Parts, known: Mapping[str, KnownBlob]) -> None:
    """Rows of documents that the ledger does not know."""
    strangers: set[str] = set()
    async for key in parts.store.keys():
        if key.document_id not in known:
            strangers.add(key.document_id)
    if strangers:
        await parts.store.apply([DropDocument(document_id=document_id, generation=_NEWEST) for document_id in sorted(strangers)])
