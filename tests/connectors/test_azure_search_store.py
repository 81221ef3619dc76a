"""The Azure AI Search store against the suite: the real SDK, over HTTP, at a strict fake of the service."""

from __future__ import annotations

import pytest
from typing_extensions import override

from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_azure.search import AzureSearchStore
from tests.fakes.azure_search import AzureSearch
from tests.support.azure_search import Open, WaitingStore

_LAST_WINS = "the service compares nothing when it writes: of two at once the older may be last; retrieval goes by the ledger, which does"


class TestAzureSearchStore(StoreSuite):
    store_type = "azure-search"
    waived = {"test_of_two_replacements_at_once_the_newer_remains": _LAST_WINS}

    @pytest.fixture
    @override
    def make_store(self, open_search: Open) -> MakeStore:
        return lambda collection, dimensions: open_search(AzureSearchStore, collection=collection, dimensions=dimensions)


class TestAzureSearchStoreThatShowsWritesLater(StoreSuite):
    """Not `immediate`: what the suite asks of writes that are shown, of a service that takes its time."""

    store_type = "azure-search"
    waived = {
        "test_of_two_replacements_at_once_the_newer_remains": _LAST_WINS,
        **dict.fromkeys(
            (
                "test_random_filters_mean_what_the_algebra_says",
                "test_a_value_in_a_filter_is_data",
                "test_a_document_of_very_many_chunks_is_replaced_shrunk_and_grown",
                "test_a_limit_is_filled_by_twelve_of_two_thousand_that_lie_far_from_the_query",
            ),
            "about values and size, not about time: the suite without a delay asks for it",
        ),
    }

    @pytest.fixture
    @override
    def make_store(self, search_service: AzureSearch, open_search: Open) -> MakeStore:
        search_service.delay = 0.03
        return lambda collection, dimensions: open_search(WaitingStore, collection=collection, dimensions=dimensions)
