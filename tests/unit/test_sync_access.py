"""Access that is taken away: it counts in the pass that sees it, whatever else that pass cannot do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from ragstore.errors import ConfigError, GuardError, PoisonError, TransientError
from ragstore.models import BlobState, FetchedBlob, Principal
from ragstore.testing.faults import SimulatedCrash
from tests.support.workspace import Workspace, found, paragraphs, texts


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, store=request.param)


async def test_a_blob_that_cannot_be_read_loses_the_readers_that_its_listing_lacks(
    work: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.write("a.txt", paragraphs("alpha", 3), allow="staff")
    async with work.open() as index:
        await index.sync()
        work.write("a.txt", paragraphs("gamma", 3), allow="board")

        async def fetch(path: str, spool: Path) -> FetchedBlob | None:
            raise TransientError(f"{path} is throttled")

        monkeypatch.setattr(index._assembly.sources()[0], "fetch", fetch)
        assert (await index.sync()).failed == 1
        assert await texts(index, "alpha", "Bob") == []
        assert await texts(index, "alpha", "Ada")


@pytest.mark.parametrize("error", [TransientError("it never rests"), PoisonError("encrypted", "its key is not ours")])
async def test_a_blob_that_cannot_be_looked_at_keeps_nobody_from_losing_access(
    work: Workspace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for name in ("a.txt", "b.txt"):
        work.write(name, paragraphs(name, 3), allow="staff")
    async with work.open() as index:
        await index.sync()
        for name in ("a.txt", "b.txt"):
            work.allow(name, "board")
        source = index._assembly.sources()[0]
        look = source.state

        async def state(path: str) -> BlobState | None:
            if path == "a.txt":
                raise error
            return await look(path)

        monkeypatch.setattr(source, "state", state)
        await index.sync()
        assert await found(index, "paragraph", "Bob") == []


async def test_a_pass_that_the_guard_stops_still_takes_access_away_and_the_next_one_gives_it(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", paragraphs("alpha", 3), allow="staff")
    work.write("b.txt", paragraphs("beta", 3), allow="board")
    for number in range(30):
        work.write(f"gone{number}.txt", paragraphs(f"gone{number}", 1), allow="board")
    async with work.open() as index:
        await index.sync()
        for file in work.docs.glob("gone*"):
            file.unlink()
        work.allow("a.txt", "board")
        work.allow("b.txt", "staff")
        with pytest.raises(GuardError):
            await index.sync()
        assert await found(index, "paragraph", "Bob") == []
        assert "docs/a.txt" in (await index.verify()).stale
        report = await index.sync(allow_mass_delete=True)
        assert (report.retagged, report.deleted) == (2, 30)
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/b.txt"}


async def test_a_deleted_blob_serves_no_longer_while_new_content_is_embedded(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("a.txt", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.txt").unlink()
        work.write("new.txt", paragraphs("gamma", 9))
        work.embedder.fail()
        seen: list[int] = []
        embed = work.embedder.embed

        async def watching(texts_: Sequence[str], *, purpose: Literal["document", "query"]) -> object:
            if purpose == "document":
                seen.append(len(await found(index, "alpha", "Bob")))
            return await embed(texts_, purpose=purpose)

        monkeypatch.setattr(work.embedder, "embed", watching)
        await index.sync()
        assert seen == [0]


async def test_an_index_with_access_control_does_not_open_under_a_configuration_without(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    work.write("a.txt", paragraphs("alpha", 3), allow="board")
    async with work.open() as index:
        await index.sync()
    work.sections["access"] = {"mode": "open"}
    async with work.open() as index:
        (chunk,) = [chunk_id for _, chunk_id in index._assembly.ledger.documents.all_chunk_ids()][:1]
        for asking in (
            index.search("alpha", principal=index.principal()),
            index.prompt("alpha", principal=index.principal()),
            index.chunk(chunk, principal=index.principal()),
            index.verify(repair=True),
        ):
            with pytest.raises(ConfigError, match=r"made with .* 'groups'"):
                await asking
        work.embedder.down = SimulatedCrash()
        work.write("b.txt", paragraphs("beta", 3))
        with pytest.raises(SimulatedCrash):
            await index.sync()
        with pytest.raises(ConfigError):
            await index.search("alpha", principal=index.principal())
        work.embedder.down = None
        await index.sync()  # who says so, means it
        assert len(await index.search("alpha", principal=index.principal(), filter="path = 'a.txt'")) == 3


def test_groups_in_one_text_are_no_groups() -> None:
    with pytest.raises(TypeError, match="not one text"):
        Principal(id="x", name="x", groups="staff")  # type: ignore[arg-type]  # what a caller without types may write


async def test_a_new_index_is_for_its_owner_alone(tmp_path: Path) -> None:
    work = Workspace(tmp_path, store="lancedb")
    work.write("a.txt", paragraphs("alpha", 3), allow="board")
    async with work.open() as index:
        await index.sync()
    for folder in (tmp_path / ".ragstore", tmp_path / "index"):
        assert folder.stat().st_mode & 0o077 == 0


async def test_rules_that_change_during_a_pass_reach_every_blob_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('"*.txt" = "board"', encoding="utf-8")
    work = Workspace(tmp_path, access={"mode": "groups", "rules": "rules.toml", "principals": "principals.json"})
    work.write("a.txt", paragraphs("alpha", 3), allow=None)
    async with work.open() as index:
        source = index._assembly.sources()[0]
        fetch = source.fetch

        await index.sync()
        work.write("b.txt", paragraphs("beta", 3), allow=None)

        async def loosening(path: str, spool: Path) -> FetchedBlob | None:
            rules.write_text('"?.txt" = "staff"', encoding="utf-8")
            return await fetch(path, spool)

        monkeypatch.setattr(source, "fetch", loosening)
        await index.sync()
        await index.sync()
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/a.txt", "docs/b.txt"}
