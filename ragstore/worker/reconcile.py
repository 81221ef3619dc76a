"""The sources' listings in, work for every blob that differs from the ledger out: it finds what no feed has told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain

from ragstore.errors import GuardError
from ragstore.ingest.folders import refresh_folders
from ragstore.ingest.guards import check_deletes, check_locations, remember_locations
from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Plan
from ragstore.ingest.seen import confirm, narrow
from ragstore.ingest.sync import make_plan
from ragstore.instrumentation import Instruments
from ragstore.models import BlobId, Event, Hint


async def reconcile(parts: Parts, instruments: Instruments, *, allow_mass_delete: bool) -> int:
    """Queue what differs. Returns how many deletes a guard holds back: an unattended worker goes on, and waits for a person.

    Raises `TransientError` where a listing does not come to its end (then nothing is queued), `ConfigError` where it may not be read.
    """
    if not allow_mass_delete:
        check_locations(parts.ledger, parts.sources)
    plan = await make_plan(parts)
    await narrow(parts, plan)
    await refresh_folders(parts, plan)
    held_back = 0
    try:
        if not allow_mass_delete:
            deletes = sum(known.serves for known in plan.deletes)
            check_deletes(deletes - plan.likely_moves, known=_indexed(parts), limits=parts.settings.guard)
    except GuardError as error:
        held_back = len(plan.deletes)
        instruments.log("reconcile.held_back", deletes=held_back, error=str(error))
    remember_locations(parts.ledger, parts.sources)
    await asyncio.to_thread(confirm, parts, plan, keeps_gone=bool(held_back))
    await asyncio.to_thread(parts.ledger.work.put, list(_events(plan, deletes=not held_back)))
    instruments.log("reconcile.done", blobs=plan.blobs, differ=len(plan.upserts) + len(plan.retags) + len(plan.deletes))
    return held_back


def _events(plan: Plan, *, deletes: bool) -> Iterator[Event]:
    now = datetime.now(UTC)

    def event(blob: BlobId, hint: Hint) -> Event:
        return Event(blob=blob, hint=hint, moment=now, kind="listing")

    yield from (event(item.state.id, "attributes") for item in plan.retags)
    if deletes:
        surely = {known.document_id for known in plan.surely_gone}
        # What may have moved goes with the content, so that its rows are there when the new path wants them.
        yield from (event(known.id, "gone" if known.document_id in surely else "content") for known in plan.deletes)
    yield from (event(item.state.id, "content") for item in chain(plan.upserts, plan.too_large, plan.deferred))


def _indexed(parts: Parts) -> int:
    counts = parts.ledger.documents.counts()
    return counts.get("live", 0) + counts.get("stale", 0)
