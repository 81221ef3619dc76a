"""The work queue and the leases against a model: nothing is lost, nothing is held twice, and what its owner dropped comes back."""

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import delete, update
from typing_extensions import override

from ragstore.ledger import Lease, Leases, Ledger, WorkItem
from ragstore.ledger.schema import leases, work
from ragstore.ledger.work import merge
from ragstore.models import BlobId, Event

_MANY = os.environ.get("HYPOTHESIS_PROFILE") == "long"
START = datetime(2026, 1, 1, tzinfo=UTC)
OWNERS = st.sampled_from(["one", "two", "three"])
SEQUENCERS = st.none() | st.sampled_from(["00", "0a", "0B", "0c", "0D", "000", "ff1"])
EVENTS = st.builds(
    lambda path, hint, sequencer, seconds, etag: Event(
        blob=BlobId(account="a", container="c", path=path), hint=hint, moment=START + timedelta(seconds=seconds), sequencer=sequencer,
        etag=etag, kind=f"kind-{hint}",
    ),
    st.sampled_from(["x", "y", "z", "nul\0\x1a", "lone\ud800", "d/"]),
    st.sampled_from(["content", "attributes", "gone", "folder"]),
    SEQUENCERS,
    st.integers(0, 1000),
    st.none() | st.sampled_from(["e1", "e2"]),
)  # fmt: skip


class OnLedger(RuleBasedStateMachine):
    """A long lease stands for a live owner; time is made to pass."""

    url: ClassVar[str]

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(self.url, base=Path(self.folder.name))
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

    @override
    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()


class WorkMachine(OnLedger):
    """The model is `queued`, what must be looked at, and `held`, who does."""

    @override
    def begin(self) -> None:
        self.work = self.ledger.work
        with self.ledger._connections.write() as connection:
            connection.execute(delete(work))
        self.queued: dict[str, Event] = {}
        self.said: dict[str, int] = {}
        self.delayed: set[str] = set()
        self.held: dict[str, tuple[WorkItem, int]] = {}
        self.stale: list[WorkItem] = []

    @rule(events=st.lists(EVENTS, min_size=1, max_size=6))
    def put(self, events: list[Event]) -> None:
        merged: dict[str, Event] = {}
        for event in events:
            id_ = event.blob.document_id
            merged[id_] = merge(merged[id_], event) if id_ in merged else event
        assert self.work.put(events) == len(merged)
        for id_, event in merged.items():
            before = self.queued.get(id_)
            self.queued[id_] = event if before is None else merge(before, event)
            if before is None or (self.queued[id_] is not before and _news(before, event)):
                self.said[id_] = self.said.get(id_, 0) + 1
                self.delayed.discard(id_)

    @precondition(lambda self: self.queued.keys() - self.held.keys() - self.delayed)
    @rule(owner=OWNERS, limit=st.integers(1, 4))
    def take(self, owner: str, limit: int) -> None:
        free = self.queued.keys() - self.held.keys() - self.delayed
        items = self.work.take(owner, limit, 1000)
        assert len(items) == min(limit, len(free))
        lanes = [item.event.hint == "content" for item in items]
        assert lanes == sorted(lanes)
        if True in lanes:
            assert {id_ for id_ in free if self.queued[id_].hint != "content"} <= {item.document_id for item in items}
        for item in items:
            assert item.document_id in free
            assert item.event == self.queued[item.document_id]
            self.held[item.document_id] = (item, self.said[item.document_id])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))
        items = [self.held[id_][0] for id_ in ids]
        newer = {id_ for id_ in ids if self.said[id_] != self.held[id_][1]}
        assert self.work.done(items) == newer
        for id_ in ids:
            self.stale.append(self.held.pop(id_)[0])
            if id_ not in newer:
                del self.queued[id_]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=st.sampled_from([0, 1000]))
    def retry(self, data: st.DataObject, delay: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.held)))
        item, said = self.held.pop(id_)
        self.work.retry(item, delay)
        self.stale.append(item)
        if delay and self.said[id_] == said:
            self.delayed.add(id_)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Its leases end some time later."""
        owner = self._some_owner(data)
        gone = [id_ for id_, (item, _) in self.held.items() if item.owner == owner]
        with self.ledger._connections.write() as connection:
            connection.execute(update(work).where(work.c.owner == owner).values(lease_until=1.0))
        self.stale += [self.held.pop(id_)[0] for id_ in gone]

    def _some_owner(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted({item.owner for item, _ in self.held.values()})))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        owner = self._some_owner(data)
        mine = [id_ for id_, (item, _) in self.held.items() if item.owner == owner]
        assert self.work.give_back(owner) >= len(mine)
        self.stale += [self.held.pop(id_)[0] for id_ in mine]

    @precondition(lambda self: self.delayed)
    @rule()
    def time_passes(self) -> None:
        with self.ledger._connections.write() as connection:
            connection.execute(update(work).values(not_before=0.0))
        self.delayed.clear()

    @precondition(lambda self: self._overtaken())
    @rule(data=st.data(), way=st.sampled_from(["done", "retry", "renew"]))
    def a_dead_owner_comes_back(self, data: st.DataObject, way: str) -> None:
        """What it says of an item that somebody else holds by now changes nothing."""
        item = data.draw(st.sampled_from(self._overtaken()))
        if way == "retry":
            self.work.retry(item, 1000)
        else:
            assert (self.work.done([item]) if way == "done" else self.work.renew([item], 1000)) == {item.document_id}

    def _overtaken(self) -> list[WorkItem]:
        return [item for item in self.stale if item.document_id in self.held]

    @invariant()
    def everything_is_there(self) -> None:
        if hasattr(self, "work"):
            assert self.work.depth() == len(self.queued)
            assert self.work.renew([item for item, _ in self.held.values()], 1000) == set()
            backlog = self.work.backlog()
            assert (backlog.taken, backlog.delayed) == (len(self.held), len(self.delayed - self.held.keys()))
            assert backlog.waiting + backlog.taken + backlog.delayed == len(self.queued)


class LeaseMachine(OnLedger):
    """The model is `leases`, who holds what, and the highest token that was ever given."""

    @override
    def begin(self) -> None:
        self.tokens: dict[str, int] = {}
        self.leases: dict[str, Lease] = {}
        with self.ledger._connections.write() as connection:
            connection.execute(delete(leases))

    @rule(owner=OWNERS, name=st.sampled_from(["pass", "feed"]))
    def acquire(self, owner: str, name: str) -> None:
        self._got(owner, name, Leases(self.ledger._connections, owner).acquire(name, 1000))

    @rule(owner=OWNERS, limit=st.integers(0, 3))
    def acquire_some(self, owner: str, limit: int) -> None:
        names = ["pass", "feed", "more"]
        got = Leases(self.ledger._connections, owner).acquire_some(names, limit, 1000)
        free = [name for name in names if name not in self.leases or self.leases[name].owner == owner]
        assert len(got) == min(limit, len(free))
        for lease in got:
            self._got(owner, lease.name, lease)

    def _got(self, owner: str, name: str, lease: Lease | None) -> None:
        before = self.leases.get(name)
        if before is not None and before.owner != owner:
            assert lease is None
            return
        assert lease is not None
        assert lease.owner == owner
        if before is None:
            assert lease.token > self.tokens.get(name, 0)
        else:
            assert lease.token == before.token
        self.tokens[name] = lease.token
        self.leases[name] = lease

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), way=st.sampled_from(["release", "expire", "renew"]))
    def let_go(self, data: st.DataObject, way: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.leases)))
        lease = self.leases[name]
        mine = Leases(self.ledger._connections, lease.owner)
        assert mine.holds(lease)
        if way == "renew":
            renewed = mine.renew(lease, 2000)
            assert renewed is not None
            assert renewed.token == lease.token
            assert renewed.expires_at > lease.expires_at
            return
        if way == "release":
            mine.release(lease)
        else:
            with self.ledger._connections.write() as connection:
                connection.execute(update(leases).where(leases.c.name == name).values(expires_at=1.0))
        assert not mine.holds(lease)
        del self.leases[name]


def _news(before: Event, event: Event) -> bool:
    from ragstore.models import is_after

    return is_after(event.sequencer, before.sequencer) or merge(before, event).hint != before.hint


def machine(base: type[OnLedger], url: str) -> type[OnLedger]:
    return type(base.__name__, (base,), {"url": url})


@pytest.mark.parametrize("kind", [WorkMachine, LeaseMachine])
def test_on_sqlite(kind: type[OnLedger]) -> None:
    run_state_machine_as_test(
        machine(kind, "sqlite:///ledger.db"), settings=settings(max_examples=100 if _MANY else 15, stateful_step_count=30)
    )


@pytest.mark.parametrize("kind", [WorkMachine, LeaseMachine])
def test_on_postgresql(kind: type[OnLedger], postgres_url: str) -> None:
    run_state_machine_as_test(machine(kind, postgres_url), settings=settings(max_examples=100 if _MANY else 10, stateful_step_count=30))


@given(EVENTS, EVENTS)
def test_a_merged_event_asks_for_no_less_than_either(old: Event, new: Event) -> None:
    width = {"attributes": 0, "content": 1, "gone": 1, "folder": 2}
    merged = merge(old, new)
    assert width[merged.hint] == max(width[old.hint], width[new.hint])
