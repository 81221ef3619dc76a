"""The Azure AI Search store against the suite: the real SDK, over HTTP, at a strict fake of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from typing_extensions import override

from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_azure.search import AzureSearchStore
from tests.fakes.azure_search import AzureSearch


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureSearch]:
    monkeypatch.setenv("SEARCH_KEY", "admin-key")
    with AzureSearch() as service:
        yield service
    assert service.broken == []


Opened = list[AzureSearchStore]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Stores that are closed in the end."""
    stores: Opened = []
    yield stores
    for store in stores:
        await store.close()


class TestAzureSearchStore(StoreSuite):
    @pytest.fixture
    @override
    def make_store(self, service: AzureSearch, opened: Opened) -> MakeStore:
        def make(collection: str, dimensions: int) -> AzureSearchStore:
            opened.append(AzureSearchStore(endpoint=service.url, key_env="SEARCH_KEY", collection=collection, dimensions=dimensions))
            return opened[-1]

        return make
