"""A factory of stores in, a verdict out: the suite that every store passes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ragstore.contracts import Store
from ragstore.testing.rows import DIMENSIONS
from ragstore.testing.store_searches import StoreSearches
from ragstore.testing.store_writes import MakeStore, StoreWrites

__all__ = ["MakeStore", "StoreSuite"]


class StoreSuite(StoreWrites, StoreSearches):
    """Subclass it, and define `make_store`. The tests are coroutines: run pytest with pytest-asyncio and `asyncio_mode = "auto"`.

    ```python
    class TestMyStore(StoreSuite):
        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            return lambda collection, dimensions: MyStore(base=tmp_path, collection=collection, dimensions=dimensions)
    ```
    """

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Collection and dimensions in, a store out; stores of two tests share nothing."""
        raise NotImplementedError("a subclass of StoreSuite defines the fixture make_store")

    @pytest.fixture
    async def store(self, make_store: MakeStore) -> AsyncIterator[Store]:
        """An empty collection named `chunks`."""
        store = make_store("chunks", DIMENSIONS)
        yield store
        await store.close()

    @pytest.fixture
    def text_store(self, store: Store) -> Store:
        """The same, for tests of full text."""
        if not store.capabilities.full_text:
            pytest.skip("this store has no full text")
        return store
