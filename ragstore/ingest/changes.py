"""Blobs that something may have happened to in, the index in step with them out; the cost follows their number, not that of the corpus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ragstore.errors import PoisonError, TransientError
from ragstore.ingest.apply import Applier
from ragstore.ingest.folders import read_new_folders
from ragstore.ingest.parts import Parts
from ragstore.ingest.plan import Baseline, Plan, compare
from ragstore.ingest.reach import Reach
from ragstore.ingest.recover import recover
from ragstore.ingest.report import Clocked
from ragstore.ingest.sync import policy_changed, too_large
from ragstore.ledger import KnownBlob
from ragstore.models import BlobId, BlobState

_LOOKS_AT_ONCE = 32


@dataclass(slots=True, kw_only=True)
class Looked:
    """What was found when each blob was looked at."""

    states: list[BlobState] = field(default_factory=list)
    gone: list[BlobId] = field(default_factory=list)
    unclear: dict[BlobId, Exception] = field(default_factory=dict)
    """Blobs that could not be looked at, for a passing reason."""
    source_down: str = ""
    refused: dict[BlobId, PoisonError] = field(default_factory=dict)
    """Blobs that nobody can look at, such as those whose name no URL can carry; the next listing gives them to the quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What could not be applied."""

    again: dict[BlobId, str]
    """Blobs that have to be tried again, with the reason."""
    embedder_down: str
    """The reason where the embedder is down, which concerns whoever comes next as well; else empty."""
    source_down: str
    """The reason where a source does not answer; else empty. Its blobs are tried again one by one, and those of others go on."""


async def apply_changes(parts: Parts, clock: Clocked, blobs: Iterable[BlobId]) -> Outcome:
    """Look at each of these blobs, and apply what it is now.

    A blob that cannot be indexed is quarantined. Raises `OutageError` where a part is down that all of them need, `ConfigError` where a
    source may not be read: then nothing is lost, and all of them have to be given again.
    """
    wanted = list(dict.fromkeys(blobs))
    began = time.time()
    looked = await _look(parts, wanted)
    try:
        await read_new_folders(parts, looked.states)
    except TransientError as outage:  # they stay closed until the next listing; the blobs go on
        clock.report.warn("access", (str(outage),))
    plan = await asyncio.to_thread(_compare, parts, looked, began)
    if left := [known for known in plan.baseline.known.values() if known.pending]:
        await recover(parts, left)  # by a worker that died; nobody else has these in hand now
        plan = await asyncio.to_thread(_compare, parts, looked, began)  # what was lost has to be read again
    applier = Applier(parts, clock, plan, _donors(parts))
    clock.report.blobs += len(wanted)
    clock.report.unchanged += plan.unchanged
    for blob, error in looked.refused.items():
        clock.report.warn(blob.name, (error.reason,))
    try:
        await applier.narrow(plan)
        changed = await applier.retag(plan.retags)
        await applier.delete(plan.surely_gone)
        for item in plan.too_large:
            await applier.quarantine(item, too_large(item.state))
        await applier.defer(plan.deferred)
        await applier.upsert([*plan.upserts, *changed])
        early = {known.document_id for known in plan.surely_gone}
        await applier.delete([known for known in plan.deletes if known.document_id not in early])
    finally:
        await applier.close()
    again = {blob: str(error) for blob, error in looked.unclear.items()}
    again |= {blob: "see: ragstore failures" for blob in wanted if blob.document_id in applier.postponed}
    return Outcome(again=again, embedder_down=applier.embedder_down, source_down=looked.source_down or applier.source_down)


async def narrow_now(parts: Parts, blobs: Iterable[BlobId]) -> None:
    """Have the present attributes of these blobs count at once, beside those of their generations: a revocation waits for nothing.

    A blob that cannot be looked at keeps what it had; the queued change finds out. Raises as `apply_changes` does.
    """
    began = time.time()
    looked = await _look(parts, list(dict.fromkeys(blobs)))
    access = {state.id.document_id: state.access for state in looked.states}
    await asyncio.to_thread(parts.ledger.documents.see_access, access, at=began)


async def _look(parts: Parts, blobs: Sequence[BlobId]) -> Looked:
    looked, reach = Looked(), Reach()
    pending = iter(blobs)

    async def lane() -> None:
        for blob in pending:
            source = parts.source_of(blob)
            if source is None:
                continue  # configured no more since the event came: what becomes of it, a listing decides
            try:
                state = await reach.state(source, blob.path)
            except TransientError as error:
                looked.unclear[blob] = error
            except PoisonError as error:
                looked.refused[blob] = error
            else:
                if state is None:
                    looked.gone.append(blob)
                else:
                    looked.states.append(state)

    with _first_of_several():
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_LOOKS_AT_ONCE, len(blobs))):
                group.create_task(lane())
    looked.source_down = reach.down
    return looked


def _compare(parts: Parts, looked: Looked, began: float) -> Plan:
    """As a listing of these blobs alone would be compared. Blobs that are unclear are no part of it, so that nothing deletes them."""
    ids = [state.id.document_id for state in looked.states] + [blob.document_id for blob in looked.gone]
    baseline = Baseline(
        known=parts.ledger.documents.some(ids),
        failures=parts.ledger.quarantine.some(ids),
        pipeline=parts.pipeline,
        looked_at=began,
        policy_changed=policy_changed(parts),
    )
    limits = {(source.account, source.container): source.max_bytes for source in parts.sources}
    return compare(looked.states, baseline, limits=limits)


def _donors(parts: Parts) -> Callable[[str], Sequence[KnownBlob]]:
    return lambda sha256: parts.ledger.documents.by_content([sha256])


@contextmanager
def _first_of_several() -> Iterator[None]:
    """The error that ended a group of tasks, alone: the others were cancelled by it."""
    try:
        yield
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
