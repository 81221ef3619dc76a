"""One pass after another over a real folder: what is embedded, what is served, what is set aside, and what is never lost."""

import os
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, GuardError, IndexLockedError, TransientError
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


async def test_a_path_that_comes_back_after_its_deletion_is_indexed_again(work: Workspace) -> None:
    async with work.open() as index:
        for topic in ("alpha", "beta", "alpha"):
            work.write("a.txt", paragraphs(topic, 3))
            assert (await index.sync()).added == 1
            assert len(await texts(index, topic, "Bob")) == 3
            (work.docs / "a.txt").unlink()
            assert (await index.sync()).deleted == 1
            assert (await index.sync()).deleted == 0
            assert await texts(index, topic, "Bob") == []


async def test_a_move_back_and_forth_is_a_move_each_time(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3))
    work.allow("b.txt", "staff")
    async with work.open() as index:
        await index.sync()
        for old, new in (("a.txt", "b.txt"), ("b.txt", "a.txt"), ("a.txt", "b.txt")):
            (work.docs / old).rename(work.docs / new)
            report = await index.sync()
            assert (report.moved, report.chunks_embedded) == (1, 0)
            assert {hit.blob for hit in await found(index, "alpha", "Bob")} == {f"docs/{new}"}
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


async def test_a_folder_of_the_same_name_is_not_taken_for_the_one_that_was_indexed(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", "alpha words")
    async with work.open() as index:
        await index.sync()
    other = tmp_path / "other" / "docs"
    other.mkdir(parents=True)
    (other / "b.txt").write_text("beta words", encoding="utf-8")
    work.sections["source"] = {"type": "folder", "path": "other/docs"}
    async with work.open() as index:
        with pytest.raises(GuardError, match="two, give one of them another name"):
            await index.sync()
        assert await texts(index, "alpha", "Bob")
        report = await index.sync(allow_mass_delete=True)
        assert (report.added, report.deleted) == (1, 1)


@pytest.mark.parametrize(("others", "left"), [("delete", 1), ("keep", 2)])
async def test_a_source_that_is_configured_no_more_leaves_unless_it_is_to_be_kept(tmp_path: Path, others: str, left: int) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", "alpha words")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.txt").write_text("beta words", encoding="utf-8")
    docs = work.sections["source"]
    work.sections["source"] = [docs, {"type": "folder", "path": "more"}]
    async with work.open() as index:
        assert (await index.sync()).added == 2
    work.sections |= {"source": docs, "guard": {"other_containers": others}}
    async with work.open() as index:
        await index.sync()
        assert (await index.status())["blobs"] == left


async def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    (tmp_path / "x" / "docs").mkdir(parents=True)
    work.sections["source"] = [work.sections["source"], {"type": "folder", "path": "x/docs"}]
    async with work.open() as index:
        with pytest.raises(ConfigError, match="two sources are the container 'docs'"):
            await index.sync()


async def test_feeds_are_named_one_or_several_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for feed in ("listing", "watch", ["watch", "listing"]):
        work.sections["source"]["feed"] = feed
        async with work.open() as index:
            await index.sync()
    work.sections["source"]["feed"] = "gossip"
    async with work.open() as index:
        with pytest.raises(ConfigError, match="choose of listing, "):
            await index.sync()
    work.sections["source"] |= {"feed": "listing", "watch": {"poll": True}}
    async with work.open() as index:
        with pytest.raises(ConfigError, match="not followed"):
            await index.sync()


async def test_a_second_pass_from_another_index_object_is_refused_while_one_runs(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", "alpha words")
    async with work.open() as one, work.open() as other:
        with one._assembly.ledger.writing(), pytest.raises(IndexLockedError):
            await other.sync()
        assert (await other.sync()).added == 1
