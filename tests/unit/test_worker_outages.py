"""A worker and what is down: nothing is lost, nobody is held up by another's failure, and it goes on when all is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, FeedGapError, TransientError
from tests.support.feeds import ScriptedFeed
from tests.support.following import eventually, finds, followed, following, has, has_nothing, settled, until
from tests.support.workspace import Workspace


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return followed(tmp_path)


async def test_an_embedder_that_is_down_costs_no_event_and_deletes_go_on(work: Workspace) -> None:
    work.write("before.txt", "words from before")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        work.embedder.fail()
        work.write("a.txt", "alpha words")
        feed.tell("a.txt")
        await until(lambda: bool(index._assembly.ledger.quarantine.all()))
        for number in range(30):
            work.write(f"{number}.txt", f"words number{number}")
            feed.tell(f"{number}.txt")
        (work.docs / "before.txt").unlink()
        feed.tell("before.txt", "gone")
        await eventually(lambda: has_nothing(index, "before", "ada"))
        await until(lambda: index._assembly.ledger.cursors.get(feed.name) == str(len(feed.events)))
        work.embedder.down = None
        await settled(index, feed)
        await eventually(lambda: has(index, "number29", "words number29"))
        assert not await index.verify()
        assert index.failures() == []


async def test_a_blob_that_cannot_be_read_now_is_tried_again_and_holds_up_nobody(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.worker.process.spread", lambda _attempts: 0.05)
    async with following(work) as (index, feed, source):
        source.state_errors["a.txt"] = TransientError("not now")
        work.write("a.txt", "alpha words")
        work.write("b.txt", "beta words")
        feed.tell("a.txt")
        feed.tell("b.txt")
        await eventually(lambda: has(index, "beta", "beta words"))
        assert await finds(index, "alpha") == ["beta words"]
        source.state_errors.clear()
        await eventually(lambda: has(index, "alpha", "alpha words"))


async def test_a_gap_in_the_feed_is_closed_by_a_listing(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        work.write("lost.txt", "lost words")
        feed.failures = [FeedGapError("events are gone; run: ragstore index")]
        await eventually(lambda: has(index, "lost", "lost words"))


async def test_a_feed_that_is_down_is_read_again(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        feed.failures = [TransientError("down"), TransientError("down", retry_after=0.01)]
        work.write("a.txt", "alpha words")
        feed.tell("a.txt")
        await settled(index, feed)
        assert await finds(index, "alpha") == ["alpha words"]


async def test_a_feed_that_may_not_be_read_ends_the_worker_with_its_message(work: Workspace) -> None:
    async with work.open() as index:
        task = asyncio.create_task(index.follow())
        await until(lambda: bool(work.connectors.feeds))
        work.connectors.feeds[0].failures = [ConfigError("give the role Storage Blob Data Reader")]
        with pytest.raises(ConfigError, match="Storage Blob Data Reader"):
            await asyncio.wait_for(task, 20)
        assert work.connectors.feeds[0].closed


async def test_poison_is_set_aside_and_the_others_go_on(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        (work.docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
        work.write("good.txt", "good words")
        feed.tell("bad.pdf")
        feed.tell("good.txt")
        await settled(index, feed)
        assert [failure["blob"] for failure in index.failures()] == ["docs/bad.pdf"]
        assert await finds(index, "good") == ["good words"]


async def test_failures_that_are_to_be_retried_are_retried_by_the_worker_that_runs(work: Workspace) -> None:
    (work.docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    async with following(work) as (index, _feed, _source):
        await until(lambda: bool(index.failures()))
        assert index.failures()[0]["attempts"] == 1
        async with work.open() as other:
            assert other.retry_failures() == 1
        await until(lambda: index.failures()[0]["attempts"] == 2)


async def test_a_folder_that_is_gone_for_a_while_is_waited_for(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        elsewhere = work.base / "elsewhere"
        work.docs.rename(elsewhere)
        feed.failures = [FeedGapError("the folder is gone")]
        await asyncio.sleep(0.3)
        elsewhere.rename(work.docs)
        work.write("b.txt", "beta words")
        await eventually(lambda: has(index, "beta", "beta words"))
        assert await finds(index, "alpha") != []


async def test_a_file_of_tags_that_is_malformed_for_a_while_is_waited_for(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        work.write("b.txt", "beta words")
        (work.base / "tags.json").write_text('{"a.txt": ', encoding="utf-8")
        feed.tell("b.txt")
        await until(lambda: index._assembly.ledger.cursors.get(feed.name) == "1")
        await asyncio.sleep(0.5)
        assert index._assembly.ledger.work.depth() == 1
        work.save_tags()
        await settled(index, feed)
        assert sorted(await finds(index, "words")) == ["alpha words", "beta words"]


async def test_a_feed_that_is_down_when_the_worker_starts_is_waited_for(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    head, failures = ScriptedFeed.head, [TransientError("the service cannot be reached")]

    async def down_at_first(feed: ScriptedFeed) -> str | None:
        if failures:
            raise failures.pop()
        return await head(feed)

    monkeypatch.setattr(ScriptedFeed, "head", down_at_first)
    work.write("a.txt", "alpha words")
    async with work.open() as index:
        assert (await index.follow(until_idle=True)).added == 1
    assert not failures


async def test_a_source_that_does_not_answer_is_seen_in_the_status_until_it_does(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.worker.process.spread", lambda _attempts: 0.05)
    monkeypatch.setattr("ragstore.worker.worker._BEAT_SECONDS", 0.05)
    async with following(work) as (index, feed, source):
        source.state_errors["a.txt"] = TransientError("nobody is there")
        work.write("a.txt", "alpha words")
        feed.tell("a.txt")

        async def outages() -> object:
            worker = (await index.status())["worker"]
            return worker and worker["outages"]

        async def is_told() -> bool:
            return await outages() == ["nobody is there"]

        async def is_over() -> bool:
            return await outages() == []

        await eventually(is_told)
        source.state_errors.clear()
        await eventually(lambda: has(index, "alpha", "alpha words"))
        await eventually(is_over)
