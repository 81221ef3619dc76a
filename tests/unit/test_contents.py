"""An index over documents with different readers in; what `contents` tells each principal, which is what a search may show, out."""

from __future__ import annotations

from pathlib import Path

from tests.support.workspace import Workspace, found, paragraphs


async def test_contents_are_the_blobs_and_chunks_that_searches_may_show(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("plan.txt", paragraphs("merger", 3), allow="board")
    workspace.write("soup.txt", paragraphs("recipe", 2), allow="staff")
    async with workspace.open() as index:
        await index.sync()
        shown = {who: await index.contents(principal=index.principal(who)) for who in ("ada", "bob", "eve")}
        searched = {who: {hit.chunk for hit in await found(index, "paragraph", who, limit=100)} for who in shown}
    assert list(shown["ada"]) == ["docs/plan.txt", "docs/soup.txt"]
    assert list(shown["bob"]) == ["docs/soup.txt"]
    assert shown["eve"] == {}
    assert {who: {chunk for chunks in blobs.values() for chunk in chunks} for who, blobs in shown.items()} == searched


async def test_what_was_taken_away_or_deleted_is_no_longer_in_the_contents(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt"):
        workspace.write(name, f"the text of {name}")
    async with workspace.open() as index:
        await index.sync()
        workspace.allow("a.txt", "board")
        (workspace.docs / "b.txt").unlink()
        await index.sync()
        assert list(await index.contents(principal=index.principal("bob"))) == ["docs/c.txt"]


async def test_chunks_are_in_document_order(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("long.txt", paragraphs("tides", 5))
    async with workspace.open() as index:
        await index.sync()
        bob = index.principal("bob")
        hits = [await index.chunk(chunk, principal=bob) for chunk in (await index.contents(principal=bob))["docs/long.txt"]]
    starts = [hit.start for hit in hits if hit is not None]
    assert len(starts) == len(hits) > 3
    assert starts == sorted(starts)
