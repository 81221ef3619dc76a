"""A factory of stores in, a verdict out: the suite that every store passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import ClassVar

import pytest
from typing_extensions import override

from ragstore import plugins
from ragstore.contracts import Store
from ragstore.testing.rows import DIMENSIONS
from ragstore.testing.store_limits import StoreLimits
from ragstore.testing.store_searches import StoreSearches
from ragstore.testing.store_writes import MakeStore, StoreWrites

__all__ = ["MakeStore", "StoreSuite"]


class StoreSuite(StoreWrites, StoreSearches, StoreLimits):
    """Subclass it, and define `store_type` and `make_store`. A test that a store cannot pass is waived with the reason.

    The tests are coroutines: run pytest with pytest-asyncio and `asyncio_mode = "auto"`.

    ```python
    class TestMyStore(StoreSuite):
        store_type = "mine"
        waived = {"test_a_retag_counts_in_filters_at_once": "the vendor says that it takes a minute"}

        @pytest.fixture
        def make_store(self, tmp_path: Path) -> MakeStore:
            return lambda collection, dimensions: MyStore(base=tmp_path, collection=collection, dimensions=dimensions)
    ```
    """

    store_type: ClassVar[str] = ""
    """The name under which the store is registered among the entry points `ragstore.stores`."""
    waived: ClassVar[Mapping[str, str]] = {}
    """Tests that the store need not pass, by name, each with the reason, which is shown where the test is skipped."""

    @override
    def __init_subclass__(cls) -> None:
        """Raises `TypeError` for a waiver of no test or without a reason, and for a test that is left out in any other way."""
        super().__init_subclass__()
        for name, reason in cls.waived.items():
            if not name.startswith("test_") or not callable(getattr(cls, name, None)):
                raise TypeError(f"{cls.__name__} waives {name!r}, which is no test of the suite")
            if not reason.strip():
                raise TypeError(f"{cls.__name__} waives {name!r} without a reason")
        if missing := [name for name in dir(StoreSuite) if name.startswith("test_") and not callable(getattr(cls, name, None))]:
            raise TypeError(f"{cls.__name__} leaves out {', '.join(missing)}: say why, in `waived`")

    @pytest.fixture(autouse=True)
    def _unless_waived(self, request: pytest.FixtureRequest) -> None:
        if reason := self.waived.get(request.function.__name__):
            pytest.skip(f"waived: {reason}")

    async def test_the_store_is_the_one_that_is_registered(self, store: Store) -> None:
        assert self.store_type, "say in `store_type` under which name the store is registered"
        assert isinstance(store, plugins.load("stores", self.store_type))

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
