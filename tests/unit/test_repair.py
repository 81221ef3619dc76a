"""A store that lost rows, or cannot be read: it is never a silent nothing, and it is made anew without embedding anything again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ragstore.errors import StoreDamagedError
from tests.support.workspace import Workspace, found, paragraphs

CLEAN: dict[str, list[str]] = {"missing": [], "stale": [], "orphaned": []}
_GLOBS = {"data": "data/*.lance", "manifests": "_versions/*.manifest", "index": "_indices/*/*"}


@pytest.fixture
async def work(tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path, store="lancedb")
    for topic in ("alpha", "beta"):
        work.write(f"{topic}.txt", paragraphs(topic, 6))
    async with work.open() as index:
        await index.sync()
    return work


def cut_off(file: Path) -> None:
    os.truncate(file, min(100, file.stat().st_size // 2))


def overwrite(file: Path) -> None:
    file.write_bytes(os.urandom(file.stat().st_size))


def blank(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def damage(work: Workspace, part: str, how: Callable[[Path], None]) -> None:
    files = sorted((work.base / "index").glob(f"*.lance/{_GLOBS[part]}"))
    assert files
    for file in files:
        how(file)


@pytest.mark.parametrize(
    ("part", "how"), [("data", cut_off), ("data", overwrite), ("data", Path.unlink), ("manifests", overwrite), ("manifests", blank)]
)
async def test_a_damaged_table_is_told_from_one_that_holds_nothing_and_is_made_anew_from_the_cache(
    work: Workspace, part: str, how: Callable[[Path], None]
) -> None:
    damage(work, part, how)
    before = len(work.embedded)
    async with work.open() as index:
        with pytest.raises(StoreDamagedError, match="verify --repair"):
            await found(index, "alpha subject3", "Bob")
        assert len((await index.verify()).missing) >= 2
    async with work.open() as index:
        assert (await index.verify(repair=True)).as_dict() == CLEAN
        assert (await found(index, "alpha subject3", "Bob"))[0].blob == "docs/alpha.txt"
        assert (await index.verify()).as_dict() == CLEAN
    assert [text for text in work.embedded[before:] if "paragraph" in text] == []


@pytest.mark.parametrize("how", [blank, Path.unlink])
async def test_verify_finds_an_index_of_the_table_that_no_search_can_use(work: Workspace, how: Callable[[Path], None]) -> None:
    work.write("gamma.txt", paragraphs("gamma", 300))  # enough rows for the full-text index to have files
    async with work.open() as index:
        await index.sync()
    damage(work, "index", how)
    async with work.open() as index:
        assert (await index.verify()).missing
    async with work.open() as index:
        assert (await index.verify(repair=True)).as_dict() == CLEAN
        assert (await found(index, "gamma subject3", "Bob"))[0].blob == "docs/gamma.txt"


async def test_a_pass_brings_back_rows_that_the_store_lost_and_embeds_nothing(work: Workspace) -> None:
    shutil.rmtree(work.base / "index")
    before = len(work.embedded)
    async with work.open() as index:
        with pytest.raises(StoreDamagedError, match="lost all that is indexed"):
            await index.ready()
        with pytest.raises(StoreDamagedError, match="lost all that is indexed"):
            await found(index, "alpha subject3", "Bob")
    async with work.open() as index:
        report = await index.sync()
        assert report.warnings == ["store: 12 rows were lost, and are brought back"]
        assert (await index.verify()).as_dict() == CLEAN
        assert (await index.status())["chunks"] == 12
        assert (await index.sync()).warnings == []
    assert [text for text in work.embedded[before:] if "paragraph" in text] == []
