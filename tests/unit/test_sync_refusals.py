"""A store that will not take what one blob needs: that blob is set aside with the reason, and all others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ragstore.contracts import PutRows, Retag, Store, Write
from ragstore.errors import PoisonError
from ragstore.testing.faults import CrashingStore
from tests.support.workspace import Workspace, found, paragraphs, texts


def crowded(writes: Sequence[Write]) -> None:
    """As a store does whose records have no room for more than two readers."""
    for write in writes:
        columns = [row.access for row in write.rows] if isinstance(write, PutRows) else [write.access] if isinstance(write, Retag) else []
        for access in columns:
            if len(access.allowed) > 2:
                raise PoisonError("too_large", f"{len(access.allowed)} readers are more than a record holds")


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    def wrap(store: Store) -> Store:
        return CrashingStore(store, before=crowded, after=lambda _writes: None)

    work = Workspace(tmp_path)
    work.connectors.wrapper = wrap
    return work


async def test_a_blob_that_the_store_refuses_is_quarantined_and_the_others_are_indexed(work: Workspace) -> None:
    for name, allow in (("a.txt", "staff"), ("crowd.txt", "staff one two"), ("z.txt", "staff")):
        work.write(name, paragraphs(name.partition(".")[0], 3), allow=allow)
    async with work.open() as index:
        report = await index.sync()
        assert (report.added, report.quarantined) == (2, 1)
        assert [(failure["blob"], failure["kind"]) for failure in index.failures()] == [("docs/crowd.txt", "too_large")]
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/a.txt", "docs/z.txt"}
        assert not await index.verify()
        again = await index.sync()
        assert (again.unchanged, again.quarantined, again.chunks_embedded) == (2, 1, 0)


async def test_a_blob_of_many_groups_of_chunks_is_refused_as_a_whole(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.ingest.swap._ROWS", 4)
    monkeypatch.setattr("ragstore.ingest.content._GROUP", 2)
    work.write("crowd.txt", paragraphs("crowd", 30), allow="staff one two")
    work.write("z.txt", paragraphs("omega", 3))
    async with work.open() as index:
        report = await index.sync()
        assert (report.added, report.quarantined) == (1, 1)
        assert not await index.verify()


async def test_new_readers_that_do_not_fit_take_the_blob_out_of_every_answer(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 3), allow="staff")
    work.write("b.txt", paragraphs("beta", 3), allow="staff")
    async with work.open() as index:
        await index.sync()
        work.allow("a.txt", "staff one two")
        work.allow("b.txt", "board")
        report = await index.sync()
        assert report.quarantined == 1
        assert await texts(index, "paragraph", "Bob") == []
        assert {hit.blob for hit in await found(index, "paragraph", "Ada")} == {"docs/b.txt"}
        assert not await index.verify()


async def test_what_fits_again_is_indexed_again(work: Workspace) -> None:
    work.write("crowd.txt", paragraphs("crowd", 3), allow="staff one two")
    async with work.open() as index:
        await index.sync()
        work.write("crowd.txt", paragraphs("crowd", 4), allow="staff")
        report = await index.sync()
        assert (report.added, report.quarantined, index.failures()) == (1, 0, [])
        assert await texts(index, "crowd", "Bob")
