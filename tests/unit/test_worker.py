"""A worker: what a feed tells reaches the index once, in order and cheaply, and nothing is lost by what is down meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, FeedGapError, IndexLockedError, TransientError
from ragstore.index import AsyncIndex
from ragstore.ingest.report import SyncReport
from ragstore.models import FetchedBlob
from ragstore.worker import Worker
from tests.support.feeds import ScriptedFeed
from tests.support.workspace import Workspace, paragraphs, texts
from tests.unit.test_sync_sources import Wrapped


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path)
    work.sections["source"]["feed"] = "watch"
    work.connectors.source_wrapper = Wrapped
    return work


@asynccontextmanager
async def following(work: Workspace) -> AsyncIterator[tuple[AsyncIndex, ScriptedFeed, Wrapped]]:
    """An index that is followed while the block runs, after its first listing was applied."""
    workers: list[Worker] = []
    async with work.open() as index:
        task = asyncio.create_task(index.follow(started=workers.append))
        await until(lambda: bool(work.connectors.feeds) and work.connectors.feeds[-1].reads > 0, task)
        source = index._assembly.sources()[0]
        assert isinstance(source, Wrapped)
        try:
            yield index, work.connectors.feeds[-1], source
        finally:
            workers[-1].stop()
            await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], bool], task: asyncio.Task[SyncReport] | None = None, seconds: float = 20) -> None:
    """Wait for it; a worker that ends meanwhile fails the test with its error."""
    deadline = time.monotonic() + seconds
    while not condition():
        if task is not None and task.done():
            task.result()
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


async def finds(index: AsyncIndex, query: str, who: str = "ada") -> list[str]:
    return await texts(index, query, who)


async def eventually(question: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await question():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.02)


async def settled(index: AsyncIndex, feed: ScriptedFeed) -> None:
    """All that the feed has told is applied."""
    await until(lambda: index._assembly.ledger.cursors.get(feed.name) == str(len(feed.events)))
    await until(lambda: not index._assembly.ledger.work.depth())


async def test_a_worker_until_idle_does_what_a_pass_does(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    work.write("b.txt", "beta words", allow="board")
    async with work.open() as index:
        report = await index.follow(until_idle=True)
        assert (report.added, report.chunks_embedded) == (2, 2)
        assert await finds(index, "alpha words") == ["alpha words", "beta words"]
        assert await finds(index, "beta words", "bob") == ["alpha words"]
        assert not await index.verify()
        again = await index.follow(until_idle=True)
        assert (again.added, again.changed, again.retagged, again.chunks_embedded) == (0, 0, 0, 0)


async def test_what_a_feed_tells_is_searchable_without_a_listing(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, source):
        source.list_error = TransientError("nothing may be listed now")
        work.write("new.txt", "gamma words")
        feed.tell("new.txt")
        await settled(index, feed)
        assert "gamma words" in await finds(index, "gamma words")
        work.write("a.txt", "delta words")
        feed.tell("a.txt")
        await settled(index, feed)
        assert sorted(await finds(index, "words")) == ["delta words", "gamma words"]
        (work.docs / "new.txt").unlink()
        feed.tell("new.txt", "gone")
        await settled(index, feed)
        assert await finds(index, "words") == ["delta words"]
        source.list_error = None
        assert not await index.verify()


async def test_a_retag_reads_no_content_and_embeds_nothing(work: Workspace) -> None:
    work.write("a.txt", "alpha words", allow="board")
    async with following(work) as (index, feed, source):
        await until(lambda: not index._assembly.ledger.work.depth())
        assert await finds(index, "alpha", "bob") == []
        source.fetch_errors["a.txt"] = AssertionError("content was read")
        before = len(work.embedded)
        work.allow("a.txt", "staff")
        feed.tell("a.txt", "attributes")
        await settled(index, feed)
        assert await finds(index, "alpha", "bob") == ["alpha words"]
        work.allow("a.txt", "board")
        feed.tell("a.txt", "attributes")
        await settled(index, feed)
        assert await finds(index, "alpha", "bob") == []
        assert len(work.embedded) == before


async def test_the_same_change_told_three_times_is_applied_once(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        work.write("a.txt", "alpha words")
        for _time in range(3):
            feed.tell("a.txt", sequencer="0001")
            await settled(index, feed)
        assert work.embedded == ["alpha words"]
        known = next(iter(index._assembly.ledger.documents.known().values()))
        assert (known.generation, known.sequencer) == (1, "0001")


async def test_an_event_that_is_older_than_what_was_applied_is_not_looked_at(work: Workspace) -> None:
    async with following(work) as (index, feed, source):
        work.write("a.txt", "alpha words")
        feed.tell("a.txt", sequencer="0005")
        await settled(index, feed)
        source.state_errors["a.txt"] = AssertionError("the blob was looked at")
        feed.tell("a.txt", sequencer="0004")
        feed.tell("a.txt", sequencer="0005")
        await settled(index, feed)


async def test_what_happens_between_the_place_in_the_feed_and_the_listing_is_not_missed(work: Workspace) -> None:
    """The worker asks for the head, then lists: a blob written in between that the listing does not show comes from the feed."""
    async with work.open() as index:
        source = index._assembly.sources()[0]
        assert isinstance(source, Wrapped)
        head = ScriptedFeed.head

        async def head_then_write(self: ScriptedFeed) -> str | None:
            position = await head(self)
            work.write("late.txt", "late words")
            self.tell("late.txt")
            return position

        ScriptedFeed.head = head_then_write  # type: ignore[method-assign]
        try:
            await index.follow(until_idle=True)
        finally:
            ScriptedFeed.head = head  # type: ignore[method-assign]
        assert await finds(index, "late") == ["late words"]
        assert work.embedded == ["late words"]


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
        await eventually(lambda: _not(index, "before", "ada"))
        await until(lambda: index._assembly.ledger.cursors.get(feed.name) == str(len(feed.events)))
        work.embedder.down = None
        await settled(index, feed)
        await eventually(lambda: _has(index, "number29", "words number29"))
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
        await eventually(lambda: _has(index, "beta", "beta words"))
        assert await finds(index, "alpha") == ["beta words"]
        source.state_errors.clear()
        await eventually(lambda: _has(index, "alpha", "alpha words"))


async def test_a_gap_in_the_feed_is_closed_by_a_listing(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        work.write("lost.txt", "lost words")
        feed.failures = [FeedGapError("events are gone; run: ragstore index")]
        await eventually(lambda: _has(index, "lost", "lost words"))


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


async def test_a_folder_that_was_renamed_is_followed_with_all_that_is_below(work: Workspace) -> None:
    for number in range(5):
        work.write(f"old/{number}.txt", f"words number{number}")
    work.write("oldest.txt", "stays")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        (work.docs / "old").rename(work.docs / "new")
        for number in range(5):
            work.tags[f"new/{number}.txt"] = work.tags.pop(f"old/{number}.txt")
        work.save_tags()
        before = len(work.embedded)
        feed.tell("old/", "folder")
        feed.tell("new/", "folder")
        await settled(index, feed)
        assert not await index.verify()
        assert {known.id.path for known in index._assembly.ledger.documents.known().values() if known.serves} == {
            "oldest.txt", *(f"new/{number}.txt" for number in range(5))
        }  # fmt: skip
        assert len(work.embedded) == before


async def test_poison_is_set_aside_and_the_others_go_on(work: Workspace) -> None:
    async with following(work) as (index, feed, _source):
        (work.docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
        work.write("good.txt", "good words")
        feed.tell("bad.pdf")
        feed.tell("good.txt")
        await settled(index, feed)
        assert [failure["blob"] for failure in index.failures()] == ["docs/bad.pdf"]
        assert await finds(index, "good") == ["good words"]


async def test_a_second_worker_on_the_same_ledger_is_refused(work: Workspace) -> None:
    async with following(work), work.open() as other:
        with pytest.raises(IndexLockedError, match="another ragstore"):
            await other.follow(until_idle=True)


async def test_a_listing_that_lacks_too_much_deletes_nothing_and_the_rest_is_followed(work: Workspace) -> None:
    for number in range(30):
        work.write(f"{number}.txt", f"words number{number}")
    async with work.open() as index:
        await index.follow(until_idle=True)
        for number in range(28):
            (work.docs / f"{number}.txt").unlink()
        work.write("new.txt", "new words")
        report = await index.follow(until_idle=True)
        assert (report.held_back, report.deleted, report.added) == (28, 0, 1)
        report = await index.follow(until_idle=True, allow_mass_delete=True)
        assert (report.held_back, report.deleted) == (0, 28)
        assert not await index.verify()


async def test_without_events_nothing_is_listed_and_no_row_is_read(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3))
    async with following(work) as (index, feed, source):
        await until(lambda: not index._assembly.ledger.work.depth())
        await asyncio.sleep(0.3)  # maintenance after the first listing
        source.list_error = AssertionError("the source was listed")
        store = index._assembly.store(index._assembly.configured())
        for name in ("rows", "keys", "search", "apply"):
            setattr(store, name, None)
        reads = feed.reads
        await until(lambda: feed.reads > reads + 20)


async def test_a_policy_that_changes_reaches_every_row(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[rules]\n"*" = ["staff"]\n')
    work = Workspace(tmp_path, access={"mode": "groups", "rules": "rules.toml", "principals": "principals.json"})
    work.sections["source"]["feed"] = "watch"
    work.write("a.txt", "alpha words", allow=None)
    async with work.open() as index:
        await index.follow(until_idle=True)
        assert await finds(index, "alpha", "bob") == ["alpha words"]
        rules.write_text('[rules]\n"*" = ["board"]\n')
        report = await index.follow(until_idle=True)
        assert report.retagged == 1
        assert await finds(index, "alpha", "bob") == []
        assert await finds(index, "alpha", "ada") == ["alpha words"]
        assert not await index.verify()


async def _has(index: AsyncIndex, query: str, text: str) -> bool:
    return text in await finds(index, query)


async def test_access_is_taken_away_while_the_content_of_the_blob_waits_to_be_read(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        work.embedder.fail()
        work.write("a.txt", "other words")
        feed.tell("a.txt")
        await eventually(lambda: _has(index, "alpha", "alpha words"))
        await until(lambda: bool(index._assembly.ledger.quarantine.all()))
        assert await finds(index, "alpha", "bob") == ["alpha words"], "the old version serves while the embedder is down"
        work.allow("a.txt", "board")
        feed.tell("a.txt", "attributes")
        await eventually(lambda: _not(index, "words", "bob"))
        assert work.embedder.down is not None
        work.embedder.down = None
        await settled(index, feed)
        assert await finds(index, "words", "bob") == []
        assert await finds(index, "words", "ada") == ["other words"]


async def _not(index: AsyncIndex, query: str, who: str) -> bool:
    return await finds(index, query, who) == []


async def test_access_that_is_taken_away_while_content_is_read_does_not_come_back_with_that_content(
    work: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, source):
        await until(lambda: not index._assembly.ledger.work.depth())
        read, go_on = asyncio.Event(), asyncio.Event()
        fetch = source.fetch

        async def slow(path: str, spool: Path) -> FetchedBlob | None:
            fetched = await fetch(path, spool)
            read.set()
            await go_on.wait()
            return fetched

        monkeypatch.setattr(source, "fetch", slow)
        work.write("a.txt", "alpha other words")
        feed.tell("a.txt")
        await asyncio.wait_for(read.wait(), 20)  # with the tags as they are now
        work.allow("a.txt", "board")
        feed.tell("a.txt", "attributes")
        await eventually(lambda: _not(index, "alpha", "bob"))
        go_on.set()
        deadline = time.monotonic() + 20
        while index._assembly.ledger.work.depth():
            assert await finds(index, "alpha", "bob") == []
            assert time.monotonic() < deadline
        assert await finds(index, "alpha", "bob") == []
        assert await finds(index, "alpha", "ada") == ["alpha other words"]
        assert not await index.verify()


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
        await eventually(lambda: _has(index, "beta", "beta words"))
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
