"""A container with its change feed and its Event Grid queue, followed by a worker until it is idle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient
from typing_extensions import override

from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.contracts import Feed, Source
from ragstore.index import AsyncIndex
from ragstore.models import BlobState, FetchedBlob
from ragstore.worker import Worker
from ragstore_azure import AzureBlobSource
from tests.support.account import Account, Told
from tests.support.azurite import Azurite
from tests.support.event_grid import as_message
from tests.support.event_queue import until
from tests.support.feed_writer import START, ContainerSink, FeedWriter
from tests.support.workspace import Workspace, Wrapping, found, paragraphs, texts

pytestmark = pytest.mark.azurite


class _RealFeeds(Wrapping):
    """The feeds that are configured, instead of scripted ones."""

    @override
    def feed(self, kind: str, options: Mapping[str, Any], settings: Settings, *, source: Source, source_options: Mapping[str, Any]) -> Feed:
        return Connectors.feed(self, kind, options, settings, source=source, source_options=source_options)


class _Asked(Source):
    """The real source; notes what it is asked."""

    def __init__(self, source: Source) -> None:
        assert isinstance(source, AzureBlobSource)
        self.source = source
        self.account, self.container, self.location, self.max_bytes = source.account, source.container, source.location, source.max_bytes
        self.fetched: list[str] = []
        self.looked_at: list[str] = []
        self.hidden: set[str] = set()
        """Paths that listings leave out, so that only a feed can tell of them."""

    def admits(self, path: str) -> bool:
        return self.source.admits(path)

    @override
    async def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        async for state in self.source.list(below=below):
            if state.id.path not in self.hidden:
                yield state

    @override
    async def state(self, path: str) -> BlobState | None:
        self.looked_at.append(path)
        return await self.source.state(path)

    @override
    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        self.fetched.append(path)
        return await self.source.fetch(path, spool)

    @override
    async def close(self) -> None:
        await self.source.close()


class Place:
    """The account, its two feeds, and an index over the container."""

    def __init__(self, work: Workspace, account: Account, feed: FeedWriter, queue: QueueClient) -> None:
        self.work = work
        self.account = account
        self.feed = feed
        self.queue = queue
        self.last: float | None = None
        self.work.connectors.source_wrapper = self._wrap
        self.sources: list[_Asked] = []
        self.hidden: set[str] = set()

    @property
    def source(self) -> _Asked:
        return self.sources[-1]

    def record(self, *told: Told) -> None:
        """Have the change feed tell."""
        self.feed.append(START, [one.record for one in told])
        self.last = datetime.fromisoformat(told[-1].record["eventTime"]).timestamp()

    def send(self, *told: Told) -> None:
        """Have the queue tell."""
        for one in told:
            assert one.event is not None
            self.queue.send_message(as_message(one.event))

    @asynccontextmanager
    async def following(self) -> AsyncIterator[AsyncIndex]:
        """An index that a worker follows while the block runs, after the worker's first listing was applied."""
        workers: list[Worker] = []
        async with self.work.open() as index:
            task = asyncio.create_task(index.follow(started=workers.append))
            there = self.account.paths() - self.hidden
            await until(lambda: task.done() or (self._indexed(index) >= there and self._is_read(index)), seconds=30)
            try:
                yield index
            finally:
                workers[-1].stop()
                await asyncio.wait_for(task, 20)

    async def settled(self, index: AsyncIndex) -> None:
        """All that was told is applied."""
        await until(lambda: self._is_read(index), seconds=30)

    def _is_read(self, index: AsyncIndex) -> bool:
        ledger = index._assembly.ledger
        read = {cursor.feed.partition(" ")[0]: cursor for cursor in ledger.cursors.all()}
        if len(read) < 2 or (self.last is not None and (read["change-feed"].last_event or 0) < self.last):
            return False
        return not self.queue.get_queue_properties().approximate_message_count and not ledger.work.depth()

    @staticmethod
    def _indexed(index: AsyncIndex) -> set[str]:
        return {known.id.path for known in index._assembly.ledger.documents.known().values() if known.state == "live"}

    def _wrap(self, source: Source) -> Source:
        self.sources.append(_Asked(source))
        self.source.hidden = self.hidden
        return self.source


@pytest.fixture
def place(azurite_queue: Azurite, container: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TEST_CONNECTION", azurite_queue.connection_string)
    feed = f"feed-{uuid.uuid4().hex[:20]}"
    work = Workspace(tmp_path)
    work.connectors = _RealFeeds()
    work.sections["source"] = {
        "type": "azure-blob",
        "url": f"{azurite_queue.blob_endpoint}/{container}",
        "connection_string_env": "TEST_CONNECTION",
        "feed": ["change-feed", "event-queue"],
        "change-feed": {"container": feed, "poll_seconds": 0.1},
        "event-queue": {"queue": queue, "poll_seconds": 0.1},
    }
    with (
        closing(Account.of(azurite_queue, container)) as account,
        closing(ContainerClient.from_connection_string(azurite_queue.connection_string, feed)) as feed_client,
        closing(QueueClient.from_connection_string(azurite_queue.connection_string, queue)) as queue_client,
    ):
        writer = FeedWriter.of(ContainerSink(feed_client))
        writer.segment(START, shards=2)
        writer.consumable(START)
        yield Place(work, account, writer, queue_client)


async def test_a_new_blob_and_an_edit_are_told_by_the_change_feed(place: Place) -> None:
    place.account.put("old.txt", paragraphs("old", 4))
    async with place.following() as index:
        before = len(place.work.embedded)
        place.record(place.account.put("new.txt", paragraphs("new", 3)))
        await place.settled(index)
        assert len(await texts(index, "new", "Bob", filter="path = 'new.txt'")) == 3
        place.record(place.account.put("old.txt", paragraphs("old", 4).replace("number2", "number2 edited")))
        await place.settled(index)
        assert any("edited" in text for text in await texts(index, "edited", "Bob", filter="path = 'old.txt'"))
        assert len(place.work.embedded) == before + 3 + 1
        assert not await index.verify()


async def test_a_retag_that_the_change_feed_tells_reads_no_content_and_embeds_nothing(place: Place) -> None:
    place.account.put("a.txt", paragraphs("alpha", 3))
    async with place.following() as index:
        assert len(await texts(index, "alpha", "Bob")) == 3
        before, fetched = len(place.work.embedded), list(place.source.fetched)
        place.record(place.account.retag("a.txt", "board"))
        await place.settled(index)
        assert await texts(index, "alpha", "Bob") == []
        assert len(await texts(index, "alpha", "Ada")) == 3
        assert (len(place.work.embedded), place.source.fetched) == (before, fetched)
        assert not await index.verify()


async def test_a_delete_that_the_queue_tells_is_applied(place: Place) -> None:
    place.account.put("a.txt", paragraphs("alpha", 3))
    place.account.put("b.txt", paragraphs("beta", 3))
    async with place.following() as index:
        place.send(place.account.delete("a.txt"))
        await place.settled(index)
        assert {hit.blob.partition("/")[2] for hit in await found(index, "alpha", "Bob")} == {"b.txt"}
        assert not await index.verify()


async def test_a_change_that_both_feeds_tell_several_times_is_embedded_once(place: Place) -> None:
    async with place.following() as index:
        told = place.account.put("a.txt", paragraphs("alpha", 3))
        place.send(told, told)
        place.record(told, told)
        await place.settled(index)
        place.send(told)
        await place.settled(index)
        assert len(place.work.embedded) == 3
        assert len(await texts(index, "alpha", "Bob")) == 3
        (known,) = index._assembly.ledger.documents.known().values()
        assert known.generation == 1


async def test_an_old_event_that_comes_late_is_not_looked_at(place: Place) -> None:
    async with place.following() as index:
        first = place.account.put("a.txt", paragraphs("alpha", 3))
        place.record(place.account.put("a.txt", paragraphs("beta", 3)))
        await place.settled(index)
        looked_at = list(place.source.looked_at)
        place.send(first)
        await place.settled(index)
        assert place.source.looked_at == looked_at


@pytest.mark.parametrize("by", ["feed", "queue", "both, in the wrong order"])
async def test_a_rename_embeds_nothing(place: Place, by: str) -> None:
    place.account.put("a.txt", paragraphs("alpha", 3))
    async with place.following() as index:
        before = len(place.work.embedded)
        copied, deleted = place.account.rename("a.txt", "deep/b.txt")
        if by == "feed":
            place.record(copied, deleted)
        elif by == "queue":
            place.send(copied, deleted)
        else:
            place.send(deleted)
            await place.settled(index)
            place.record(copied)
        await place.settled(index)
        assert {hit.blob.partition("/")[2] for hit in await found(index, "alpha", "Bob")} == {"deep/b.txt"}
        assert len(place.work.embedded) == before
        assert not await index.verify()


async def test_a_worker_goes_on_where_the_one_before_stopped(place: Place) -> None:
    place.hidden.add("b.txt")
    place.record(place.account.put("a.txt", paragraphs("alpha", 3)))
    async with place.work.open() as index:
        assert (await index.follow(until_idle=True)).added == 1
    place.record(place.account.put("b.txt", paragraphs("beta", 3)))
    async with place.following() as index:
        await place.settled(index)
        assert len(await texts(index, "beta", "Bob", filter="path = 'b.txt'")) == 3
        assert set(place.source.looked_at) == {"b.txt"}, "what was applied is not looked at again"


async def test_events_of_another_container_are_passed_over(place: Place, azurite_queue: Azurite) -> None:
    place.account.put("a.txt", paragraphs("alpha", 3))
    other = f"other-{uuid.uuid4().hex[:12]}"
    with closing(Account.of(azurite_queue, other)) as account:
        account.client.create_container()
        told = account.put("a.txt", paragraphs("gamma", 3))
        async with place.following() as index:
            looked_at = list(place.source.looked_at)
            place.send(told)
            place.feed.append(START, [told.record])
            place.record(place.account.put("b.txt", paragraphs("beta", 3)))
            await place.settled(index)
            assert set(place.source.looked_at) - set(looked_at) == {"b.txt"}
            assert {hit.blob for hit in await found(index, "gamma alpha beta", "Bob")} == {
                f"{place.account.client.container_name}/{name}" for name in ("a.txt", "b.txt")
            }


async def test_a_worker_until_idle_reads_what_both_feeds_hold_and_ends(place: Place) -> None:
    place.account.put("a.txt", paragraphs("alpha", 3))
    async with place.work.open() as index:
        first = await index.follow(until_idle=True)
        assert (first.added, first.chunks_embedded) == (1, 3)
        place.hidden.update({"b.txt", "c.txt"})
        place.record(place.account.put("b.txt", paragraphs("beta", 3)))
        place.send(place.account.put("c.txt", paragraphs("gamma", 3)))
        second = await index.follow(until_idle=True)
        assert (second.added, second.chunks_embedded) == (2, 6)
        assert not place.queue.get_queue_properties().approximate_message_count
        assert not index.failures()
