"""Source, ledger and store in, the differences between them out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ragstore.errors import StoreDamagedError
from ragstore.ingest.parts import Parts
from ragstore.ingest.repair import probe
from ragstore.ingest.sync import make_plan
from ragstore.ledger import KnownBlob
from ragstore.models import AccessAttributes, AccessColumns

_LOG = logging.getLogger("ragstore.verify")


@dataclass(slots=True, kw_only=True)
class Differences:
    """Names of blobs, and of single rows as `blob#chunk`. Blobs in quarantine are no difference: `failures` lists them."""

    missing: list[str] = field(default_factory=list)
    """In the source (or the ledger), and not where a search would find it."""
    stale: list[str] = field(default_factory=list)
    """Searchable in another version, or with other access attributes."""
    orphaned: list[str] = field(default_factory=list)
    """In the ledger or the store, and not in the source."""

    def __bool__(self) -> bool:
        return bool(len(self))

    def __len__(self) -> int:
        return len(self.missing) + len(self.stale) + len(self.orphaned)

    def as_dict(self) -> dict[str, list[str]]:
        """Plain JSON values."""
        return {"missing": sorted(self.missing), "stale": sorted(self.stale), "orphaned": sorted(self.orphaned)}


async def verify(parts: Parts) -> Differences:
    """Compare everything with everything; reads keys only, no content and no vectors.

    A store that shows writes of other processes only after a while is asked again as long as it differs, for its `lag_seconds`.
    """
    sources = Differences()
    await _compare_sources(parts, sources)
    store = parts.store.capabilities
    lag = 0.0 if store.immediate else store.lag_seconds
    until = time.monotonic() + lag
    while True:
        found = Differences(missing=[*sources.missing], stale=[*sources.stale], orphaned=[*sources.orphaned])
        await _compare_store(parts, found)
        if len(found) == len(sources) or time.monotonic() >= until:
            return found
        await asyncio.sleep(min(lag / 10, 2.0))


async def _compare_sources(parts: Parts, found: Differences) -> None:
    plan = await make_plan(parts)
    for item in plan.upserts:
        (found.stale if item.known and item.known.serves else found.missing).append(item.state.id.name)
    for item in (*plan.too_large, *plan.deferred):
        if item.known and item.known.serves:
            found.stale.append(item.state.id.name)
    found.stale.extend(
        item.state.id.name
        for item in plan.retags
        if item.known and {item.known.access, item.known.current_access} != {item.state.access.to_json()}
    )
    found.orphaned.extend(known.id.name for known in plan.deletes if known.serves)


async def _compare_store(parts: Parts, found: Differences) -> None:
    known = await asyncio.to_thread(parts.ledger.documents.known)
    try:
        await probe(parts)
        await _compare_rows(parts, known, found)
    except StoreDamagedError as error:
        _LOG.warning("%s", error)
        found.missing.extend(blob.id.name for blob in known.values() if blob.serves)


async def _compare_rows(parts: Parts, known: Mapping[str, KnownBlob], found: Differences) -> None:
    columns = {document_id: _columns(parts, blob) for document_id, blob in known.items() if blob.serves}
    listed = await asyncio.to_thread(_listed, parts)
    wrong_columns: set[str] = set()
    async for key in parts.store.keys():
        chunks = listed.get(key.document_id, set())
        if key.chunk_id not in chunks:
            found.orphaned.append(_row_name(known, key.document_id, key.chunk_id))
            continue
        chunks.discard(key.chunk_id)
        if key.access != columns.get(key.document_id):
            wrong_columns.add(key.document_id)
    found.stale.extend(f"{known[document_id].id.name}#access" for document_id in wrong_columns)
    found.missing.extend(_row_name(known, document_id, chunk_id) for document_id, rest in listed.items() for chunk_id in rest)


def _listed(parts: Parts) -> dict[str, set[str]]:
    listed: dict[str, set[str]] = defaultdict(set)
    for document_id, chunk_id in parts.ledger.documents.all_chunk_ids():
        listed[document_id].add(chunk_id)
    return listed


def _columns(parts: Parts, known: KnownBlob) -> AccessColumns:
    return parts.columns(AccessAttributes.from_json(known.access), known.media_type)


def _row_name(known: Mapping[str, KnownBlob], document_id: str, chunk_id: str) -> str:
    blob = known.get(document_id)
    return f"{blob.id.name if blob else document_id}#{chunk_id}"
