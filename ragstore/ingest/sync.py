"""One pass: list, compare, guard, apply. Afterwards the index is in step with its sources, and what could not be is in the quarantine."""

from __future__ import annotations

import asyncio
import shutil
import time

from ragstore.errors import PoisonError, TransientError
from ragstore.ingest.adopt import donors_among
from ragstore.ingest.apply import Applier
from ragstore.ingest.folders import acl_reads, acl_source, folders_of, refresh_folders
from ragstore.ingest.guards import check_deletes, check_locations, remember_locations
from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Baseline, Plan, compare
from ragstore.ingest.recover import recover_idle
from ragstore.ingest.repair import mend_losses
from ragstore.ingest.report import Clocked, Progress, SyncReport
from ragstore.ingest.seen import confirm
from ragstore.models import BlobState

_POLICY = "policy"
_MANY_CHUNKS = 50_000


async def sync(parts: Parts, *, allow_mass_delete: bool = False, progress: Progress | None = None) -> SyncReport:
    """Bring the index in step with the sources.

    Raises `GuardError` where a listing would delete too much, `ConfigError` where a source may not be read (a listing that failed
    deletes nothing), `OutageError` where the store is down.
    """
    clock = Clocked(SyncReport(), progress)
    if not allow_mass_delete:
        check_locations(parts.ledger, parts.sources)
    make_spool(parts)
    await recover_idle(parts)
    if lost := await mend_losses(parts):
        clock.report.warn("store", (f"{lost} rows were lost, and are brought back",))
    policy = parts.policy.fingerprint  # before: a policy that changes during the pass has not made all the columns
    reads = acl_reads(parts)
    plan = await make_plan(parts)
    deletes = sum(known.serves for known in plan.deletes)
    indexed = await asyncio.to_thread(_indexed, parts)
    applier = Applier(parts, clock, plan, donors_among(plan.baseline.known.values()))
    try:
        await applier.narrow(plan)
        await refresh_folders(parts, plan)
        clock.report.acl_reads = acl_reads(parts) - reads
        if not allow_mass_delete:
            check_deletes(deletes - plan.likely_moves, known=indexed, limits=parts.settings.guard)
        remember_locations(parts.ledger, parts.sources)
        _start(clock.report, plan)
        await _apply(applier, plan)
        if not allow_mass_delete:
            # Sizes made some deletes look like moves; now the content has spoken.
            check_deletes(deletes - len(applier.moved_away), known=indexed, limits=parts.settings.guard)
        early = {known.document_id for known in plan.surely_gone}
        await applier.delete([known for known in plan.deletes if known.document_id not in early])
    finally:
        await applier.close()
    await asyncio.to_thread(confirm, parts, plan)
    clock.report.warn("embedder", applier.language_warnings())
    await _finish(parts, clock, policy)
    return clock.report


async def make_plan(parts: Parts) -> Plan:
    """List every source to its end, and compare with the ledger."""
    began, reads = time.time(), acl_reads(parts)
    listing: list[BlobState] = []
    for source in parts.sources:
        try:
            await acl_source(parts, source)  # before anything is read in vain
            listing.extend([state async for state in source.list()])
        except TransientError as error:
            raise TransientError(
                f"the listing of {source.container!r} did not come to its end, so nothing was changed: {error}",
                retry_after=error.retry_after,
            ) from error
    plan = await asyncio.to_thread(_compare, parts, listing, began)
    plan.acl_reads = acl_reads(parts) - reads
    return plan


def _compare(parts: Parts, listing: list[BlobState], began: float) -> Plan:
    changed = policy_changed(parts)
    known = parts.ledger.documents.known()
    if parts.settings.guard.other_containers == "keep":
        known = {document_id: blob for document_id, blob in known.items() if parts.source_of(blob.id)}
    baseline = Baseline(
        known=known,
        failures=parts.ledger.quarantine.all(),
        pipeline=parts.pipeline,
        looked_at=began,
        policy_changed=changed,
    )
    limits = {(source.account, source.container): source.max_bytes for source in parts.sources}
    plan = compare(listing, baseline, limits=limits)
    plan.folders = folders_of(listing)
    return plan


async def _apply(applier: Applier, plan: Plan) -> None:
    """The fast lane first: nobody waits for an embedding to lose access, and what is gone serves no longer than a move needs it."""
    changed = await applier.retag(plan.retags)
    await applier.delete(plan.surely_gone)
    for item in plan.too_large:
        await applier.quarantine(item, too_large(item.state))
    await applier.defer(plan.deferred)
    await applier.upsert([*plan.upserts, *changed])


def too_large(state: BlobState) -> PoisonError:
    """Why a blob over its source's limit is not read."""
    return PoisonError("too_large", f"{state.size:,} bytes are more than max_bytes; raise it, or leave the blob out with exclude")


def _start(report: SyncReport, plan: Plan) -> None:
    report.blobs = plan.blobs
    report.unchanged = plan.unchanged
    report.quarantined = plan.waiting
    report.deferred = len(plan.deferred)


async def _finish(parts: Parts, clock: Clocked, policy: str) -> None:
    report = clock.report
    if not report.failed:
        note_policy(parts, policy)
    report.warn("access", parts.policy.lint())
    await asyncio.to_thread(parts.ledger.prune_vectors, keep_days=parts.settings.cache.keep)
    if report.chunks >= _MANY_CHUNKS:
        await asyncio.to_thread(parts.ledger.release_memory)  # the store indexes these chunks now, and needs memory for it
    await parts.store.maintain()
    if parts.embedder.price_per_million_tokens is not None:
        report.price = round(report.tokens * parts.embedder.price_per_million_tokens / 1e6, 6)
    clock.tick(now=True)


def _indexed(parts: Parts) -> int:
    counts = parts.ledger.documents.counts()
    return counts.get("live", 0) + counts.get("stale", 0)


def policy_changed(parts: Parts) -> bool:
    """Whether access columns in the store were derived under another policy than the one that holds now."""
    return parts.ledger.setting(_POLICY) != parts.policy.fingerprint


def note_policy(parts: Parts, fingerprint: str) -> None:
    """All access columns are those of this policy."""
    parts.ledger.set_setting(_POLICY, fingerprint)


def make_spool(parts: Parts) -> None:
    """A folder for content, without the files of a run that was killed; this process is the only writer."""
    shutil.rmtree(parts.spool, ignore_errors=True)
    parts.spool.mkdir(parents=True, exist_ok=True)
