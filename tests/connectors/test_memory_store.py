"""The memory store against the suite, and what is its own: rows that outlive a store object, by namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.contracts import PutRows
from ragstore.errors import ConfigError
from ragstore.plugins import build
from ragstore.testing.rows import DIMENSIONS, row
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_memory import MemoryStore


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    MemoryStore.collections.clear()


class TestMemoryStore(StoreSuite):
    store_type = "memory"

    @pytest.fixture
    @override
    def make_store(self) -> MakeStore:
        return lambda collection, dimensions: MemoryStore(collection=collection, dimensions=dimensions)


async def test_namespaces_do_not_see_each_other() -> None:
    one = MemoryStore(collection="chunks", dimensions=DIMENSIONS, namespace="one")
    other = MemoryStore(collection="chunks", dimensions=DIMENSIONS, namespace="other")
    await one.apply([PutRows(rows=[row("a")])])
    assert (await other.stats()).rows == 0


async def test_a_stored_vector_does_not_change_with_the_one_that_was_put() -> None:
    store = MemoryStore(collection="chunks", dimensions=DIMENSIONS)
    put = row("a")
    before = put.vector.copy()
    await store.apply([PutRows(rows=[put])])
    put.vector[:] = 0
    (stored,) = [one async for one in store.rows([put.document_id])]
    assert stored.vector.tolist() == before.tolist()


def test_a_collection_of_other_dimensions_is_refused_when_it_is_opened() -> None:
    MemoryStore(collection="chunks", dimensions=3)
    with pytest.raises(ConfigError, match="3 dimensions"):
        MemoryStore(collection="chunks", dimensions=4)


def test_it_is_built_from_configuration(tmp_path: Path) -> None:
    store = build("stores", "memory", {"namespace": "tests"}, base=tmp_path, collection="chunks", dimensions=3)
    assert isinstance(store, MemoryStore)
