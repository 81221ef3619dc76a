"""Passes after something other than a blob has changed: embedder, chunk size, policy, store; and hostile values on the whole path."""

import asyncio
import os
from pathlib import Path

import pytest

from ragstore.contracts import TextQuery, VectorQuery
from ragstore.errors import ConfigError, EmbedderChangedError, OutageError, TransientError
from ragstore.filters import Filter
from ragstore.models import Match
from ragstore.testing.faults import CrashingStore, SimulatedCrash
from tests.support.workspace import Workspace, found, paragraphs, texts


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, store=request.param)


async def test_another_embedder_stops_the_pass_and_says_what_it_would_cost(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 5))
    async with work.open() as index:
        await index.sync()
    work.sections["embedder"] = {"type": "hash", "dimensions": 32, "model": "other"}
    async with work.open() as index:
        with pytest.raises(EmbedderChangedError, match=r"5 chunks.*--reembed"):
            await index.sync()
        assert await texts(index, "alpha", "Bob"), "the old vectors serve until the new ones are complete"
        report = await index.sync(reembed=True)
        assert report.chunks_embedded == 5
        assert len(work.embedded) == 10
        assert len(await texts(index, "alpha", "Bob")) == 5
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_another_embedder_needs_no_consent_where_nothing_is_embedded_yet(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()  # an empty folder, or a first pass that failed
    work.write("a.txt", paragraphs("alpha", 2))
    work.sections["embedder"] = {"type": "hash", "dimensions": 32, "model": "other"}
    async with work.open() as index:
        assert (await index.sync()).chunks_embedded == 2
        assert await texts(index, "alpha", "Bob")


async def test_the_way_back_from_another_embedder_is_told_with_all_options(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    work.sections["embedder"] = {"type": "hash", "dimensions": 48}
    async with work.open() as index:
        await index.sync()
    work.sections["embedder"] = {"type": "hash"}
    async with work.open() as index:
        with pytest.raises(EmbedderChangedError, match=r'\{type = "hash", dimensions = 48\} again'):
            await index.sync()


async def test_a_re_embedding_that_was_cut_short_pays_nothing_twice(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 5))
    work.write("b.txt", paragraphs("beta", 5))
    async with work.open() as index:
        await index.sync()
    work.sections["embedder"] = {"type": "hash", "model": "other"}

    def crash(_writes: object) -> None:
        raise SimulatedCrash

    work.connectors.wrapper = lambda store: CrashingStore(store, before=lambda _: None, after=crash)
    async with work.open() as index:
        with pytest.raises(SimulatedCrash):
            await index.sync(reembed=True)
        assert len(await texts(index, "alpha", "Bob", limit=50)) == 10
    assert len(work.embedded) > 10
    work.connectors.wrapper = lambda store: store
    async with work.open() as index:
        await index.sync(reembed=True)
        assert len(work.embedded) == 20


async def test_another_chunk_size_cuts_again_and_leaves_nothing_behind(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 10))
    async with work.open() as index:
        await index.sync()
    work.sections["chunking"] = {"size": 100}
    async with work.open() as index:
        report = await index.sync()
        assert report.changed == 1
        assert 0 < (await index.status())["store"]["rows"] < 10
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_another_policy_retags_every_blob_without_reading_content(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3), allow="board")
    (work.base / "rules.toml").write_text('"**" = ["staff"]', encoding="utf-8")
    async with work.open() as index:
        await index.sync()
        assert await texts(index, "alpha", "Bob") == []
    work.sections["access"] = {"mode": "groups", "rules": "rules.toml", "principals": "principals.json"}
    before = len(work.embedded)
    async with work.open() as index:
        plan, report = await index.plan(), await index.sync()
        assert len(work.embedded) == before
        assert (report.chunks, report.retagged, plan.retagged) == (0, 1, 1)
        assert len(await texts(index, "alpha", "Bob")) == 3


async def test_an_id_that_does_not_parse_grants_nothing_and_is_reported(work: Workspace) -> None:
    work.write("a.txt", "alpha words", allow="'OR'1'='1")
    async with work.open() as index:
        report = await index.sync()
        assert any("docs/a.txt" in warning for warning in report.warnings)
        assert await texts(index, "alpha", "Bob") == []


async def test_rows_that_the_store_lost_are_found_missing_and_repaired_without_embedding(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 4))
    work.write("b.txt", paragraphs("beta", 4))
    async with work.open() as index:
        await index.sync()
        before = len(work.embedded)
        holding = index._assembly.holding()
        assert holding is not None
        await index._assembly.store(holding).drop()
        assert len((await index.verify()).missing) == 8
        assert not await index.verify(repair=True)
        assert len(work.embedded) == before
        assert len(await texts(index, "alpha", "Bob", limit=50)) == 8


async def test_plan_tells_what_the_pass_will_do_and_changes_nothing(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 6))
    work.write("b.txt", paragraphs("beta", 6))
    work.write("gone.txt", paragraphs("gone", 6))
    work.write("old.txt", paragraphs("delta", 6))
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", paragraphs("alpha", 7))
        work.allow("b.txt", "board")
        (work.docs / "gone.txt").unlink()
        (work.docs / "old.txt").rename(work.docs / "moved.txt")
        work.write("new.txt", paragraphs("gamma", 5))
        (work.docs / "broken.docx").write_bytes(b"PK\x03\x04 not a document")
        plan, again = await index.plan(), await index.plan()
        assert plan.as_dict() | {"seconds": 0} == again.as_dict() | {"seconds": 0}
        report = await index.sync()
        names = (
            "blobs", "added", "changed", "retagged", "moved", "deleted", "unchanged", "quarantined", "chunks", "chunks_embedded", "tokens",
        )  # fmt: skip
        assert {name: getattr(plan, name) for name in names} == {name: getattr(report, name) for name in names}
        assert report.moved == 1


async def test_whoever_may_only_read_the_index_can_search_verify_and_plan(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("a.txt", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
    state, real = work.base / ".ragstore", os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode == os.W_OK and Path(path).is_relative_to(state)) and real(path, mode))
    before = {file: file.stat().st_mtime_ns for file in state.rglob("*")}
    work.write("b.txt", paragraphs("beta", 2))
    async with work.open() as index:
        assert (await index.plan()).added == 1
        assert len(await texts(index, "alpha", "Bob")) == 3
        assert (await index.verify()).missing == ["docs/b.txt"]
        with pytest.raises(ConfigError, match="may not be written"):
            await index.sync()
    assert {file: file.stat().st_mtime_ns for file in state.rglob("*")} == before


async def test_a_store_that_is_down_ends_the_pass_and_nothing_is_lost(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 4))

    def down(_writes: object) -> None:
        raise TransientError("no route to the store")

    work.connectors.wrapper = lambda store: CrashingStore(store, before=down, after=lambda _: None)
    async with work.open() as index:
        with pytest.raises(OutageError, match="no route to the store"):
            await index.sync()
    paid = len(work.embedded)
    work.connectors.wrapper = lambda store: store
    async with work.open() as index:
        assert (await index.sync()).added == 1
        assert len(work.embedded) == paid


async def test_a_document_longer_than_any_group_is_swapped_as_a_whole(work: Workspace) -> None:
    work.write("long.txt", paragraphs("alpha", 1500))
    async with work.open() as index:
        report = await index.sync()
        assert report.chunks >= 1500
        text = paragraphs("alpha", 1500).replace("number700 ", "number700 edited ")
        work.write("long.txt", text)
        report = await index.sync()
        assert 1 <= report.chunks_embedded <= 3
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


@pytest.mark.parametrize("value", ["' OR '1'='1", '"', "%", "\\", "$ne", "😀" * 50, "x" * 10_000, "a\0b", "\ud800"])
async def test_hostile_values_are_data_in_path_tag_and_filter(work: Workspace, value: str) -> None:
    name = value.replace("\0", "").replace("/", "")[:60].encode("utf-8", "replace").decode()
    work.write(f"{name}.txt", "alpha words")
    work.tags[f"{name}.txt"] = {"allow": f"staff {value}", "hostile": value}
    work.save_tags()
    async with work.open() as index:
        report = await index.sync()
        assert report.added == 1
        quoted = value.replace("'", "''")
        if "\0" not in value and len(value) < 5000:
            assert [hit.blob for hit in await found(index, "alpha", "Bob", filter=f"tag.hostile = '{quoted}'")] == [f"docs/{name}.txt"]
        assert await texts(index, "alpha", "Bob", filter=f"tag.hostile = 'x{quoted[:100]}'") == []
        assert await texts(index, value.replace("\0", "") or "x", "Eve") == []
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_a_search_before_the_first_pass_says_what_to_run(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    async with work.open() as index:
        with pytest.raises(ConfigError, match="ragstore index"):
            await texts(index, "alpha", "Bob")


async def test_an_unknown_principal_is_an_error(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    async with work.open() as index:
        for name in ("Mallory", None, ""):
            with pytest.raises(ConfigError):
                index.principal(name)


async def test_no_spool_file_is_left_behind(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", "alpha words")
    (work.docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    async with work.open() as index:
        await index.sync()
        await index.plan()
    assert [file for file in (tmp_path / ".ragstore").rglob("*") if file.name.startswith("part-")] == []
    assert list((tmp_path / ".ragstore").glob("plan-*")) == []


async def test_a_search_that_loses_its_collection_to_a_re_embedding_is_answered_from_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Workspace(tmp_path, store="lancedb")
    work.write("a.txt", paragraphs("alpha", 3))
    async with work.open() as reader, work.open() as first:
        await first.sync()
        assert len(await texts(reader, "alpha", "Bob")) == 3
        work.sections["embedder"] = {"type": "hash", "model": "other"}
        _, store = reader._assembly.reading()
        search, replacing, reports = store.search, asyncio.Lock(), []

        async def losing(query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
            async with replacing, work.open() as writer:
                reports.append(await writer.sync(reembed=True))
            return await search(query, filter=filter, limit=limit)

        monkeypatch.setattr(store, "search", losing)  # between choosing a collection and asking it
        assert len(await texts(reader, "alpha", "Bob")) == 3
        assert [report.chunks_embedded for report in reports] == [3, 0]


async def test_the_failure_of_a_blob_that_is_gone_ends_also_where_a_crash_hits_its_delete(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    (work.docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    async with work.open() as index:
        await index.sync()
        assert [failure["blob"] for failure in index.failures()] == ["docs/bad.pdf"]
    (work.docs / "bad.pdf").unlink()

    def crash(_writes: object) -> None:
        raise SimulatedCrash

    work.connectors.wrapper = lambda store: CrashingStore(store, before=crash, after=lambda _: None)
    async with work.open() as index:
        with pytest.raises(SimulatedCrash):
            await index.sync()
    work.connectors.wrapper = lambda store: store
    async with work.open() as index:
        await index.sync()
        assert index.failures() == []
