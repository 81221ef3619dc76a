"""An index in; plain JSON values that say how it stands out: for `ragstore status` and `ragstore failures`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ragstore.assembly import Assembly
from ragstore.config import ConnectorSettings
from ragstore.ledger import Ledger
from ragstore.models import Event
from ragstore.worker.state import read_state


async def overview(assembly: Assembly, *, last_sync: float | None) -> dict[str, Any]:
    """Counts, feeds, embedder, store. `last_sync` is when the last pass ended, in seconds since the epoch."""
    ledger, settings = assembly.ledger, assembly.settings
    holding = assembly.holding()
    store = await assembly.store(holding).stats() if holding else None
    # After the store, which takes a moment to open: beside a worker, what is indexed and what waits must be of about the same time.
    counts = ledger.documents.counts()
    failures = [failure for failure in ledger.quarantine.all().values() if not failure.dismissed]
    return {
        "blobs": counts.get("live", 0) + counts.get("stale", 0),
        "chunks": counts["chunks"],
        "quarantined": sum(failure.kind != "transient" for failure in failures),
        "stale": counts.get("stale", 0),
        "deferred": counts.get("deferred", 0),
        "feeds": [*(_listed(section, last_sync) for section in settings.source), *_followed(ledger)],
        "waiting": ledger.work.depth(),
        "worker": read_state(ledger),
        "embedder": holding.fingerprint if holding else None,
        "store": {"type": settings.store.type, "rows": store.rows if store else 0, **(store.detail if store else {})},
        "cached_vectors": ledger.cached_vectors(),
        "access": settings.access.mode,
    }


def quarantined(ledger: Ledger) -> list[dict[str, Any]]:
    """What `ragstore failures` lists, oldest first."""
    found = sorted(ledger.quarantine.all().values(), key=lambda failure: failure.since)
    return [
        {
            "blob": failure.blob,
            "kind": failure.kind,
            "reason": failure.reason,
            "attempts": failure.attempts,
            "since": _moment(failure.since),
        }
        for failure in found
        if not failure.dismissed
    ]


def retry(ledger: Ledger, blob: str | None) -> int:
    """Have these failures (all, or those of one blob) tried again, by the next pass or by the worker that runs. Returns how many."""
    count = ledger.quarantine.retry(blob)
    if read_state(ledger) is not None:
        named = [failure.document_id for failure in ledger.quarantine.all().values() if blob in {None, failure.blob}]
        now = datetime.now(UTC)
        ledger.work.put([Event(blob=known.id, hint="content", moment=now, kind="retry") for known in ledger.documents.some(named).values()])
    return count


def _followed(ledger: Ledger) -> list[dict[str, Any]]:
    """One entry for each feed that was followed."""
    return [
        {
            "source": cursor.feed,
            "cursor": cursor.cursor,
            "lag_seconds": None if cursor.lag is None else round(cursor.lag, 3),
            "last_event": None if cursor.last_event is None else _moment(cursor.last_event),
            "read": _moment(cursor.updated_at),
        }
        for cursor in ledger.cursors.all()
    ]


def _listed(section: ConnectorSettings, last_sync: float | None) -> dict[str, Any]:
    """A source is listed as well, whatever feeds it has."""
    moment = None if last_sync is None else _moment(last_sync)
    return {"source": _place(section), "cursor": None, "lag_seconds": None, "last_event": moment, "read": moment}


def _place(section: ConnectorSettings) -> str:
    """Where a source is, without the SAS that somebody may have left in the URL; no credential is needed to tell."""
    return str(section.options.get("path") or section.options.get("url") or section.type).partition("?")[0]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
