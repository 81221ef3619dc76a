"""The Pinecone store against the suite, by the real SDK over HTTP, at a fake that keeps the vendor's limits and contract."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

import ragstore
from ragstore import config
from ragstore.filters import Filter
from ragstore.models import AccessColumns
from ragstore.plugins import build
from ragstore.testing.rows import DIMENSIONS
from ragstore.testing.store_searches import _INHERITED, check_filters
from ragstore.testing.store_writes import MakeStore
from ragstore.testing.stores import StoreSuite
from ragstore.testing.strategies import access_columns, filters, hostile_strings
from ragstore_pinecone import PineconeStore
from tests.fakes.pinecone import PineconeServer
from tests.support.pinecone_stores import OpenPinecone, PatientStore

_NUMBERS = itertools.count()
_HELD = access_columns(hostile_strings().map(lambda text: text[:2_000]))
"""Thirteen values of 10,000 characters are more than a record holds: such a row is refused, which has a test of its own."""


_LAST_WINS = "the service compares nothing when it writes: of two at once the older may be last; retrieval goes by the ledger, which does"


class TestPineconeStore(StoreSuite):
    store_type = "pinecone"
    waived = {"test_of_two_replacements_at_once_the_newer_remains": _LAST_WINS}

    @pytest.fixture
    @override
    def make_store(self, open_pinecone: OpenPinecone) -> MakeStore:
        return open_pinecone

    @settings(max_examples=15, suppress_health_check=_INHERITED)
    @given(columns=st.lists(_HELD, min_size=1, max_size=10), conditions=st.lists(filters(), min_size=10, max_size=15))
    @override
    async def test_random_filters_mean_what_the_algebra_says(
        self, make_store: MakeStore, columns: list[AccessColumns], conditions: list[Filter]
    ) -> None:
        store = make_store(f"random_{next(_NUMBERS)}", DIMENSIONS)
        await check_filters(store, columns, conditions)
        await store.drop()
        await store.close()


class TestPineconeStoreWhoseWritesAreReadableLater(StoreSuite):
    """Each write can be read a tenth of a second later; searches wait, as `PatientStore` does it, and everything else by itself."""

    store_type = "pinecone"
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
        "test_a_collection_that_is_opened_again_has_everything": "a handle opened after a write does not wait for it: not `immediate`",
        "test_a_handle_from_before_reads_and_writes_after_expunging": "another handle goes on seeing what is gone: not `immediate`",
    }

    @pytest.fixture
    @override
    def make_store(self, pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> MakeStore:
        pinecone_server.index.delay = 0.1
        return lambda collection, dimensions: open_pinecone(collection, dimensions, kind=PatientStore)


def test_it_is_built_from_configuration(tmp_path: Path) -> None:
    store = build("stores", "pinecone", {"index": "docs", "wait_seconds": 5}, base=tmp_path, collection="chunks", dimensions=3)
    assert isinstance(store, PineconeStore)
    assert not any((store.capabilities.full_text, store.capabilities.exact_filters, store.capabilities.immediate))


def _settings(server: PineconeServer, folder: Path) -> Any:
    sections: dict[str, Any] = {
        "source": {"type": "folder", "path": str(folder / "docs")},
        "embedder": {"type": "hash", "dimensions": 64},
        "store": {"type": "pinecone", "index": "fresh", "endpoint": server.host, "cloud": "aws", "region": "us-east-1", "wait_seconds": 3},
        "access": {"mode": "open"},
    }
    return config.from_mapping(sections, base=folder, environ={})


def test_an_index_lives_in_pinecone_from_the_first_pass_to_the_last_deletion(pinecone_server: PineconeServer, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nRotate every access key after ninety days.\n")
    (docs / "food.md").write_text("# Food\n\nThe kitchen serves lentil soup on Mondays.\n")
    with ragstore.open(_settings(pinecone_server, tmp_path)) as index:
        assert index.sync().added == 2
        pinecone_server.indexes["fresh"].delay = 0.3
        (docs / "food.md").write_text("# Food\n\nThe kitchen serves barley soup on Tuesdays.\n")
        (docs / "keys.md").unlink()
        report = index.sync(allow_mass_delete=True)
        assert (report.changed, report.deleted) == (1, 1)
        assert not index.verify()
        (hit,) = index.search("barley soup", principal=index.principal(), limit=5)
        assert "Tuesdays" in hit.text


def test_rows_that_were_lost_behind_the_ledgers_back_are_found_and_mended(pinecone_server: PineconeServer, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("Rotate every access key after ninety days.\n")
    with ragstore.open(_settings(pinecone_server, tmp_path)) as index:
        index.sync()
        pinecone_server.indexes["fresh"].spaces.clear()
        assert index.verify().missing
        index.verify(repair=True)
        assert not index.verify()
        assert len(index.search("access key", principal=index.principal(), limit=5)) == 1
