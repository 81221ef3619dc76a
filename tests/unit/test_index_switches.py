"""`[retrieval]`, keywords and options of the command line in; that each reaches the search, over a real ledger and store, out."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ragstore.cli.outcome import Exit
from ragstore.errors import QueryError
from tests.support.commands import Ragstore
from tests.support.workspace import Workspace, found, paragraphs, texts


@pytest.fixture(params=["memory", "lancedb"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path, store=request.param)
    workspace.write("book.md", paragraphs("halyard", 6))
    workspace.write("pay.md", paragraphs("salary", 3), allow="board")
    return workspace


async def test_a_hit_brings_its_neighbours_at_the_exact_span_of_the_blob(workspace: Workspace) -> None:
    source = (workspace.docs / "book.md").read_text()
    async with workspace.open() as index:
        await index.sync()
        [narrow] = await found(index, "subject3 detail3", "Bob", limit=1)
        [wide] = await found(index, "subject3 detail3", "Bob", limit=1, neighbours=1)
        prompt = await index.prompt("subject3 detail3", principal=index.principal("Bob"), limit=1, neighbours=1)
    assert (wide.chunk, wide.start < narrow.start, wide.end > narrow.end) == (narrow.chunk, True, True)
    assert len(wide.text) == wide.end - wide.start
    assert wide.text.split() == source[wide.start : wide.end].split()
    assert [(citation.start, citation.end) for citation in prompt.citations] == [(wide.start, wide.end)]


async def test_the_configuration_counts_where_a_query_says_nothing(workspace: Workspace) -> None:
    workspace.sections["retrieval"] = {"neighbours": 2, "near_duplicates": 0.9}
    async with workspace.open() as index:
        await index.sync()
        [wide] = await found(index, "subject3 detail3", "Bob", limit=1)
        [narrow] = await found(index, "subject3 detail3", "Bob", limit=1, neighbours=0)
    assert len(wide.text) > 3 * len(narrow.text)


async def test_every_switch_at_once_shows_nothing_that_may_not_be_read(workspace: Workspace) -> None:
    every: dict[str, Any] = {
        "fusion": "rrf", "vector_weight": 0.3, "near_duplicates": 0.9, "mmr": 0.5, "half_life_days": 9.0, "neighbours": 3
    }  # fmt: skip
    async with workspace.open() as index:
        await index.sync()
        shown = await texts(index, "salary paragraph subject1", "Bob", **every)
        assert shown
        assert not any("salary" in text for text in shown)
        assert any("salary" in text for text in await texts(index, "salary paragraph subject1", "Ada", **every))
        workspace.allow("book.md", "nobody")
        await index.sync()
        assert await texts(index, "halyard", "Bob", **every) == []


async def test_what_was_modified_lately_is_lifted(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name, days in (("a.md", 900), ("b.md", 1)):
        workspace.write(name, f"rotate the key {name[0]}")
        moment = time.time() - days * 86_400
        os.utime(workspace.docs / name, (moment, moment))
    async with workspace.open() as index:
        await index.sync()
        assert [hit.blob for hit in await found(index, "rotate the key a", "Bob")] == ["docs/a.md", "docs/b.md"]
        assert [hit.blob for hit in await found(index, "rotate the key", "Bob", half_life_days=30)] == ["docs/b.md", "docs/a.md"]


async def test_a_switch_that_is_none_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("a.md", "key")
    async with workspace.open() as index:
        await index.sync()
        with pytest.raises(QueryError, match="mmr"):
            await found(index, "key", "Bob", mmr=7)
        with pytest.raises(TypeError):
            await found(index, "key", "Bob", fuzziness=1)


def test_the_options_of_search_reach_it(ragstore: Ragstore, docs: Path) -> None:
    (docs / "more.md").write_text("Rotate every access key after ninety days!\n")
    ragstore("index", "docs")
    assert len(ragstore("search", "rotate access key", "--json").json["hits"]) == 3
    assert len(ragstore("search", "rotate access key", "--near-duplicates", "0.6", "--json").json["hits"]) == 2
    options = ["--mmr", "0.5", "--half-life-days", "30", "--neighbours", "1", "--vector-weight", "0.9", "--fusion", "max-norm"]
    assert ragstore("search", "rotate access key", *options, "--json").json["hits"]
    for wrong in (
        ["--mmr", "2"],
        ["--neighbours", "99"],
        ["--vector-weight", "-1"],
        ["--near-duplicates", "0"],
        ["--half-life-days", "-1"],
    ):
        ran = ragstore("search", "key", *wrong, "--json")
        assert (ran.code, ran.out) == (Exit.USAGE, ""), wrong
