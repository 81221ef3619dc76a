"""Queued work in, applied changes out: what decides over access and what is gone in a lane of its own, ahead of content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from ragstore.errors import AccessError, OutageError, TransientError
from ragstore.ingest.changes import Outcome, apply_changes
from ragstore.ingest.parts import Parts
from ragstore.ingest.report import Clocked
from ragstore.instrumentation import Instruments
from ragstore.ledger import WorkItem
from ragstore.ledger.work import Lane as LaneName
from ragstore.models import Event
from ragstore.worker.outage import PATIENTLY, Outage, Passing, spread

LEASE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 1.0
"""How often an idle lane looks whether a retry is due, or another worker's lease has run out."""
_MAINTAIN_SECONDS: Final = 30.0


class Lane:
    """Takes what is queued in one lane, as much as is there up to a limit, and applies it, until told to stop."""

    def __init__(self, parts: Parts, clock: Clocked, instruments: Instruments, stop: asyncio.Event, *, owner: str, name: LaneName) -> None:
        self._parts = parts
        self._clock = clock
        self._instruments = instruments
        self._stop = stop
        self._owner = owner
        self._name: LaneName = name
        self._wake = asyncio.Event()
        self._maintained = time.monotonic()
        self._dirty = False
        self._embedded = 0
        """Chunks that were counted already."""
        self.outage = Outage(stop)
        self.source_down = ""
        """What a source said that did not answer the latest batch: its blobs wait, those of others go on."""
        self.busy = False
        self._passing: tuple[type[Exception], ...] = Passing

    def wake(self) -> None:
        """There is new work."""
        self._wake.set()

    async def run(self, *, patient: bool) -> None:
        """Until stopped; the batch in hand is finished first. Raises `ConfigError` where a source may not be read, unless `patient`."""
        self._passing = PATIENTLY if patient else Passing
        while not self._stop.is_set():
            self._wake.clear()
            items = await self._take()
            if items:
                self.busy = True
                await self._process(items)
                self.busy = False
                await self._maintain_where_due()
            else:
                await self._maintain_where_due(idle=True)
                await self._sleep()
        if self._dirty:
            await self._maintain()

    async def _take(self) -> Sequence[WorkItem]:
        work, limit = self._parts.ledger.work, self._parts.settings.worker.batch
        try:
            return await asyncio.to_thread(work.take, self._owner, limit, LEASE_SECONDS, lane=self._name)
        except Passing as error:
            await self._down(error)
            return ()

    async def _process(self, items: Sequence[WorkItem]) -> None:
        keeping = asyncio.create_task(self._keep(items))
        try:
            outcome = await self._apply(items)
            await asyncio.to_thread(self._finish, items, outcome)
        except self._passing as error:
            await self._release(items)
            await self._down(error)
            return
        except BaseException:
            await self._release(items)
            raise
        finally:
            keeping.cancel()
        self._dirty = True
        self._note_source(outcome.source_down)
        if outcome.embedder_down:
            await self._down(TransientError(outcome.embedder_down))
        elif self.outage.over():
            self._instruments.log("work.up", lane=self._name)

    def _note_source(self, reason: str) -> None:
        if reason and not self.source_down:
            self._instruments.log("source.down", lane=self._name, error=reason)
        elif self.source_down and not reason:
            self._instruments.log("source.up", lane=self._name)
        self.source_down = reason

    async def _release(self, items: Sequence[WorkItem]) -> None:
        """Others, or the next attempt, may have them at once; where not even that can be said, when the lease ends."""
        try:
            await asyncio.to_thread(self._parts.ledger.work.release, items)
        except Passing as error:
            self._instruments.log("work.not_released", error=str(error))

    async def _apply(self, items: Sequence[WorkItem]) -> Outcome:
        folders = [item for item in items if item.event.hint == "folder"]
        for item in folders:
            await self._open_folder(item)
        blobs = [item.event.blob for item in items if item.event.hint != "folder"]
        outcome = await apply_changes(self._parts, self._clock, blobs)
        for blob, reason in outcome.again.items():
            self._instruments.log("blob.postponed", blob=blob.name, reason=reason)
        return outcome

    async def _open_folder(self, item: WorkItem) -> None:
        """Queue every blob that is below the folder, and every one that was indexed from there."""
        folder = item.event.blob
        source = self._parts.source_of(folder)
        known = await asyncio.to_thread(self._parts.ledger.documents.under, folder.account, folder.container, folder.path)
        found = {
            blob.id: Event(blob=blob.id, hint="gone", moment=item.event.moment, kind=item.event.kind)
            for blob in known
            if blob.state != "deleted"
        }
        if source is not None:
            async for state in source.list(below=folder.path):
                found[state.id] = Event(blob=state.id, hint="content", moment=item.event.moment, kind=item.event.kind)
        await asyncio.to_thread(self._parts.ledger.work.put, list(found.values()))

    def _finish(self, items: Sequence[WorkItem], outcome: Outcome) -> None:
        work = self._parts.ledger.work
        again = [item for item in items if item.event.blob in outcome.again]
        if outcome.embedder_down:
            work.release(again)  # tried as soon as it is back: none of them is at fault
        else:
            for item in again:
                work.retry(item, spread(item.attempts))
        done = [item for item in items if item.event.blob not in outcome.again]
        sequencers = {item.document_id: item.event.sequencer for item in done if item.event.sequencer is not None}
        self._parts.ledger.documents.note_sequencers(sequencers)
        work.done(done)
        for item in done:
            with self._instruments.span("blob", since=item.event.moment, blob=item.event.blob.name, hint=item.event.hint):
                self._instruments.applied(item.event.hint, item.event.moment)
            if item.event.hint == "attributes":
                self._instruments.access(item.event.moment)
        if self._name == "content":
            self._instruments.embedded(self._clock.report.chunks_embedded - self._embedded)
            self._embedded = self._clock.report.chunks_embedded

    async def _keep(self, items: Sequence[WorkItem]) -> None:
        """Hold on to the items for as long as work on them lasts."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 4)
            try:
                await asyncio.to_thread(self._parts.ledger.work.renew, items, LEASE_SECONDS)
            except Passing:
                continue  # the lease is long enough for some attempts

    async def _maintain_where_due(self, *, idle: bool = False) -> None:
        due = time.monotonic() - self._maintained > _MAINTAIN_SECONDS
        if self._dirty and (due or idle):
            await self._maintain()

    async def _maintain(self) -> None:
        self._maintained = time.monotonic()
        ledger = self._parts.ledger
        if ledger.shared and await asyncio.to_thread(ledger.leases.acquire, "maintenance", LEASE_SECONDS) is None:
            return  # another worker of the fleet does it
        try:
            await self._parts.store.maintain()
        except Passing as error:
            await self._down(error)
            return
        self._dirty = False

    async def _sleep(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), _LOOK_SECONDS)
        except TimeoutError:
            return

    async def _down(self, error: Exception) -> None:
        if not self.outage.is_on:
            kind = "store" if isinstance(error, OutageError) else "policy" if isinstance(error, AccessError) else "source"
            self._instruments.log("work.down", lane=self._name, what=kind, error=str(error))
        await self.outage.wait(error)
