"""The LanceDB store against the suite, in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.contracts import DropDocument, DropRows, PutRows
from ragstore.testing.rows import DIMENSIONS, chunk, document_id, row
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_lancedb import LanceDBStore


class TestLanceDBStore(StoreSuite):
    @pytest.fixture
    @override
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda collection, dimensions: LanceDBStore(base=tmp_path, collection=collection, dimensions=dimensions)


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
