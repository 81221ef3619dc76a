"""The sources' listings in; who may read each indexed blob, brought up to date without reading any content, out."""

from __future__ import annotations

import asyncio

from ragstore.ingest.adopt import donors_among
from ragstore.ingest.apply import Applier
from ragstore.ingest.folders import acl_reads, refresh_folders
from ragstore.ingest.guards import check_locations
from ragstore.ingest.parts import Parts
from ragstore.ingest.recover import recover_idle
from ragstore.ingest.report import Clocked, Progress, SyncReport
from ragstore.ingest.seen import confirm
from ragstore.ingest.sync import make_plan, make_spool, note_policy


async def refresh_access(parts: Parts, *, progress: Progress | None = None) -> SyncReport:
    """Give every indexed blob the tags, metadata and ACL that its source shows now; what changed in content waits for the next full pass.

    Azure changes neither ETag nor Last-Modified when index tags are written, so only a listing, or an event, tells. Of a blob whose content
    changed as well, what is taken away counts now, and what is given counts with the new content. Raises as `sync` does.
    """
    clock = Clocked(SyncReport(), progress)
    check_locations(parts.ledger, parts.sources)
    make_spool(parts)
    await recover_idle(parts)
    policy = parts.policy.fingerprint
    reads = acl_reads(parts)
    plan = await make_plan(parts)
    clock.report.blobs, clock.report.unchanged = plan.blobs, plan.unchanged
    applier = Applier(parts, clock, plan, donors_among(plan.baseline.known.values()))
    try:
        await applier.narrow(plan)
        await refresh_folders(parts, plan)
        clock.report.acl_reads = acl_reads(parts) - reads
        await asyncio.to_thread(confirm, parts, plan, keeps_gone=True)
        changed = await applier.retag(plan.retags)
    finally:
        await applier.close()
    if not (plan.upserts or changed or clock.report.failed):
        note_policy(parts, policy)
    clock.report.warn("access", parts.policy.lint())
    clock.tick(now=True)
    return clock.report
