"""The same suite against a search service of Azure's: skipped where none is named, and never asked by `make test` without one.

AZURE_SEARCH_ENDPOINT and AZURE_SEARCH_KEY (an admin key) name it. Indexes are made under a name of their own and deleted in the end.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from ragstore.filters import Filter
from ragstore.models import AccessColumns
from ragstore.testing.rows import DIMENSIONS
from ragstore.testing.store_searches import check_filters
from ragstore.testing.store_writes import MakeStore
from ragstore.testing.stores import StoreSuite
from ragstore.testing.strategies import access_columns, filters
from ragstore_azure.search import AzureSearchStore
from tests.support.azure_search import WaitingStore

pytestmark = [
    pytest.mark.skipif(
        not {"AZURE_SEARCH_ENDPOINT", "AZURE_SEARCH_KEY"} <= set(os.environ),
        reason="AZURE_SEARCH_ENDPOINT and AZURE_SEARCH_KEY are not set: Azure AI Search itself is not asked",
    ),
    pytest.mark.timeout(1_800),
]


class TestAzureSearchItself(StoreSuite):
    store_type = "azure-search"
    waived = {"test_of_two_replacements_at_once_the_newer_remains": "the service compares nothing when it writes; the ledger does"}

    @pytest.fixture
    async def opened(self) -> AsyncIterator[list[AzureSearchStore]]:
        stores: list[AzureSearchStore] = []
        yield stores
        for store in stores:
            await store.drop()
            await store.close()

    @pytest.fixture
    @override
    def make_store(self, opened: list[AzureSearchStore]) -> MakeStore:
        prefix = f"test-{uuid.uuid4().hex[:12]}"

        def make(collection: str, dimensions: int) -> AzureSearchStore:
            opened.append(
                WaitingStore(
                    endpoint=os.environ["AZURE_SEARCH_ENDPOINT"],
                    key_env="AZURE_SEARCH_KEY",
                    index=prefix,
                    collection=collection,
                    dimensions=dimensions,
                    settle=60.0,
                )
            )
            return opened[-1]

        return make

    @settings(
        max_examples=1,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.differing_executors,
        ],
    )
    @given(columns=st.lists(access_columns(), min_size=10, max_size=40), conditions=st.lists(filters(), min_size=40, max_size=60))
    @override
    async def test_random_filters_mean_what_the_algebra_says(
        self, make_store: MakeStore, columns: list[AccessColumns], conditions: list[Filter]
    ) -> None:
        """One large example: each would make an index of its own, and wait for it."""
        await check_filters(make_store(f"random-{uuid.uuid4().hex[:8]}", DIMENSIONS), columns, conditions)
