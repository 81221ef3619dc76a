"""Passes over a source that fails, lies or changes while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.models import FetchedBlob
from tests.support.sources import Wrapped
from tests.support.workspace import Workspace, found, paragraphs, texts


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path)
    work.connectors.source_wrapper = Wrapped
    return work


def source_of(index: object) -> Wrapped:
    (source,) = index._assembly.sources()  # type: ignore[attr-defined]  # a test looks inside
    assert isinstance(source, Wrapped)
    return source


@pytest.mark.parametrize("error", [TransientError("503"), ConfigError("403")])
async def test_a_listing_that_breaks_off_deletes_nothing(work: Workspace, error: Exception) -> None:
    for name in "abc":
        work.write(f"{name}.txt", paragraphs(name * 4, 2))
    async with work.open() as index:
        await index.sync()
        source_of(index).list_error = error
        with pytest.raises(type(error)):
            await index.sync()
        assert (await index.status())["blobs"] == 3


async def test_attributes_that_cannot_be_read_leave_the_blob_stale_and_the_others_go_on(work: Workspace) -> None:
    for name in ("a.txt", "b.txt"):
        work.write(name, paragraphs(name[0] * 4, 2))
    async with work.open() as index:
        await index.sync()
        work.allow("a.txt", "board")
        work.allow("b.txt", "board")
        source_of(index).state_errors["a.txt"] = TransientError("503")
        report = await index.sync()
        assert (report.retagged, report.failed) == (1, 1)
        assert await texts(index, "bbbb", "Bob", filter="path = 'b.txt'") == []
        source_of(index).state_errors.clear()
        assert (await index.sync()).failed == 0
        assert await texts(index, "aaaa bbbb", "Bob") == []


async def test_a_blob_whose_attributes_tell_that_it_cannot_be_read_is_set_aside(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    async with work.open() as index:
        await index.sync()
        work.allow("a.txt", "board")
        source_of(index).state_errors["a.txt"] = PoisonError("encrypted", "a key of its own")
        report = await index.sync()
        assert report.quarantined == 1
        assert await texts(index, "alpha", "Ada") == []


async def test_a_delete_that_cannot_be_confirmed_is_no_delete(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.txt").unlink()
        source_of(index).state_errors["a.txt"] = TransientError("503")
        report = await index.sync()
        assert (report.deleted, report.failed) == (0, 1)
        assert await texts(index, "alpha", "Bob")
        source_of(index).state_errors.clear()
        assert (await index.sync()).deleted == 1


async def test_the_failure_of_a_blob_that_was_never_indexed_ends_with_its_deletion(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    async with work.open() as index:
        index._assembly.sources()
        source_of(index).fetch_errors["a.txt"] = TransientError("permission denied")
        assert (await index.sync()).failed == 1
        assert index.failures()[0]["kind"] == "transient"
        (work.docs / "a.txt").unlink()
        report = await index.sync()
        assert (report.failed, report.deleted) == (0, 0)
        assert index.failures() == []


async def test_a_blob_that_vanishes_between_listing_and_reading_is_no_error(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    work.write("b.txt", paragraphs("beta", 2))

    class Vanishing(Wrapped):
        @override
        async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
            if path == "a.txt":
                (work.docs / path).unlink(missing_ok=True)
            return await super().fetch(path, spool)

    work.connectors.source_wrapper = Vanishing
    async with work.open() as index:
        report = await index.sync()
        assert (report.added, report.failed, report.quarantined) == (1, 0, 0)
        assert {hit.blob for hit in await found(index, "alpha beta", "Bob")} == {"docs/b.txt"}


async def test_what_is_applied_is_what_the_blob_is_when_it_is_read(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2), allow="staff")

    class Changing(Wrapped):
        @override
        async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
            work.write(path, paragraphs("secret", 2), allow="board")
            return await super().fetch(path, spool)

    work.connectors.source_wrapper = Changing
    async with work.open() as index:
        await index.sync()
        assert await texts(index, "alpha secret", "Bob") == []
        assert all("secret" in text for text in await texts(index, "alpha secret", "Ada"))
