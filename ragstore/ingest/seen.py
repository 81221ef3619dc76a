"""What a listing shows of access in; attributes that count at once, and a note of when they were confirmed, out."""

from __future__ import annotations

import asyncio

from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Plan


async def narrow(parts: Parts, plan: Plan) -> None:
    """Have what the listing shows count at once, beside what is committed: a revocation does not wait for its turn in a queue."""
    planned = (*plan.retags, *plan.upserts, *plan.too_large, *plan.deferred)
    seen = {item.state.id.document_id: item.state.access for item in planned if item.known and item.known.serves}
    await asyncio.to_thread(parts.ledger.documents.see_access, seen, at=plan.baseline.looked_at)


def confirm(parts: Parts, plan: Plan, *, keeps_gone: bool = False) -> None:
    """The listing came to its end, and all it shows of access counts: older attributes hold as of then (see `[access] max_age_hours`).

    With `keeps_gone` blobs that it does not show go on serving, because a guard holds back their deletion: they get no new life.
    """
    places = {(source.account, source.container) for source in parts.sources}
    documents, at = parts.ledger.documents, plan.baseline.looked_at
    gone = {known.document_id for known in plan.deletes if known.serves}
    if not (keeps_gone and gone):
        parts.ledger.note_listed(places, at)
        return
    here = (known for known in plan.baseline.known.values() if (known.id.account, known.id.container) in places)
    documents.confirm([known.document_id for known in here if known.serves and known.document_id not in gone], at)
