"""A feed in, its events in the ledger's queue of work out: read, queued durably, and only then left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ragstore.contracts import Feed
from ragstore.errors import FeedGapError
from ragstore.ingest.changes import narrow_now
from ragstore.ingest.parts import Parts
from ragstore.instrumentation import Instruments
from ragstore.ledger import Lease
from ragstore.models import Event, EventBatch, is_after
from ragstore.worker.outage import PATIENTLY, Outage, Passing, pause

_HELD_BACK_SECONDS = 0.5
_LEASE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What a follower says to the rest of the worker, and asks it."""

    came: Callable[[], None]
    """There is new work."""
    gap: Callable[[], None]
    """Only a listing can tell what happened."""
    down: Callable[[], bool]
    """Whether not even deletes can be applied: source or store are down."""


class Follower:
    """Follows one feed until it is told to stop."""

    def __init__(self, parts: Parts, feed: Feed, instruments: Instruments, stop: asyncio.Event, signals: Signals) -> None:
        self._parts = parts
        self._feed = feed
        self._instruments = instruments
        self._stop = stop
        self._signals = signals
        self._cursor: str | None = None
        self._lease: Lease | None = None
        self.outage = Outage(stop)
        self.caught_up = asyncio.Event()
        """Set when the last read gave nothing."""

    async def begin(self) -> None:
        """Take the place to begin at, before anybody lists: what happens from now on is told by the feed.

        What is down is waited for: whoever starts the worker again would give up sooner than an outage ends. Raises `ConfigError`.
        """
        while not self._stop.is_set():
            try:
                await self._find_place()
            except Passing as error:
                await self._down(error)
            else:
                self._up()
                return

    async def _find_place(self) -> None:
        cursors = self._parts.ledger.cursors
        self._cursor = await asyncio.to_thread(cursors.get, self._feed.name)
        if self._cursor is None:
            self._cursor = await self._feed.head()
            await asyncio.to_thread(cursors.save, self._feed.name, self._cursor)

    async def follow(self, *, patient: bool) -> None:
        """Raises `ConfigError` where the feed is not there or may not be read; if `patient`, at the first read only."""
        passing: tuple[type[Exception], ...] = Passing
        while not self._stop.is_set():
            try:
                await self._wait_for_room()
                if not await self._is_ours():
                    self.caught_up.set()
                    await pause(self._stop, max(self._feed.poll_seconds, _LEASE_SECONDS / 4))
                    continue
                found = await self._read()
            except FeedGapError as error:
                await self._start_anew(error)
                continue
            except passing as error:
                self.caught_up.clear()
                await self._down(error)
                continue
            passing = PATIENTLY if patient else Passing
            self._up()
            if not found:
                self.caught_up.set()
                await pause(self._stop, self._feed.poll_seconds)

    async def _down(self, error: Exception) -> None:
        if not self.outage.is_on:
            self._instruments.log("feed.down", feed=self._feed.name, error=str(error))
        await self.outage.wait(error)

    def _up(self) -> None:
        if self.outage.over():
            self._instruments.log("feed.up", feed=self._feed.name)

    async def close(self) -> None:
        """Give back the feed's connections, and the feed to another worker; what it has not settled comes again."""
        await self._feed.close()
        if self._lease is not None:
            await asyncio.to_thread(self._parts.ledger.leases.release, self._lease)

    async def _is_ours(self) -> bool:
        """Of a fleet one worker reads a feed with a cursor; a queue gives each event to one of its readers by itself."""
        if not self._parts.ledger.shared or self._cursor is None:
            return True
        self._lease = await asyncio.to_thread(self._parts.ledger.leases.acquire, f"feed:{self._feed.name}", _LEASE_SECONDS)
        if self._lease is None:
            return False
        # Another one may have read on since.
        self._cursor = await asyncio.to_thread(self._parts.ledger.cursors.get, self._feed.name) or self._cursor
        return True

    async def _wait_for_room(self) -> None:
        """Back-pressure: while much waits, or what applies it is down, nothing more is read: events are safe where they are."""
        while not self._stop.is_set() and (self._signals.down() or await self._is_full()):
            await pause(self._stop, _HELD_BACK_SECONDS)

    async def _is_full(self) -> bool:
        return await asyncio.to_thread(self._parts.ledger.work.depth) >= self._parts.settings.worker.backlog

    async def _read(self) -> bool:
        """Whether anything was there."""
        found = False
        async for batch in self._feed.read(self._cursor):
            found = found or bool(batch.events)
            if batch.events:
                self.caught_up.clear()
            await self._take(batch)
            if not await self._is_ours():
                break
            if self._stop.is_set():
                break
        return found

    async def _take(self, batch: EventBatch) -> None:
        """In this order: a crash in between brings the events again, which changes nothing, but never loses one."""
        events = await asyncio.to_thread(self._news, batch.events)
        await asyncio.to_thread(self._parts.ledger.work.put, events)
        await self._narrow(events)
        await asyncio.to_thread(self._save, batch)
        await self._feed.settle(batch)
        self._cursor = batch.cursor if batch.cursor is not None else self._cursor
        for event in batch.events:
            self._instruments.event(self._feed.name, event.kind or event.hint)
        for what, count in batch.skipped.items():
            self._instruments.event(self._feed.name, f"skipped: {what}", count=count)
        if events:
            self._signals.came()

    async def _narrow(self, events: Sequence[Event]) -> None:
        """Attributes of a blob whose content waits, or is being read, are not left to wait with it."""
        told = {event.blob.document_id: event for event in events if event.hint == "attributes"}
        if told:
            behind = await asyncio.to_thread(self._parts.ledger.work.behind_content, told)
            await narrow_now(self._parts, [told[document_id].blob for document_id in behind])
            for document_id in behind:
                self._instruments.access(told[document_id].moment)

    def _news(self, events: Sequence[Event]) -> list[Event]:
        """The events that are not surely older than what was applied: the same change may come from several feeds, and late."""
        known = self._parts.ledger.documents.some({event.blob.document_id for event in events})
        stored = {document_id: blob.sequencer for document_id, blob in known.items()}
        return [event for event in events if is_after(event.sequencer, stored.get(event.blob.document_id))]

    def _save(self, batch: EventBatch) -> None:
        last = max((event.moment for event in batch.events), default=None)
        lag = max(0.0, (datetime.now(UTC) - last).total_seconds()) if last else None
        if lag is not None:
            self._instruments.lag(self._feed.name, lag)
        self._parts.ledger.cursors.save(self._feed.name, batch.cursor, last_event=last.timestamp() if last else None, lag=lag)

    async def _start_anew(self, error: FeedGapError) -> None:
        """Nobody can say what was lost: go on from the head, and have the source listed after that."""
        self._instruments.log("feed.gap", feed=self._feed.name, error=str(error))
        try:
            self._cursor = await self._feed.head()
        except PATIENTLY as down:  # a folder that is not mounted just now, for one
            await self.outage.wait(down)
            return  # the old cursor gives the same gap again
        await asyncio.to_thread(self._parts.ledger.cursors.save, self._feed.name, self._cursor)
        self._signals.gap()
