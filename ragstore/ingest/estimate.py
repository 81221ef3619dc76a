"""What a pass would do, in the same numbers as what a pass did; blobs are read and chunked, and nothing is changed or embedded."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ragstore.errors import PoisonError, TransientError
from ragstore.ingest.adopt import Adopter, donors_among
from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Plan, Planned
from ragstore.ingest.report import Clocked, Progress, SyncReport
from ragstore.ingest.sync import make_plan
from ragstore.models import Chunk, FetchedBlob

_AT_ONCE = 8


async def estimate(parts: Parts, *, progress: Progress | None = None) -> tuple[SyncReport, Plan]:
    """The report that `sync` would give now, and the plan behind it. Raises as `sync` does, but for the guard, which only acts."""
    clock = Clocked(SyncReport(), progress)
    plan = await make_plan(parts)
    report = clock.report
    report.blobs, report.unchanged = plan.blobs, plan.unchanged
    report.quarantined, report.deferred = plan.waiting + len(plan.too_large), len(plan.deferred)
    if parts.policy.mode == "azure":
        report.acl_reads = plan.acl_reads + sum(map(len, plan.folders.values()))
    for item in plan.retags:
        retagged = item.known is None or parts.retags(item.known, item.state.access)
        report.retagged += retagged
        report.unchanged += not retagged
    report.bytes_total = sum(item.state.size for item in plan.upserts)
    async with _spool(parts.spool) as spool:
        await _Estimator(parts, clock, plan, spool).run()
    report.deleted = sum(known.serves for known in plan.deletes) - report.moved
    if parts.embedder.price_per_million_tokens is not None:
        report.price = round(report.tokens * parts.embedder.price_per_million_tokens / 1e6, 6)
    clock.tick(now=True)
    return report, plan


@asynccontextmanager
async def _spool(beside: Path) -> AsyncIterator[Path]:
    """A folder of our own: a pass may be running in another process, and it clears its spool. Whoever may only read gets one elsewhere."""
    writable = os.access(beside.parent, os.W_OK)
    folder = Path(tempfile.mkdtemp(prefix="ragstore-plan-", dir=beside.parent if writable else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Estimator:
    def __init__(self, parts: Parts, clock: Clocked, plan: Plan, spool: Path) -> None:
        self._parts = parts
        self._clock = clock
        self._report = clock.report
        self._plan = plan
        self._spool = spool
        self._adopter = Adopter(parts, donors_among(plan.baseline.known.values()))
        self._cache = parts.ledger.vectors(parts.embedder.fingerprint)
        self._gone = frozenset(known.document_id for known in plan.deletes)
        self._moved: set[str] = set()
        self._counted: set[str] = set()
        """Hashes of texts that an earlier blob of this plan would have embedded."""

    async def run(self) -> None:
        items = iter(self._plan.upserts)

        async def lane() -> None:
            for item in items:
                await self._one(item)
                self._report.bytes_done += item.state.size
                self._clock.tick()

        await asyncio.gather(*(lane() for _ in range(_AT_ONCE)))

    async def _one(self, item: Planned) -> None:
        source = self._parts.source_of(item.state.id)
        fetched = None
        try:
            fetched = await source.fetch(item.state.id.path, self._spool) if source else None
            if fetched is not None:
                await self._take(item, fetched)
        except PoisonError as error:
            self._report.quarantined += 1
            self._report.warn(item.state.id.name, (f"{error.kind}: {error.reason}",))
        except TransientError as error:
            self._report.failed += 1
            self._report.warn(item.state.id.name, (str(error),))
        finally:
            if fetched is not None:
                fetched.content.remove()

    async def _take(self, item: Planned, fetched: FetchedBlob) -> None:
        known, state = item.known, fetched.state
        same_bytes = known and (known.sha256, known.content_type) == (fetched.sha256, state.content_type)
        if known and known.serves and same_bytes and known.pipeline == self._parts.pipeline:
            retagged = self._parts.retags(known, state.access)
            self._report.retagged += retagged
            self._report.unchanged += not retagged
            return
        donor = self._adopter.donor(fetched, gone=self._gone)
        if donor is not None:
            self._report.chunks += donor.chunks
            self._report.chunks_reused += donor.chunks
        else:
            await self._chunk(fetched)
        if known and known.serves:
            self._report.changed += 1
        elif donor is not None and donor.document_id in self._gone - self._moved:
            self._moved.add(donor.document_id)
            self._report.moved += 1
        else:
            self._report.added += 1

    async def _chunk(self, fetched: FetchedBlob) -> None:
        found = 0
        stream = await self._parts.parsers.parse(fetched.content, name=fetched.state.id.path, declared=fetched.state.content_type)
        async with stream:
            chunker = self._parts.chunker.document(stream.media_type)
            async for block in stream.blocks:
                chunks = await asyncio.to_thread(chunker.chunk, block)
                found += len(chunks)
                await asyncio.to_thread(self._count, chunks)
        if not found:
            raise PoisonError("no_text", "the content holds no text that could be found by a search")

    def _count(self, chunks: list[Chunk]) -> None:
        texts = {chunk.text_hash: chunk.text for chunk in chunks}
        new = texts.keys() - self._counted - self._cache.have(list(texts))
        self._counted |= new
        self._report.chunks += len(chunks)
        self._report.chunks_embedded += len(new)
        self._report.chunks_reused += len(chunks) - len(new)
        self._report.tokens += sum(self._parts.embedder.count_tokens([texts[key] for key in sorted(new)]))
