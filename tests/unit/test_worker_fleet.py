"""Several workers on one ledger in PostgreSQL: they share the work, one reads a feed at a time, and none is in the other's way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ragstore.index import AsyncIndex
from ragstore.worker import Worker
from tests.support.following import until
from tests.support.workspace import Workspace, texts


@pytest.fixture
def work(tmp_path: Path, postgres_url: str) -> Workspace:
    work = Workspace(tmp_path, store="lancedb", ledger={"url": postgres_url})
    work.sections["source"]["feed"] = "watch"
    work.sections["worker"] = {"batch": 5}
    return work


async def test_a_worker_until_idle_works_on_a_ledger_in_postgresql(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with work.open() as index:
        report = await index.follow(until_idle=True)
        assert (report.added, report.chunks_embedded) == (1, 1)
        assert await texts(index, "alpha", "bob") == ["alpha words"]
        assert not await index.verify()


async def test_two_workers_share_the_work_and_do_nothing_twice(work: Workspace) -> None:
    for number in range(60):
        work.write(f"{number}.txt", f"words number{number}")
    async with work.open() as one, work.open() as two:
        reports = await asyncio.wait_for(asyncio.gather(one.follow(until_idle=True), two.follow(until_idle=True)), 100)
        assert sum(report.added for report in reports) == 60
        assert len(work.embedded) == 60
        assert not await one.verify()


async def test_a_feed_is_read_by_one_worker_and_taken_over_by_the_other(work: Workspace) -> None:
    workers: dict[str, Worker] = {}
    async with work.open() as one, work.open() as two:
        first = asyncio.create_task(one.follow(started=lambda worker: workers.update(one=worker)))
        await until(lambda: len(work.connectors.feeds) == 1 and work.connectors.feeds[0].reads > 0, first)
        second = asyncio.create_task(two.follow(started=lambda worker: workers.update(two=worker)))
        await until(lambda: len(work.connectors.feeds) == 2, second)
        await asyncio.sleep(1)
        assert work.connectors.feeds[1].reads == 0
        work.write("a.txt", "alpha words")
        work.connectors.feeds[0].tell("a.txt")
        await until(lambda: _live(one) == 1, first)
        workers["one"].stop()
        await asyncio.wait_for(first, 30)
        work.connectors.feeds[1].events = work.connectors.feeds[0].events
        await until(lambda: work.connectors.feeds[1].reads > 0, second, seconds=60)
        work.write("b.txt", "beta words")
        work.connectors.feeds[1].tell("b.txt")
        await until(lambda: _live(two) == 2, second)
        workers["two"].stop()
        await asyncio.wait_for(second, 30)
        assert len(work.embedded) == 2


async def test_a_listing_that_another_process_holds_up_is_made_when_it_is_free(work: Workspace) -> None:
    workers: list[Worker] = []
    work.write("a.txt", "alpha words")
    async with work.open() as one, work.open() as other:
        with other._assembly.ledger.writing():
            task = asyncio.create_task(one.follow(started=workers.append))
            await until(lambda: bool(work.connectors.feeds) and work.connectors.feeds[0].reads > 0, task)
            assert _live(one) == 0
        await until(lambda: _live(one) == 1, task)
        workers[0].stop()
        await asyncio.wait_for(task, 30)


def _live(index: AsyncIndex) -> int:
    return index._assembly.ledger.documents.counts().get("live", 0)
