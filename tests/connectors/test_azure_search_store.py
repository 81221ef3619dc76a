"""The Azure AI Search store against the suite: the real SDK, over HTTP, at a strict fake of the service."""

from __future__ import annotations

import pytest
from typing_extensions import override

from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_azure.search import AzureSearchStore
from tests.fakes.azure_search import AzureSearch
from tests.support.azure_search import Open, WaitingStore


class TestAzureSearchStore(StoreSuite):
    @pytest.fixture
    @override
    def make_store(self, open_search: Open) -> MakeStore:
        return lambda collection, dimensions: open_search(AzureSearchStore, collection=collection, dimensions=dimensions)


class TestAzureSearchStoreThatShowsWritesLater(StoreSuite):
    """Not `immediate`: what the suite asks of writes that are shown, of a service that takes its time."""

    @pytest.fixture
    @override
    def make_store(self, search_service: AzureSearch, open_search: Open) -> MakeStore:
        search_service.delay = 0.03
        return lambda collection, dimensions: open_search(WaitingStore, collection=collection, dimensions=dimensions)
