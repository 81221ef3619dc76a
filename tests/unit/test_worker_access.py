"""A worker and who may read: a change of tags or of the policy is applied first, and none comes back with older content."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from ragstore.errors import AccessError
from ragstore.models import FetchedBlob
from ragstore.worker import worker
from ragstore.worker.state import read_state
from tests.support.following import eventually, finds, followed, following, has, has_nothing, is_in_step, settled, until
from tests.support.workspace import Workspace


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return followed(tmp_path)


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


async def test_access_is_taken_away_while_the_content_of_the_blob_waits_to_be_read(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with following(work) as (index, feed, _source):
        await until(lambda: not index._assembly.ledger.work.depth())
        work.embedder.fail()
        work.write("a.txt", "other words")
        feed.tell("a.txt")
        await eventually(lambda: has(index, "alpha", "alpha words"))
        await until(lambda: bool(index._assembly.ledger.quarantine.all()))
        assert await finds(index, "alpha", "bob") == ["alpha words"], "the old version serves while the embedder is down"
        work.allow("a.txt", "board")
        feed.tell("a.txt", "attributes")
        await eventually(lambda: has_nothing(index, "words", "bob"))
        assert work.embedder.down is not None
        work.embedder.down = None
        await settled(index, feed)
        assert await finds(index, "words", "bob") == []
        assert await finds(index, "words", "ada") == ["other words"]


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
        await eventually(lambda: has_nothing(index, "alpha", "bob"))
        go_on.set()
        deadline = time.monotonic() + 20
        while index._assembly.ledger.work.depth():
            assert await finds(index, "alpha", "bob") == []
            assert time.monotonic() < deadline
        assert await finds(index, "alpha", "bob") == []
        assert await finds(index, "alpha", "ada") == ["alpha other words"]
        assert not await index.verify()


async def test_a_policy_that_cannot_be_read_for_a_while_is_waited_for_and_shows_nothing_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_BEAT_SECONDS", 0.05)
    rules = tmp_path / "rules.toml"
    rules.write_text('"*" = ["staff"]\n')
    work = followed(tmp_path, access={"mode": "groups", "rules": "rules.toml", "principals": "principals.json"})
    work.write("a.txt", "alpha words", allow=None)
    async with following(work) as (index, feed, _source):
        ledger = index._assembly.ledger

        def ails() -> bool:
            state = read_state(ledger)
            return state is not None and "rules.toml" in str(state["outages"])

        await until(lambda: not ledger.work.depth())
        rules.write_text('"*" = ["half a li')
        await until(ails)
        work.write("b.txt", "alpha news", allow=None)
        feed.tell("b.txt")
        await until(lambda: ledger.cursors.get(feed.name) == str(len(feed.events)))
        with pytest.raises(AccessError):
            await finds(index, "alpha", "bob")
        rules.write_text('"*" = ["board"]\n')
        await eventually(lambda: has(index, "alpha", "alpha news"))
        await until(lambda: not ails())
        assert await finds(index, "alpha", "bob") == []
        await eventually(lambda: is_in_step(index))
