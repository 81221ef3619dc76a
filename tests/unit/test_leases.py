"""Leases and the work queue, on a SQLite file and in PostgreSQL: turns, lanes, time, and many workers at once."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragstore.ledger import Leases, Ledger, WorkItem
from ragstore.models import BlobId, Event, Hint

START = datetime(2026, 1, 1, 12, 0, 0, 123457, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found = "sqlite:///ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    assert isinstance(found, str)
    return found


@pytest.fixture
def ledger(url: str, tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(url, base=tmp_path)
    yield ledger
    ledger.close()


def event(path: str, hint: Hint = "content", *, sequencer: str | None = None, seconds: int = 0, came_from: str | None = None) -> Event:
    name = BlobId(account="a", container="c", path=path)
    moment = START + timedelta(seconds=seconds)
    return Event(blob=name, hint=hint, moment=moment, sequencer=sequencer, came_from=came_from, etag=f"e{seconds}", kind="kind")


def paths(items: list[WorkItem]) -> list[str]:
    return [item.event.blob.path for item in items]


def test_a_lease_is_one_owners_until_it_expires(ledger: Ledger) -> None:
    one, two = Leases(ledger._connections, "one"), Leases(ledger._connections, "two")
    first = one.acquire("feed", 0.3)
    assert first is not None
    assert two.acquire("feed", 60) is None
    assert one.owner_of("feed") == "one"
    deadline = time.monotonic() + 30
    while (second := two.acquire("feed", 60)) is None:
        assert time.monotonic() < deadline
    assert second.token > first.token
    assert one.renew(first, 60) is None
    one.release(first)
    assert two.holds(second)
    assert not one.holds(first)


def test_a_lease_that_ran_out_is_prolonged_where_nobody_else_had_it(ledger: Ledger) -> None:
    leases = ledger.leases
    lease = leases.acquire("feed", -1)
    assert lease is not None
    assert not leases.holds(lease)
    renewed = leases.renew(lease, 60)
    assert renewed is not None
    assert leases.holds(renewed)
    again = leases.acquire("feed", 60)
    assert again is not None
    assert again.token == lease.token


def test_one_who_let_a_lease_expire_gets_a_new_token(ledger: Ledger) -> None:
    tokens = [lease.token for lease in (ledger.leases.acquire("feed", -1) for _ in range(3)) if lease]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_several_leases_are_shared_out(ledger: Ledger) -> None:
    names = [f"shard{number}" for number in range(5)]
    one, two = Leases(ledger._connections, "one"), Leases(ledger._connections, "two")
    assert [lease.name for lease in one.acquire_some(names, 3, 60)] == names[:3]
    assert [lease.name for lease in two.acquire_some(names, 3, 60)] == names[3:]
    assert [lease.name for lease in one.acquire_some(names, 3, 60)] == names[:3]
    assert one.acquire_some([], 3, 60) == []
    assert one.acquire_some(names, 0, 60) == []


def test_at_one_moment_one_of_many_gets_the_lease(url: str, ledger: Ledger, tmp_path: Path) -> None:
    others = [Ledger(url, base=tmp_path) for _ in range(4)]
    barrier = threading.Barrier(4)

    def ask(other: Ledger) -> int:
        barrier.wait()
        return sum(other.leases.acquire(f"name{number}", 60) is not None for number in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(ask, others)) == 20
    for other in others:
        other.close()


def test_an_event_comes_back_as_it_was_put(ledger: Ledger) -> None:
    said = event("nul\0 and lone\ud800", came_from=None, sequencer="0A", seconds=7)
    ledger.work.put([said])
    (item,) = ledger.work.take("me", 1, 60)
    assert item.event == said
    assert (item.owner, item.attempts) == ("me", 1)


def test_what_needs_no_content_goes_first_and_then_the_oldest(ledger: Ledger) -> None:
    said: list[tuple[str, Hint]] = [("old", "content"), ("new", "content"), ("tag", "attributes"), ("gone", "gone"), ("d/", "folder")]
    for path, hint in said:
        ledger.work.put([event(path, hint)])
    ledger.work.put([event("old", sequencer="1")])
    assert paths(ledger.work.take("me", 3, 60)) == ["tag", "gone", "d/"]
    assert paths(ledger.work.take("me", 3, 60)) == ["old", "new"]
    assert ledger.work.take("me", 3, 60) == []
    assert ledger.work.take("me", 0, 60) == []


def test_a_newer_event_replaces_and_an_older_one_only_widens(ledger: Ledger) -> None:
    ledger.work.put([event("x", "attributes", sequencer="05", seconds=5), event("x", "content", sequencer="03", seconds=3)])
    ledger.work.put([event("x", "gone", sequencer="04", seconds=4)])
    (item,) = ledger.work.take("me", 9, 60)
    assert (item.event.hint, item.event.sequencer, item.event.etag) == ("content", "05", "e5")
    ledger.work.put([event("x", "content", sequencer="05", seconds=9)])  # the same event again
    assert ledger.work.done([item]) == set()


def test_what_is_said_while_it_is_applied_stays_queued(ledger: Ledger) -> None:
    ledger.work.put([event("x"), event("y")])
    items = ledger.work.take("me", 9, 60)
    ledger.work.put([event("x", seconds=1)])
    assert ledger.work.take("other", 9, 60) == []
    assert ledger.work.done(items) == {items[0].document_id}
    (again,) = ledger.work.take("other", 9, 60)
    assert (again.event.moment, again.attempts) == (START + timedelta(seconds=1), 1)


def test_a_move_queues_where_it_came_from_as_well(ledger: Ledger) -> None:
    ledger.work.put([event("b", came_from="a"), event("new/", "folder", came_from="old/")])
    items = {item.event.blob.path: item.event for item in ledger.work.take("me", 9, 60)}
    assert {path: (said.hint, said.came_from) for path, said in items.items()} == {
        "a": ("gone", None), "b": ("content", "a"), "old/": ("folder", None), "new/": ("folder", "old/"),
    }  # fmt: skip


def test_what_failed_waits_and_its_attempts_are_counted(ledger: Ledger) -> None:
    ledger.work.put([event("x")])
    (item,) = ledger.work.take("me", 1, 60)
    ledger.work.retry(item, 0.3)
    assert ledger.work.take("me", 1, 60) == []
    backlog = ledger.work.backlog()
    assert (backlog.waiting, backlog.taken, backlog.delayed, backlog.oldest_moment) == (0, 0, 1, START.timestamp())
    deadline = time.monotonic() + 30
    while not (items := ledger.work.take("me", 1, 60)):
        assert time.monotonic() < deadline
    assert items[0].attempts == 2
    ledger.work.put([event("x", seconds=1)])
    ledger.work.retry(items[0], 1000)
    (fresh,) = ledger.work.take("me", 1, 60)  # something new was said, so it is not waited for
    assert fresh.attempts == 1


def test_what_a_dead_worker_held_comes_back_and_its_late_word_is_not_heard(ledger: Ledger) -> None:
    ledger.work.put([event("x")])
    late = ledger.work.take("one", 1, -1)
    (item,) = ledger.work.take("one", 1, 60)  # even one of the same name
    assert ledger.work.done(late) == ledger.work.renew(late, 60) == {item.document_id}
    ledger.work.retry(late[0], 1000)
    assert ledger.work.renew([item], 60) == set()
    assert ledger.work.done([item]) == set()
    assert ledger.work.depth() == 0


def test_a_worker_that_ends_gives_back_what_it_holds(ledger: Ledger) -> None:
    ledger.work.put([event(f"{number}") for number in range(5)])
    ledger.work.take("one", 3, 60)
    ledger.work.take("two", 1, 60)
    assert ledger.work.give_back("one") == 3
    assert len(ledger.work.take("three", 9, 60)) == 4


def test_many_workers_share_the_work_and_nothing_is_lost_or_done_by_two_at_once(url: str, ledger: Ledger, tmp_path: Path) -> None:
    """Three workers take while two feeds say the same and more; each blob's last event is applied after it was said."""
    blobs, rounds = 40, 6
    last: dict[str, int] = {}
    holders: dict[str, str] = {}
    faults: list[str] = []
    guard, fed = threading.Lock(), threading.Event()
    ledgers = [Ledger(url, base=tmp_path) for _ in range(5)]

    def feed(which: int) -> None:
        for turn in range(rounds):
            events = [event(f"b{number}", sequencer=f"{turn * 2 + which:04x}", seconds=turn * 2 + which) for number in range(blobs)]
            ledgers[which].work.put(events[::-1] if which else events)

    def work(which: int) -> None:
        queue = ledgers[which].work
        while True:
            over = fed.is_set()
            items = queue.take(f"w{which}", 7, 60)
            if not items and over and queue.depth() == 0:
                return
            with guard:
                for item in items:
                    if holders.setdefault(item.document_id, f"w{which}") != f"w{which}":
                        faults.append(f"{item.event.blob.path} was given to two")
                    last[item.event.blob.path] = max(last.get(item.event.blob.path, -1), int(item.event.sequencer or "0", 16))
            threading.Event().wait(0.002)
            with guard:
                for item in items:
                    del holders[item.document_id]
            queue.done(items)

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(work, which) for which in (2, 3, 4)]
        for one in [pool.submit(feed, which) for which in (0, 1)]:
            one.result()
        fed.set()
        for worker in workers:
            worker.result()
    assert faults == []
    assert last == {f"b{number}": rounds * 2 - 1 for number in range(blobs)}
    for each in ledgers:
        each.close()
