"""The LanceDB store against the suite, in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.contracts import DropDocument, DropRows, PutRows, VectorQuery
from ragstore.filters import And, AnyOf, Filter, Like, Not, Or, matches
from ragstore.testing.rows import DIMENSIONS, access, chunk, document_id, row, vector
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_lancedb import LanceDBStore


class TestLanceDBStore(StoreSuite):
    store_type = "lancedb"

    @pytest.fixture
    @override
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda collection, dimensions: LanceDBStore(base=tmp_path, collection=collection, dimensions=dimensions)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("levels", [40, 79])
async def test_a_deeply_nested_filter_is_understood(tmp_path: Path, levels: int, last: bool) -> None:  # noqa: FBT001 - a parameter of the test
    store = LanceDBStore(base=tmp_path, collection="deep", dimensions=DIMENSIONS)
    await store.apply([PutRows(rows=[row("a", columns=access("a", allowed=("g",))), row("b", columns=access("z"))])])
    deep: Filter = Not(AnyOf("allowed", frozenset({"g'"})))
    for number in range(levels):
        leaf = Like("path", f"{number}?*") if number % 2 else Not(Like("path", "z?*"))
        parts = (leaf, deep) if last else (deep, leaf)
        deep = Or(parts) if number % 2 else And(parts)
    found = {match.chunk_id for match in await store.search(VectorQuery(vector=vector(1)), filter=deep, limit=5)}
    assert found == {chunk(one) for one, columns in (("a", access("a", allowed=("g",))), ("b", access("z"))) if matches(deep, columns)}
    await store.close()


async def test_so_many_rows_are_dropped_in_several_deletes_with_the_same_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore_lancedb.commits._IDS_PER_DELETE", 7)
    store = LanceDBStore(base=tmp_path, collection="many", dimensions=DIMENSIONS)
    rows = [row(name, number) for name in ("a", "b") for number in range(20)]
    await store.apply([PutRows(rows=rows)])
    drops = [
        DropRows(document_id=document_id(name), generation=1, chunk_ids=frozenset(chunk(name, number) for number in range(19)))
        for name in ("a", "b")
    ]
    await store.apply([*drops, DropDocument(document_id=document_id("c"), generation=1)])
    left = {key.chunk_id async for key in store.keys()}  # noqa: SIM118 - no dictionary
    assert left == {chunk("a", 19), chunk("b", 19)}
    await store.close()
