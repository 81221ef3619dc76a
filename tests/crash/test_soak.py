"""Blobs that change without rest, feeds that tell of it late and twice, workers that are killed, a service that goes away: it converges."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient
from sqlalchemy import make_url

from ragstore.index import AsyncIndex, open_async
from tests.support import postgres
from tests.support.account import Account
from tests.support.azurite import Azurite, Emulator
from tests.support.feed_writer import ContainerSink, FeedWriter
from tests.support.fleet import Fleet
from tests.support.restless import READERS, Restless, marks_in
from tests.support.tellers import FeedTeller, QueueTeller
from tests.support.workspace import PRINCIPALS

pytestmark = [pytest.mark.azurite, pytest.mark.timeout(300)]

_VISIBILITY = 5
"""Seconds after which messages of a dead worker come back."""
_IN_STEP_WITHIN = 90.0
"""Seconds after the last change was told."""
_CALM = 40
"""Changes after the last start of a worker: no listing finds them."""
_LEASE = 6.0
_SERVICES: Final[tuple[Literal["blob", "queue"], ...]] = ("blob", "queue")
_CONFIG = """
[source]
type = "azure-blob"
url = "{url}"
connection_string_env = "SOAK_CONNECTION"
feed = ["change-feed", "event-queue"]
[source.change-feed]
container = "feed"
poll_seconds = 0.3
[source.event-queue]
queue = "events"
poll_seconds = 0.2
visibility_seconds = {visibility}
[embedder]
type = "hash"
[chunking]
size = 64
[store]
type = "lancedb"
path = "index"
[ledger]
url = "{ledger}"
[access]
mode = "groups"
tag_key = "allow"
principals = "principals.json"
"""


@dataclass(slots=True, kw_only=True)
class Soak:
    """One storage account, one index, and all that happens to them."""

    chance: random.Random
    services: dict[str, Emulator]
    azurite: Azurite
    restless: Restless
    feed: FeedTeller
    queue: QueueTeller
    fleet: Fleet
    config: Path
    workers: int
    longest_outage: float
    outages: int = 0
    in_step_after: float = 0.0
    """Seconds from when the last change was told."""
    searches: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    """Marks that searches showed."""

    def drive(self, seconds: float, stop: threading.Event) -> None:
        """Changes all the time; kills, ends and outages for so many seconds; then, without a restart, until all is told."""
        for number in range(self.workers):
            self.fleet.start(number)
        self._rage(seconds, stop)
        for number in self.fleet.running():
            self.fleet.wait_until(number, "reconcile.")
        self._go_on(_CALM / 2, stop)
        self._outage()
        self._go_on(_CALM / 2, stop)
        self.feed.publish(every=True)
        self.queue.send(every=True)
        self.fleet.check_alive()

    def _go_on(self, changes: float, stop: threading.Event) -> None:
        enough = self.restless.done.total() + changes
        while self.restless.done.total() < enough and not stop.is_set():
            self._step()

    def _rage(self, seconds: float, stop: threading.Event) -> None:
        now = time.monotonic()
        end, kill, terminate, outage = now + seconds, now + 6, now + 14, now + 10
        while (now := time.monotonic()) < end and not stop.is_set():
            self._step()
            if now >= kill:
                self._restart(self.fleet.kill)
                kill = time.monotonic() + self.chance.uniform(2, 9)
            if now >= terminate:
                self._restart(self.fleet.end)
                terminate = time.monotonic() + self.chance.uniform(10, 20)
            if now >= outage:
                self._outage(self.chance.choice([None, self.fleet.end, self.fleet.kill]))
                outage = time.monotonic() + self.chance.uniform(12, 20)

    def _step(self) -> None:
        """Some changes, and some of what there is to tell."""
        self.fleet.check_alive()
        for _change in range(self.chance.randint(0, 3)):
            self._change()
        if self.chance.random() < 0.5:
            self.feed.publish()
        if self.chance.random() < 0.06:
            self.feed.begin()
        self.queue.send()
        time.sleep(self.chance.uniform(0, 0.3))

    def _change(self) -> None:
        for told in self.restless.change():
            self.feed.tell(told.record)
            if told.event is not None:
                self.queue.tell(told.event)

    def _restart(self, stop: Callable[[int], None]) -> None:
        """One worker goes, often with much in hand; it comes back, perhaps after some changes."""
        number = self.chance.choice(self.fleet.running())
        if self.chance.random() < 0.7:
            self.fleet.wait_until(number, self.chance.choice(["worker.started", "reconcile.", "reconcile."]))
            for _change in range(5):
                self._change()
            self.feed.publish(every=True)
            self.queue.send(every=True)
            time.sleep(self.chance.uniform(0, 1.2))
        stop(number)
        if self.chance.random() < 0.4:
            self._step()
        self.fleet.start(number)

    def _outage(self, stop: Callable[[int], None] | None = None) -> None:
        """A service, or both, are away for seconds; a worker may go, and one come, meanwhile."""
        self.outages += 1
        away = self.chance.choice([["blob"], ["queue"], ["blob", "queue"]])
        seconds = self.chance.uniform(1, self.longest_outage)
        for name in away:
            self.services[name].stop()
        time.sleep(seconds / 2)
        if stop is not None:
            number = self.chance.choice(self.fleet.running())
            stop(number)
            self.fleet.start(number)
        time.sleep(seconds / 2)
        for name in away:
            self.services[name].start()

    async def read(self, stop: threading.Event) -> None:
        """Search as everybody, all the time: nobody is ever shown what nobody allowed."""
        chance = random.Random(self.chance.random())
        async with open_async(self.config) as index:
            while not stop.is_set():
                who = chance.choice(sorted(READERS))
                path = chance.choice(sorted(self.restless.now))
                everywhere = chance.random() < 0.3
                for mark, where in await found(index, who, None if everywhere else path):
                    assert who in self.restless.ever.get((where, mark), set()), f"{who} was shown {mark} of {where}"
                    self.seen[who] += 1
                self.searches[who] += 1
                await asyncio.sleep(0.05)

    async def come_in_step(self) -> None:
        """By what the feeds tell: no worker starts meanwhile, so nothing is found by a listing."""
        started = time.monotonic()
        async with open_async(self.config) as index:
            while True:
                left = await self._left(index)
                self.in_step_after = time.monotonic() - started
                if not left:
                    return
                assert self.in_step_after < _IN_STEP_WITHIN, f"still not in step: {left}"
                self.fleet.check_alive()
                await asyncio.sleep(0.5)

    async def _left(self, index: AsyncIndex) -> dict[str, Any]:
        """What is not done yet."""
        left: dict[str, Any] = {
            "queued": index._assembly.ledger.work.depth(),
            "messages": self.queue.queue.get_queue_properties().approximate_message_count,
        }
        if not any(left.values()):
            left |= (await index.verify()).as_dict()
        return {what: some for what, some in left.items() if some}

    async def check_index(self) -> None:
        """It holds what the container holds, and shows everybody all that they may read, and nothing else."""
        async with open_async(self.config) as index:
            assert await self._left(index) == {}
            assert index.failures() == []
            known = index._assembly.ledger.documents.known().values()
            assert {blob.id.path for blob in known if blob.state == "live"} == self.restless.account.paths() == set(self.restless.now)
            for who in READERS:
                assert {mark for mark, _path in await found(index, who, None)} == self.restless.readable(who)

    def summary(self) -> str:
        fleet, done = self.fleet, self.restless.done
        return (
            f"{sum(done.values())} changes {dict(done)}; feed: {self.feed.segments} segments, {self.feed.late} late records; queue: "
            f"{self.queue.sent} events, {self.queue.twice} twice, {self.queue.late} late, {self.queue.lost} lost; "
            f"{fleet.runs} workers, {fleet.killed} killed, "
            f"{fleet.ended} ended (slowest {fleet.slowest_end:.1f} s), {self.outages} outages; in step after {self.in_step_after:.1f} s; "
            f"{fleet.embedded.total()} texts embedded, "
            f"{sum(count > 1 for count in fleet.embedded.values())} again after a kill; searches {dict(self.searches)}; "
            f"log {dict(fleet.said)}"
        )


async def found(index: AsyncIndex, who: str, path: str | None) -> set[tuple[str, str]]:
    """The marks that this principal is shown, each with the path where; of all blobs, or of one."""
    where = None if path is None else f"path = '{path}'"
    hits = await index.search("mark speaks about subject", principal=index.principal(who), limit=1000, filter=where)
    return {(mark, hit.blob.partition("/")[2]) for hit in hits for mark in marks_in(hit.text)}


@contextmanager
def soaking(folder: Path, seed: int, *, ledger: str, workers: int, longest_outage: float = 5.0) -> Iterator[Soak]:
    """Start everything, with a few blobs that are indexed; ends all processes, also when a test fails."""
    with ExitStack() as stack:
        services: dict[str, Emulator] = {}
        for service in _SERVICES:
            place = folder / f"azurite-{service}"
            place.mkdir()
            services[service] = stack.enter_context(closing(Emulator(service, place)))
        azurite = Azurite(port=services["blob"].port, queue_port=services["queue"].port)
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SOAK_CONNECTION", azurite.connection_string)
        chance = random.Random(seed)
        account = stack.enter_context(closing(Account.of(azurite, "docs")))
        account.client.create_container()
        feed_client = stack.enter_context(closing(ContainerClient.from_connection_string(azurite.connection_string, "feed")))
        queue_client = stack.enter_context(closing(QueueClient.from_connection_string(azurite.connection_string, "events")))
        queue_client.create_queue()
        feed = FeedTeller(writer=FeedWriter.of(ContainerSink(feed_client)), chance=chance)
        feed.begin()
        config = folder / "ragstore.toml"
        config.write_text(_CONFIG.format(url=f"{azurite.blob_endpoint}/docs", ledger=ledger, visibility=_VISIBILITY), encoding="utf-8")
        (folder / "principals.json").write_text(json.dumps(PRINCIPALS), encoding="utf-8")
        fleet = Fleet(
            config=config,
            folder=folder,
            cached=lambda: cached_vectors(folder, ledger),
            lease_seconds=_LEASE if workers > 1 else 120.0,
        )
        stack.enter_context(closing(fleet))
        restless = Restless(account=account, chance=chance)
        for _blob in range(12):
            restless.new()
        yield Soak(
            chance=chance, services=services, azurite=azurite, restless=restless, feed=feed,
            queue=QueueTeller(queue=queue_client, chance=chance), fleet=fleet, config=config, workers=workers,
            longest_outage=longest_outage,
        )  # fmt: skip


def cached_vectors(folder: Path, ledger: str) -> set[str]:
    """The hashes of all texts whose vectors are stored."""
    url = make_url(ledger)
    if url.drivername.startswith("postgresql"):
        if not postgres.execute(ledger, f"SELECT 1 FROM pg_tables WHERE schemaname = '{url.query['schema']}' AND tablename = 'vectors'"):
            return set()
        return {row[0] for row in postgres.execute(ledger, f"SELECT text_hash FROM {url.query['schema']}.vectors")}
    file = folder / str(url.database)
    if not file.exists():
        return set()
    with closing(sqlite3.connect(file)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vectors'").fetchall():
            return set()
        return {row[0] for row in connection.execute("SELECT text_hash FROM vectors")}


async def soak_and_converge(soak: Soak, seconds: float) -> None:
    soak.fleet.until_idle()
    stop = threading.Event()
    reading = asyncio.create_task(soak.read(stop))
    driving = asyncio.create_task(asyncio.to_thread(soak.drive, seconds, stop))
    try:
        await asyncio.wait([reading, driving], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            await reading  # it ends by a failure only
        await driving
        await soak.come_in_step()
        stop.set()
        await reading
        for number in soak.fleet.running():
            await asyncio.to_thread(soak.fleet.end, number)
        report = await asyncio.to_thread(soak.fleet.until_idle)
        assert [report[what] for what in ("added", "changed", "moved", "deleted", "quarantined", "chunks_embedded")] == [0] * 6
        await soak.check_index()
        assert all(soak.seen[who] for who in READERS), "searches found something all the while"
    finally:
        stop.set()
        await asyncio.gather(reading, driving, return_exceptions=True)
        print(soak.summary())


@pytest.fixture
def seed() -> int:
    """`RAGSTORE_SEED`, or a new one for each run; shown where the test fails."""
    seed = int(os.environ.get("RAGSTORE_SEED") or random.randrange(10**6))
    print(f"RAGSTORE_SEED={seed}")
    return seed


@pytest.mark.parametrize(
    ("seconds", "longest_outage"),
    [(34, 10), pytest.param(600, 30, marks=[pytest.mark.long, pytest.mark.timeout(1200)])],
)
async def test_a_worker_comes_in_step_whatever_happens(tmp_path: Path, seed: int, seconds: float, longest_outage: float) -> None:
    with soaking(tmp_path, seed, ledger="sqlite:///ledger.db", workers=1, longest_outage=longest_outage) as soak:
        await soak_and_converge(soak, seconds)


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "longest_outage"), [(34, 10), pytest.param(600, 30, marks=pytest.mark.timeout(1200))])
async def test_two_workers_on_one_ledger_come_in_step_whatever_happens(
    tmp_path: Path, seed: int, postgres_url: str, seconds: float, longest_outage: float
) -> None:
    with soaking(tmp_path, seed, ledger=postgres_url, workers=2, longest_outage=longest_outage) as soak:
        await soak_and_converge(soak, seconds)
