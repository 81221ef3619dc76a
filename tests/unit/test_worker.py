"""A worker: what a feed tells reaches the index once, in order and cheaply."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragstore.contracts import DropRows
from ragstore.errors import IndexLockedError, TransientError
from ragstore.ingest.changes import apply_changes
from ragstore.ingest.report import Clocked, SyncReport
from ragstore.models import Event
from tests.support.feeds import ScriptedFeed
from tests.support.following import finds, followed, following, settled, until
from tests.support.sources import Wrapped
from tests.support.workspace import Workspace, paragraphs


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return followed(tmp_path)


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


async def test_an_event_of_a_container_that_is_configured_no_more_deletes_nothing(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with work.open() as index:
        await index.follow(until_idle=True)
        known = next(iter(index._assembly.ledger.documents.known().values()))
        index._assembly.ledger.work.put([Event(blob=known.id, hint="content", moment=datetime.now(UTC))])
    (work.base / "other").mkdir()
    work.sections["source"] = {"type": "folder", "path": "other"}
    work.sections["guard"] = {"other_containers": "keep"}
    async with work.open() as index:
        await index.follow(until_idle=True)
        assert await finds(index, "alpha") == ["alpha words"]


async def test_rows_that_a_killed_worker_left_half_written_are_made_whole_when_the_blob_is_taken_again(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 4))
    async with work.open() as index:
        await index.follow(until_idle=True)
        ledger = index._assembly.ledger
        known = next(iter(ledger.documents.known().values()))
        state = await index._assembly.sources()[0].state("a.txt")
        assert state is not None
        lost = ledger.documents.chunks(known.document_id)[0].chunk_id
        store = index._assembly.store(index._assembly.configured())
        await store.apply([DropRows(document_id=known.document_id, generation=known.generation, chunk_ids=frozenset({lost}))])
        ledger.documents.mark_pending([state])
        await apply_changes(index._assembly.writing(), Clocked(SyncReport(), None), [known.id])
        assert not await index.verify()
