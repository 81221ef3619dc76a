"""One pass after another over a real folder: what is embedded, what is served, what is set aside, and what is never lost."""

import os
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, EmbedderChangedError, GuardError, IndexLockedError, OutageError, TransientError
from ragstore.testing.faults import CrashingStore, SimulatedCrash
from tests.support.workspace import Workspace, found, paragraphs, texts


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, store=request.param)


async def test_an_edit_embeds_only_the_chunk_that_changed(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 20))
    async with work.open() as index:
        first = await index.sync()
        work.write("a.txt", paragraphs("alpha", 20).replace("number7", "number7 edited"))
        report = await index.sync()
        assert first.chunks_embedded == first.chunks >= 15
        assert (report.changed, report.chunks_embedded) == (1, 1)
        assert report.chunks_reused == report.chunks - 1
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_a_rename_a_copy_a_retag_and_a_pass_without_change_embed_nothing(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 8))
    work.write("b.txt", paragraphs("beta", 8))
    async with work.open() as index:
        await index.sync()
        before = len(work.embedded)
        (work.docs / "a.txt").rename(work.docs / "renamed.txt")
        work.allow("renamed.txt", "staff")
        moved = await index.sync()
        work.write("copy.txt", paragraphs("beta", 8))
        copied = await index.sync()
        work.allow("b.txt", "board")
        retagged = await index.sync()
        nothing = await index.sync()
        assert (moved.moved, moved.deleted, moved.added) == (1, 0, 0)
        assert (copied.added, copied.chunks) == (1, 8)
        assert (retagged.retagged, retagged.unchanged) == (1, 2)
        assert nothing.unchanged == 3
        assert len(work.embedded) == before
        assert (await found(index, "alpha subject3", "Bob"))[0].blob == "docs/renamed.txt"
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_a_touched_file_with_the_same_content_is_read_and_nothing_else(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 5))
    async with work.open() as index:
        await index.sync()
        os.utime(work.docs / "a.txt", (1, 1))
        report = await index.sync()
        assert (report.unchanged, report.changed, report.chunks) == (1, 0, 0)
        assert (await index.sync()).unchanged == 1


async def test_a_deleted_blob_is_found_no_more_and_its_copy_still_is(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3))
    work.write("copy.txt", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.txt").unlink()
        report = await index.sync()
        assert report.deleted == 1
        assert {hit.blob for hit in await found(index, "alpha", "Bob")} == {"docs/copy.txt"}
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_a_shorter_version_leaves_no_tail_of_the_longer_one(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 12))
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", paragraphs("alpha", 2))
        await index.sync()
        hits = await found(index, "alpha paragraph", "Bob", limit=50)
        assert len(hits) == 2
        assert (await index.status())["store"]["rows"] == 2


async def test_a_rollback_to_an_earlier_version_embeds_nothing(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 4))
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", paragraphs("beta", 4))
        await index.sync()
        before = len(work.embedded)
        work.write("a.txt", paragraphs("alpha", 4))
        await index.sync()
        assert len(work.embedded) == before
        assert all("alpha" in text for text in await texts(index, "alpha", "Bob"))


async def test_a_hit_stands_where_it_says_in_the_document(work: Workspace) -> None:
    text = paragraphs("alpha", 10)
    work.write("a.txt", text)
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", "A new first line.\n\n" + text)
        await index.sync()
        for hit in await found(index, "alpha", "Bob", limit=20):
            assert ("A new first line.\n\n" + text)[hit.start : hit.end] == hit.text


async def test_an_embedder_that_is_down_leaves_the_old_version_and_the_next_pass_mends_it(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 6))
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", paragraphs("beta", 6))
        work.embedder.fail()
        report = await index.sync()
        assert (report.failed, report.changed, report.is_clean) == (1, 0, False)
        hits = await found(index, "alpha", "Bob")
        assert hits
        assert all(hit.stale and "alpha" in hit.text for hit in hits)
        assert index.failures()[0]["kind"] == "transient"
        work.embedder.down = None
        report = await index.sync()
        assert (report.changed, report.failed) == (1, 0)
        assert all("beta" in hit.text and not hit.stale for hit in await found(index, "beta", "Bob"))
        assert index.failures() == []
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}


async def test_a_tag_taken_away_counts_at_once_even_where_the_new_content_cannot_be_embedded(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3), allow="staff")
    work.write("b.txt", paragraphs("beta", 3), allow="staff")
    async with work.open() as index:
        await index.sync()
        work.embedder.fail()
        work.write("a.txt", paragraphs("gamma", 3), allow="board")
        work.allow("b.txt", "board")
        assert (await index.sync()).failed == 1
        assert await texts(index, "alpha beta gamma", "Bob") == []
        # Ada could read the old version and can read the new one: she still gets the old.
        assert await texts(index, "alpha", "Ada")


async def test_attributes_of_the_old_version_do_not_open_under_the_tags_of_the_new_one(work: Workspace) -> None:
    work.write("a.txt", paragraphs("secret", 3), allow="board")
    async with work.open() as index:
        await index.sync()
        work.embedder.fail()
        work.write("a.txt", paragraphs("public", 3), allow="staff")
        await index.sync()
        assert await texts(index, "secret", "Bob") == []


async def test_a_refused_text_sets_only_its_own_blob_aside(work: Workspace) -> None:
    for name in "abc":
        work.write(f"{name}.txt", paragraphs(name * 3, 4))
    async with work.open() as index:
        parts = work.connectors
        await index.sync()
        work.write("a.txt", paragraphs("aaa", 4) + "\n\nunspeakable words")
        work.write("b.txt", paragraphs("bbb", 5))
        parts.embedders[-1].refused = ["unspeakable"]
        report = await index.sync()
        assert (report.quarantined, report.changed) == (1, 1)
        assert index.failures()[0] | {"since": "", "reason": ""} == {
            "blob": "docs/a.txt", "kind": "embedding_refused", "reason": "", "attempts": 1, "since": "",
        }  # fmt: skip
        assert {hit.blob for hit in await found(index, "paragraph", "Bob", limit=50)} == {"docs/b.txt", "docs/c.txt"}


async def test_a_blob_overwritten_by_what_cannot_be_parsed_serves_its_old_text_no_more(work: Workspace) -> None:
    work.write("a.md", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.md").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
        report = await index.sync()
        assert (report.quarantined, report.is_clean) == (1, False)
        assert await texts(index, "alpha", "Bob") == []
        again = await index.sync()
        assert (again.quarantined, again.unchanged) == (1, 0)
        assert index.failures()[0]["attempts"] == 1
        work.write("a.md", paragraphs("alpha", 3))
        assert (await index.sync()).quarantined == 0
        assert await texts(index, "alpha", "Bob")
        assert index.failures() == []


async def test_retry_tries_again_and_drop_reports_no_more_until_the_blob_changes(work: Workspace) -> None:
    (work.docs / "empty.txt").write_bytes(b"")
    async with work.open() as index:
        assert (await index.sync()).quarantined == 1
        assert index.retry_failures("docs/empty.txt") == 1
        await index.sync()
        assert index.failures()[0]["attempts"] == 2
        assert index.drop_failures() == 1
        assert index.failures() == []
        report = await index.sync()
        assert (report.quarantined, report.is_clean) == (0, True)
        (work.docs / "empty.txt").write_bytes(b" ")
        assert (await index.sync()).quarantined == 1


async def test_a_blob_over_the_size_limit_is_set_aside_unread(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.sections["source"]["max_bytes"] = 100
    work.write("small.txt", "small words")
    work.write("large.txt", "x" * 101)
    async with work.open() as index:
        report = await index.sync()
        assert (report.added, report.quarantined) == (1, 1)
        assert index.failures()[0]["kind"] == "too_large"
        assert (await index.sync()).quarantined == 1
        work.write("large.txt", "now small")
        assert (await index.sync()).added == 1


async def test_a_listing_that_lost_most_blobs_stops_before_anything_is_deleted(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for i in range(30):
        work.write(f"{i}.txt", f"document{i} words")
    async with work.open() as index:
        await index.sync()
        for i in range(25):
            (work.docs / f"{i}.txt").unlink()
        work.write("new.txt", "new words")
        with pytest.raises(GuardError, match="25 of 30"):
            await index.sync()
        assert (await index.status())["blobs"] == 30
        report = await index.sync(allow_mass_delete=True)
        assert (report.deleted, report.added) == (25, 1)


async def test_a_renamed_folder_is_no_mass_delete(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for i in range(30):
        work.write(f"old/{i}.txt", f"document{i} words")
        work.tags[f"new/{i}.txt"] = {"allow": "staff"}
    work.save_tags()
    async with work.open() as index:
        await index.sync()
        (work.docs / "old").rename(work.docs / "new")
        report = await index.sync()
        assert (report.moved, report.deleted, report.chunks_embedded) == (30, 0, 0)


async def test_deletes_that_looked_like_moves_by_size_are_stopped_when_the_content_speaks(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for i in range(30):
        work.write(f"old/{i}.txt", f"document{i:02} words")
    async with work.open() as index:
        await index.sync()
        for i in range(30):
            (work.docs / f"old/{i}.txt").unlink()
            work.write(f"new/{i}.txt", f"another_{i:02} words")
        with pytest.raises(GuardError):
            await index.sync()
        assert "docs/old/3.txt" in {hit.blob for hit in await found(index, "document03", "Bob")}


async def test_a_missing_folder_is_an_error_and_deletes_nothing(work: Workspace) -> None:
    work.write("a.txt", "alpha words")
    async with work.open() as index:
        await index.sync()
        work.docs.rename(work.base / "elsewhere")
        with pytest.raises((ConfigError, TransientError)):
            await index.sync()
        assert (await index.status())["blobs"] == 1


async def test_a_second_pass_from_another_index_object_is_refused_while_one_runs(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", "alpha words")
    async with work.open() as one, work.open() as other:
        with one._assembly.ledger.writing(), pytest.raises(IndexLockedError):
            await other.sync()
        assert (await other.sync()).added == 1


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
        report = await index.sync()
        assert len(work.embedded) == before
        assert report.chunks == 0
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
