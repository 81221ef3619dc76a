"""The parts of an index and its feeds in; the index kept in step with its sources, through crashes and outages, out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ragstore.contracts import Feed
from ragstore.errors import AccessError, IndexLockedError
from ragstore.ingest.parts import Parts
from ragstore.ingest.recover import recover_idle
from ragstore.ingest.repair import mend_losses
from ragstore.ingest.report import Clocked
from ragstore.ingest.sync import make_spool, note_policy, policy_changed
from ragstore.instrumentation import Instruments
from ragstore.ledger.work import LANES
from ragstore.worker.follow import Follower, Signals
from ragstore.worker.outage import PATIENTLY, Outage, Passing, pause
from ragstore.worker.process import Lane
from ragstore.worker.reconcile import reconcile
from ragstore.worker.state import StateNote

_IDLE_SECONDS: Final = 0.05
_BEAT_SECONDS: Final = 5.0


class Worker:
    """Follows feeds, applies what they tell, and lists the sources at the start, after a gap and on a schedule."""

    def __init__(
        self, parts: Parts, feeds: Sequence[Feed], instruments: Instruments, clock: Clocked, *, in_step: Callable[[], None]
    ) -> None:
        """`in_step` is called when all that a listing found has been applied."""
        self._parts = parts
        self._in_step = in_step
        self._instruments = instruments
        self._clock = clock
        self._stop = asyncio.Event()
        self._list_now = asyncio.Event()
        self._lists = False
        self._listing = Outage(self._stop)
        owner = parts.ledger.owner
        self._lanes = [Lane(parts, clock, instruments, self._stop, owner=owner, name=name) for name in LANES]
        # An embedder that is down holds up content alone: deletes and revocations are read on, up to the limit of the backlog.
        signals = Signals(came=self._wake, gap=self._list_now.set, down=lambda: self._lanes[0].outage.is_on)
        self._followers = [Follower(parts, feed, instruments, self._stop, signals) for feed in feeds]
        self._state = StateNote(parts.ledger, owner)
        self._policy = ""
        """The policy of the latest listing, whose work is not done yet; empty afterwards."""
        self.held_back = 0
        """Deletes that wait for a person."""

    def stop(self) -> None:
        """Finish what is in hand, save, and end."""
        self._stop.set()
        self._wake()

    async def run(self, *, until_idle: bool = False, allow_mass_delete: bool = False) -> None:
        """Work until stopped, or with `until_idle` until there is nothing left to do.

        Raises `ConfigError` where a feed or a source is not there or may not be read.
        """
        self._instruments.log("worker.started", feeds=len(self._followers))
        await asyncio.to_thread(self._take_over)
        try:
            # The places in the feeds first, then the listing: what happens in between comes from both, and is applied once.
            for follower in self._followers:
                await follower.begin()
            await self._recover()
            await self._list(allow_mass_delete=allow_mass_delete)
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes:
                    group.create_task(lane.run(patient=not until_idle))
                for follower in self._followers:
                    group.create_task(follower.follow(patient=not until_idle))
                group.create_task(self._list_on_schedule(allow_mass_delete=allow_mass_delete))
                group.create_task(self._beat())
                if until_idle:
                    group.create_task(self._stop_when_idle())
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # the others were cancelled by it
        finally:
            self._stop.set()
            await self._hand_over()
            self._instruments.log("worker.stopped")

    async def _hand_over(self) -> None:
        """Let others have at once what this worker held. A ledger that is down gives it to them when the leases end."""
        for follower in self._followers:
            try:
                await follower.close()
            except Passing as error:
                self._instruments.log("feed.not_closed", error=str(error))
        try:
            await asyncio.to_thread(self._parts.ledger.work.give_back, self._parts.ledger.owner)
            await asyncio.to_thread(self._state.ended)
        except Passing as error:
            self._instruments.log("worker.not_handed_over", error=str(error))

    def _wake(self) -> None:
        for lane in self._lanes:
            lane.wake()

    def _take_over(self) -> None:
        """Where this is the only worker, whoever held work before it is dead."""
        if not self._parts.ledger.shared:
            self._parts.ledger.work.give_back(None)
        make_spool(self._parts)

    async def _recover(self) -> None:
        """What a crash left in the store."""
        while not self._stop.is_set():
            try:
                await recover_idle(self._parts)
                if not self._parts.ledger.shared:
                    await mend_losses(self._parts)  # nobody writes yet: what is missing is lost
            except Passing as error:
                await self._listing.wait(error)
            else:
                return

    async def _list(self, *, allow_mass_delete: bool, passing: tuple[type[Exception], ...] = Passing) -> None:
        while not self._stop.is_set():
            wanted = self._list_now.is_set()
            self._list_now.clear()
            self._lists = True
            try:
                policy = self._parts.policy.fingerprint
                self.held_back = await self._reconcile(allow_mass_delete=allow_mass_delete)
            except IndexLockedError as error:
                # It may have begun before what we want to find, or be of a worker that died: ours follows when the lease is free.
                if not wanted:
                    self._instruments.log("reconcile.elsewhere", why=str(error))
                self._list_now.set()
                return
            except passing as error:
                if not self._listing.is_on:
                    self._instruments.log("reconcile.down", error=str(error))
                await self._listing.wait(error)
                continue
            finally:
                self._lists = False
            self._listing.over()
            self._policy = policy
            self._wake()
            return

    async def _reconcile(self, *, allow_mass_delete: bool) -> int:
        """One worker of a fleet lists at a time; the work that it finds is for all of them."""
        if not self._parts.ledger.shared:
            return await reconcile(self._parts, self._instruments, allow_mass_delete=allow_mass_delete)
        with self._parts.ledger.writing():
            return await reconcile(self._parts, self._instruments, allow_mass_delete=allow_mass_delete)

    async def _list_on_schedule(self, *, allow_mass_delete: bool) -> None:
        every = self._parts.settings.worker.reconcile_hours * 3600
        due = time.monotonic() + every
        while not self._stop.is_set():
            if self._list_now.is_set() or time.monotonic() >= due:
                await self._list(allow_mass_delete=allow_mass_delete, passing=PATIENTLY)
                due = time.monotonic() + every
            await pause(self._stop, 1.0)

    async def _stop_when_idle(self) -> None:
        """Idle is: every feed gave nothing on its last read, nothing is queued or in hand, and no listing is wanted."""
        while not self._stop.is_set():
            quiet = all(follower.caught_up.is_set() for follower in self._followers) and not (self._lists or self._list_now.is_set())
            if quiet and not any(lane.busy for lane in self._lanes):
                backlog = await asyncio.to_thread(self._parts.ledger.work.backlog)
                if not backlog.waiting and not backlog.taken:
                    if not backlog.delayed:
                        await self._note_policy()
                    self.stop()
                    return
            await pause(self._stop, _IDLE_SECONDS)

    async def _beat(self) -> None:
        """Note for `ragstore status` how things are."""
        while not self._stop.is_set():
            with suppress(*Passing):  # the ledger is down, and so is everything that would say more of it
                await self._note_state()
            await pause(self._stop, _BEAT_SECONDS)

    async def _note_state(self) -> None:
        parts = [self._listing, *(each.outage for each in self._followers), *(lane.outage for lane in self._lanes)]
        outages = [outage.reason for outage in parts if outage.is_on]
        outages += [lane.source_down for lane in self._lanes if lane.source_down]
        depth = await asyncio.to_thread(self._parts.ledger.work.depth)
        is_idle = not depth and not any(lane.busy for lane in self._lanes)
        if is_idle:
            await self._note_policy()
        try:
            if await asyncio.to_thread(policy_changed, self._parts) and is_idle:
                self._list_now.set()
        except AccessError as error:  # a file of the policy is being edited: nobody is shown anything until it can be read again
            outages.append(str(error))
        self._instruments.depth(depth)
        self._instruments.quarantined(len(await asyncio.to_thread(self._parts.ledger.quarantine.all)))
        await asyncio.to_thread(self._state.note, outages=outages, held_back=self.held_back)

    async def _note_policy(self) -> None:
        """All that the latest listing found is applied: the access columns in the store are those of the policy under which it was made."""
        policy, self._policy = self._policy, ""
        if policy:
            await asyncio.to_thread(note_policy, self._parts, policy)
            await asyncio.to_thread(self._in_step)
