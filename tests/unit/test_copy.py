"""An index copied to another store: nothing embedded, the same answers there, and an attempt that was stopped goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ragstore.cli.copying import store_section
from ragstore.cli.outcome import Exit
from ragstore.contracts import Store, Write
from ragstore.errors import ConfigError, TransientError
from ragstore.testing.faults import CrashingStore
from tests.support.commands import Ragstore
from tests.support.workspace import Workspace, paragraphs, texts

OTHER: dict[str, Any] = {"type": "lancedb", "path": "other"}


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    """Two documents of different readers, and one that was deleted."""
    work = Workspace(tmp_path)
    work.write("a.txt", paragraphs("alpha", 5), allow="staff")
    work.write("b.txt", paragraphs("beta", 3), allow="board")
    return work


class Outage:
    """From the second write on the store is down."""

    writes = 0

    def before(self, _writes: Sequence[Write]) -> None:
        self.writes += 1
        if self.writes > 1:
            raise TransientError("it is down")


async def test_the_copy_answers_as_the_index_does_and_nothing_is_embedded(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
        before = {who: sorted(await texts(index, "paragraph", who)) for who in ("Ada", "Bob", "Eve")}
        embedded = len(work.embedded)
        copied = await index.copy_to(OTHER)
        assert (copied.chunks, copied.written, bool(copied)) == (8, 8, False)
    work.sections["store"] = OTHER
    async with work.open() as index:
        assert {who: sorted(await texts(index, "paragraph", who)) for who in ("Ada", "Bob", "Eve")} == before
        assert not await index.verify()
        report = await index.sync()
        assert (report.unchanged, report.chunks_embedded) == (2, 0)
    assert [text for text in work.embedded[embedded:] if text != "paragraph"] == []


async def test_a_second_copy_sends_only_what_is_not_there(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
        await index.copy_to(OTHER)
        work.write("a.txt", paragraphs("alpha", 6), allow="board")
        (work.docs / "b.txt").unlink()
        await index.sync()
        copied = await index.copy_to(OTHER)
        assert (copied.chunks, copied.written, copied.as_dict()) == (6, 1, {"missing": [], "stale": [], "orphaned": []})
    work.sections["store"] = OTHER
    async with work.open() as index:
        assert not await index.verify()
        assert await texts(index, "alpha", "Bob") == []


async def test_a_copy_that_fails_half_way_goes_on_where_it_was(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.ingest.copying._CHUNKS_AT_ONCE", 4)
    async with work.open() as index:
        await index.sync()
        build = work.connectors.wrapper

        def failing(store: Store) -> Store:
            return CrashingStore(build(store), before=Outage().before, after=lambda _writes: None)

        work.connectors.wrapper = failing
        with pytest.raises(TransientError):
            await index.copy_to(OTHER)
        work.connectors.wrapper = build
        copied = await index.copy_to(OTHER)
        assert 0 < copied.written < copied.chunks == 8
        assert not copied


async def test_what_the_old_store_has_lost_is_told(work: Workspace) -> None:
    async with work.open() as index:
        await index.sync()
        await index._assembly.reading()[1].drop()
        copied = await index.copy_to(OTHER)
        assert (copied.written, len(copied.missing)) == (0, 8)


async def test_there_must_be_something_to_copy_and_somewhere_else_to_put_it(work: Workspace) -> None:
    async with work.open() as index:
        with pytest.raises(ConfigError, match="nothing is indexed"):
            await index.copy_to(OTHER)
        await index.sync()
        with pytest.raises(ConfigError, match="the index is in"):
            await index.copy_to(work.sections["store"])


# The command.


def test_the_command_says_what_the_configuration_must_say(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("copy", "--to", "lancedb path=elsewhere", "--json")
    assert (ran.code, ran.json) == (Exit.DONE, {"chunks": 2, "written": 2, "missing": [], "stale": [], "orphaned": []})
    assert 'store = {type = "lancedb", path = "elsewhere"}' in ran.err
    assert "2 chunks, of which 0 were sent now" in ragstore("copy", "--to", "lancedb path=elsewhere").out
    assert docs.exists()


@pytest.mark.parametrize("to", ["", "nothing", "lancedb path", "lancedb =x", "nowhere.toml", "lancedb nonsense=1"])
def test_a_store_that_is_none_is_one_line(ragstore: Ragstore, docs: Path, to: str) -> None:
    ragstore("index", str(docs))
    ran = ragstore("copy", "--to", to)
    assert (ran.code, ran.out, ran.err.splitlines()[-1].startswith("error: ")) == (Exit.USAGE, "", True)


def test_options_are_read_as_toml_or_as_text(tmp_path: Path) -> None:
    assert store_section("x a=1 b=true c=/srv/index d='1' e=postgresql://h/d?a=b") == {
        "type": "x", "a": 1, "b": True, "c": "/srv/index", "d": "1", "e": "postgresql://h/d?a=b",
    }  # fmt: skip
    (tmp_path / "new.toml").write_text('[store]\ntype = "lancedb"\npath = "a b"\n')
    assert store_section(str(tmp_path / "new.toml")) == {"type": "lancedb", "path": "a b"}
