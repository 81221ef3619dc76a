"""An index whose rows were written with other terms in; rows with those by which queries look for them now out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ragstore.contracts import PutRows, Write
from ragstore.errors import OutageError, TransientError
from ragstore.ingest import parts
from ragstore.testing.faults import CrashingStore
from ragstore_lancedb import schema
from tests.support.workspace import Workspace

NOTHING: dict[str, list[str]] = {"missing": [], "stale": [], "orphaned": []}


async def by_words(work: Workspace, query: str) -> list[str]:
    async with work.open() as index:
        return [hit.blob for hit in await index.search(query, principal=index.principal("Bob"), legs="text")]


async def indexed_before(tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path, store="lancedb")
    work.write("a.txt", "The cellar keys are with the night porter.")
    work.write("b.txt", "Nobody knows where the boathouse is.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "row_text", lambda text: " ".join(f"old{word}" for word in text.split()))
        patch.setattr(parts, "_TERMS", "")  # as the ledger says of rows from before there was a version
        async with work.open() as index:
            await index.sync()
        assert await by_words(work, "boathouse") == []
    return work


async def test_rows_get_the_terms_of_now_with_the_next_pass_and_nothing_is_embedded(tmp_path: Path) -> None:
    work = await indexed_before(tmp_path)
    paid = len(work.embedded)
    async with work.open() as index:
        assert (await index.plan()).as_dict()["changed"] == 2
        report = await index.sync()
        assert (report.changed, report.chunks_embedded) == (2, 0)
        assert (await index.verify()).as_dict() == NOTHING
        assert (await index.sync()).changed == 0
    assert len(work.embedded) == paid
    assert await by_words(work, "boathouses") == ["docs/b.txt"]
    assert await by_words(work, "cellar key") == ["docs/a.txt"]


async def test_a_store_that_fails_half_way_leaves_every_text_to_be_found_and_the_next_pass_goes_on(tmp_path: Path) -> None:
    work = await indexed_before(tmp_path)

    def down(writes: Sequence[Write]) -> None:
        if any(isinstance(write, PutRows) for write in writes):
            raise TransientError("no route to the store")

    work.connectors.wrapper = lambda store: CrashingStore(store, before=lambda _: None, after=down)
    async with work.open() as index:
        with pytest.raises(OutageError):
            await index.sync()
    work.connectors.wrapper = lambda store: store
    (work.docs / "b.txt").unlink()
    async with work.open() as index:
        await index.sync()
        assert (await index.verify()).as_dict() == NOTHING
    assert await by_words(work, "boathouses") == []
    assert await by_words(work, "cellar key") == ["docs/a.txt"]


async def test_a_blob_that_moves_with_rows_of_older_terms_is_found_by_those_of_now(tmp_path: Path) -> None:
    work = await indexed_before(tmp_path)
    (work.docs / "b.txt").rename(work.docs / "c.txt")
    work.allow("c.txt", "staff")
    paid = len(work.embedded)
    async with work.open() as index:
        await index.sync()
        await index.sync()
        assert (await index.verify()).as_dict() == NOTHING
    assert len(work.embedded) == paid
    assert await by_words(work, "boathouses") == ["docs/c.txt"]
