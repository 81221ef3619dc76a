"""The name of a blob in; an index without a byte of it, and the proof that it is so, out."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import Expunged
from ragstore.errors import ConfigError, GuardError, IndexLockedError
from ragstore.index import AsyncIndex
from ragstore.ingest.traces import Traces, traced
from ragstore.models import BlobId, Event, chunk_id, text_hash
from ragstore.testing.faults import CrashingStore, SimulatedCrash
from tests.support.workspace import Workspace, found, paragraphs, texts

CLEAN: dict[str, list[str]] = {"missing": [], "stale": [], "orphaned": []}
NOTHING = dict.fromkeys(["rows", "ledger", "chunks", "queued", "failures", "cached_vectors", "unused_texts", "turns", "spool_files"], 0)
ALPHA = BlobId(account="local", container="docs", path="alpha.txt")


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return with_two_blobs(Workspace(tmp_path, store=request.param))


@pytest.fixture
def lance(tmp_path: Path) -> Workspace:
    return with_two_blobs(Workspace(tmp_path, store="lancedb"))


def with_two_blobs(work: Workspace) -> Workspace:
    for topic in ("alpha", "beta"):
        work.write(f"{topic}.txt", paragraphs(topic, 6))
    return work


async def indexed_and_deleted(work: Workspace, index: AsyncIndex, path: str = "alpha.txt") -> None:
    await index.sync()
    (work.docs / path).unlink()


def on_disk(work: Workspace) -> bytes:
    places = [work.base / "index", work.base / ".ragstore"]
    return b"".join(file.read_bytes() for place in places for file in sorted(place.rglob("*")) if file.is_file())


async def test_a_purged_blob_is_nowhere_and_every_other_answers_as_before(work: Workspace) -> None:
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        before = await texts(index, "beta subject3", "Bob")
        done = await index.purge("docs/alpha.txt")
        assert (done.blob, done.in_source, done.left, done.found) == (ALPHA, False, [], NOTHING)
        assert {kind: done.removed[kind] for kind in ("rows", "ledger", "chunks", "cached_vectors")} == {
            "rows": 6, "ledger": 1, "chunks": 6, "cached_vectors": 6,
        }  # fmt: skip
        assert done.samples >= 10
        assert [text for text in await texts(index, "beta subject3", "Bob") if "alpha" in text] == []
        assert set(before) >= set(await texts(index, "beta subject3", "Bob")) != set()
        assert (await index.verify()).as_dict() == CLEAN
        embedded = len(work.embedded)
        assert (await index.sync()).unchanged == 1
        assert len([text for text in work.embedded[embedded:] if "paragraph" in text]) == 0


async def test_no_file_of_the_index_holds_a_trace(lance: Workspace) -> None:
    words = paragraphs("alpha", 6).split("\n\n")
    async with lance.open() as index:
        await index.sync()
        lance.write("alpha.txt", paragraphs("alpha", 6) + "\n\none more paragraph that names zyxwvut, who wants to be forgotten")
        await index.sync()
        (lance.docs / "alpha.txt").unlink()
        ids = [record.chunk_id for record in index._assembly.ledger.documents.chunks(ALPHA.document_id)]
        done = await index.purge("docs/alpha.txt")
    assert (done.left, done.files > 5) == ([], True)
    content = on_disk(lance)
    for trace in ("alpha.txt", "zyxwvut", ALPHA.document_id, *ids, *map(text_hash, words)):
        assert trace.encode() not in content, trace
    assert b"beta.txt" in content


async def test_vectors_of_earlier_versions_and_of_a_blob_that_is_deleted_already_go_as_well(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
        work.write("alpha.txt", paragraphs("gamma", 4))
        await index.sync()
        (work.docs / "alpha.txt").unlink()
        await index.sync()
        assert (await index.status())["cached_vectors"] == 16
        done = await index.purge("docs/alpha.txt")
        assert (done.removed["cached_vectors"], done.removed["unused_texts"], done.left) == (10, 10, [])
        assert (await index.status())["cached_vectors"] == 6
        with pytest.raises(ConfigError, match="holds nothing"):
            await index.purge("docs/alpha.txt")


async def test_what_a_copy_has_as_well_stays(work: Workspace) -> None:
    work.write("copy.txt", paragraphs("alpha", 6))
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        done = await index.purge("docs/alpha.txt")
        assert (done.removed["cached_vectors"], done.left) == (0, [])
        assert {hit.blob for hit in await found(index, "alpha subject3", "Bob", limit=5)} >= {"docs/copy.txt"}
        assert (await index.verify()).as_dict() == CLEAN


async def test_a_blob_that_is_still_in_its_source_is_left_alone_unless_forced(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
        with pytest.raises(GuardError, match=r"still in its source.*--force"):
            await index.purge("docs/alpha.txt")
        assert (await found(index, "alpha subject3", "Bob"))[0].blob == "docs/alpha.txt"
        done = await index.purge("docs/alpha.txt", force=True)
        assert (done.in_source, done.left) == (True, [])
        assert "docs/alpha.txt" not in {hit.blob for hit in await found(index, "alpha subject3", "Bob")}
        report = await index.sync()
        assert (report.added, report.chunks_embedded) == (1, 6)


async def test_a_blob_that_is_left_out_by_the_configuration_may_be_purged(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
    work.sections["source"]["exclude"] = ["alpha*"]
    async with work.open() as index:
        assert (await index.purge("docs/alpha.txt")).left == []
        assert (await index.sync()).added == 0


async def test_the_quarantine_the_queue_and_the_spool_hold_nothing_either(work: Workspace) -> None:
    work.write("broken.pdf", "%PDF-1.4 and then nothing")
    async with work.open() as index:
        await indexed_and_deleted(work, index, "broken.pdf")
        ledger = index._assembly.ledger
        broken = BlobId(account="local", container="docs", path="broken.pdf")
        moved = BlobId(account="local", container="docs", path="moved.pdf")
        ledger.work.put([Event(blob=moved, hint="content", moment=datetime.now(UTC), came_from="broken.pdf")])
        spool = work.base / ".ragstore" / "spool"
        spool.mkdir(exist_ok=True)
        (spool / "part-0000").write_bytes(b"left by a run that was killed")
        done = await index.purge("docs/broken.pdf")
        assert {kind: number for kind, number in done.removed.items() if number} == {
            "ledger": 1, "queued": 1, "failures": 1, "spool_files": 1,
        }  # fmt: skip
        assert (done.left, done.found, index.failures(), list(spool.iterdir())) == ([], NOTHING, [], [])
        assert ledger.work.queued([broken.document_id, moved.document_id]) == {moved.document_id}
    assert b"broken.pdf" not in on_disk(work)


async def test_an_event_that_is_told_again_does_no_harm(lance: Workspace) -> None:
    lance.sections["source"]["feed"] = "watch"
    async with lance.open() as index:
        await indexed_and_deleted(lance, index)
        await index.purge("docs/alpha.txt")
        hints: list[Any] = ["content", "gone", "attributes"]
        for hint in hints:
            index._assembly.ledger.work.put([Event(blob=ALPHA, hint=hint, moment=datetime.now(UTC))])
            await index.follow(until_idle=True)
        assert index._assembly.ledger.documents.get(ALPHA.document_id) is None
        assert (await index.verify()).as_dict() == CLEAN


async def test_a_name_is_understood_with_its_account_and_asked_for_where_it_means_several(tmp_path: Path) -> None:
    work = with_two_blobs(Workspace(tmp_path))
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        ledger = index._assembly.ledger
        other = BlobId(account="elsewhere", container="docs", path="alpha.txt")
        ledger.work.put([Event(blob=other, hint="content", moment=datetime.now(UTC))])
        for unknown in ("docs/nothing.txt", "alpha.txt", "", "/", "local/docs/", "docs/alpha", "docs/a\udcff"):
            with pytest.raises(ConfigError, match="holds nothing"):
                await index.purge(unknown)
        with pytest.raises(ConfigError, match=r"'elsewhere/docs/alpha\.txt', 'local/docs/alpha\.txt'"):
            await index.purge("docs/alpha.txt")
        assert (await index.purge("elsewhere/docs/alpha.txt")).removed["queued"] == 1
        assert (await index.purge("docs/alpha.txt")).removed["chunks"] == 6


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_purge_that_crashed_shows_nothing_and_is_finished_by_the_next(lance: Workspace, when: str) -> None:
    async with lance.open() as index:
        await indexed_and_deleted(lance, index)

    def crash(_writes: object) -> None:
        raise SimulatedCrash

    def go_on(_writes: object) -> None:
        return

    lance.connectors.wrapper = lambda store: CrashingStore(
        store, before=crash if when == "before" else go_on, after=crash if when == "after" else go_on
    )
    async with lance.open() as index:
        with pytest.raises(SimulatedCrash):
            await index.purge("docs/alpha.txt")
        assert "docs/alpha.txt" not in {hit.blob for hit in await found(index, "alpha subject3", "Bob")}
    lance.connectors.wrapper = lambda store: store
    async with lance.open() as index:
        assert (await index.purge("docs/alpha.txt")).left == []
        assert (await index.verify()).as_dict() == CLEAN
    assert b"alpha.txt" not in on_disk(lance)


async def test_a_crash_between_the_ledger_and_its_file_is_finished_by_the_next(lance: Workspace) -> None:
    async with lance.open() as index:
        await indexed_and_deleted(lance, index)
        erasures = index._assembly.ledger.erasures
        erasures.begin(ALPHA.document_id)
        erasures.erase(ALPHA)  # the process would be gone now
        assert (await index.purge("docs/alpha.txt")).left == []
        assert (await index.verify()).as_dict() == CLEAN
        with pytest.raises(ConfigError, match="holds nothing"):
            await index.purge("docs/alpha.txt")
    assert b"alpha.txt" not in on_disk(lance)


async def test_what_a_reader_holds_back_is_told_and_goes_with_the_next_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.ledger.sqlite._READERS_MAY_TAKE", 50)
    work = with_two_blobs(Workspace(tmp_path))
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        reader = sqlite3.connect(work.base / ".ragstore" / "ledger.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM blobs").fetchall()
        done = await index.purge("docs/alpha.txt")
        assert any("another process reads" in left for left in done.left), done.left
        assert any("holds" in left for left in done.left), done.left
        reader.close()
        assert (await index.purge("docs/alpha.txt")).left == []


class Keeping(CrashingStore):
    """A store that cannot remove what is old."""

    @override
    async def expunge(self) -> Expunged:
        return Expunged(older=("version 7",))


async def test_what_the_store_keeps_is_told(tmp_path: Path) -> None:
    work = with_two_blobs(Workspace(tmp_path))
    work.connectors.wrapper = lambda store: Keeping(store, before=lambda _: None, after=lambda _: None)
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        assert (await index.purge("docs/alpha.txt")).left == ["version 7 is from before the erasure, and could not be removed"]
        assert (await index.purge("docs/alpha.txt")).left, "and it is still known by its name"


async def test_another_process_that_writes_is_not_disturbed(tmp_path: Path) -> None:
    work = with_two_blobs(Workspace(tmp_path))
    async with work.open() as index, work.open() as other:
        await indexed_and_deleted(work, index)
        with other._assembly.ledger.writing(), pytest.raises(IndexLockedError):
            await index.purge("docs/alpha.txt")


async def test_traces_are_found_over_the_borders_of_blocks_and_not_where_another_blob_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragstore.ingest.traces._BLOCK", 64)
    digest = chunk_id(ALPHA.document_id, text_hash("x"), 0).encode()
    traces = Traces(texts={b"a text of twenty-four bytes": "a text of it"}, digests={digest: "a chunk id of it"})
    files = [tmp_path / name for name in ("digest", "text", "neither", "gone")]
    files[0].write_bytes(os.urandom(50) + digest + os.urandom(70))
    files[1].write_bytes(b"-" * 40 + b"a text of twenty-four bytes")
    files[2].write_bytes(os.urandom(300))
    assert await traced(files, [], traces, []) == {files[0]: "a chunk id of it", files[1]: "a text of it"}
    work = Workspace(tmp_path)
    work.write("quote.txt", "who quotes it has it: a text of twenty-four bytes, as it was")
    async with work.open() as index:
        await index.sync()
        assert await traced(files[:1], files[1:], traces, index._assembly.places().stores) == {files[0]: "a chunk id of it"}


async def test_purging_works_in_postgresql_and_waits_for_the_workers_to_be_stopped(tmp_path: Path, postgres_url: str) -> None:
    work = with_two_blobs(Workspace(tmp_path, store="lancedb", ledger={"url": postgres_url}))
    async with work.open() as index:
        await indexed_and_deleted(work, index)
        ledger = index._assembly.ledger
        ledger.work.put([Event(blob=ALPHA, hint="gone", moment=datetime.now(UTC))])
        (taken,) = ledger.work.take("another worker", 1, 60.0)
        with pytest.raises(GuardError, match="Stop all workers"):
            await index.purge("docs/alpha.txt")
        ledger.work.release([taken])
        done = await index.purge("docs/alpha.txt")
        assert (done.left, done.found) == ([], NOTHING)
        assert {kind: done.removed[kind] for kind in ("rows", "chunks", "queued", "cached_vectors")} == {
            "rows": 6, "chunks": 6, "queued": 1, "cached_vectors": 6,
        }  # fmt: skip
        assert (await index.verify()).as_dict() == CLEAN


async def test_who_erased_something_still_holds_the_ledger(lance: Workspace) -> None:
    """One that closes the file by itself loses its locks: the next process then throws away the log, and with it what is written next."""
    async with lance.open() as index:
        await indexed_and_deleted(lance, index)
        await index.purge("docs/alpha.txt")
        ledger = lance.base / ".ragstore" / "ledger.db"
        look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sqlite_master').fetchone(); c.close()"
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", look, str(ledger)], check=True)
        assert "ledger.db-wal" in {file.name for file in ledger.parent.iterdir()}
