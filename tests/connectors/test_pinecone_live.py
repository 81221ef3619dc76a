"""The Pinecone store against Pinecone itself: skipped where there is no key, and never run by `make test` without one."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator

import pytest
from typing_extensions import override

from ragstore.testing.rows import DIMENSIONS
from ragstore.testing.store_writes import MakeStore
from ragstore.testing.stores import StoreSuite
from tests.support.pinecone_stores import PatientStore

pytestmark = [
    pytest.mark.skipif("PINECONE_API_KEY" not in os.environ, reason="PINECONE_API_KEY is not set: Pinecone itself is not asked"),
    pytest.mark.timeout(1_800),
]
_INDEX = os.environ.get("RAGSTORE_PINECONE_INDEX", "ragstore-tests")
"""Made in `RAGSTORE_PINECONE_REGION` of AWS where it is not there, with 8 dimensions, and left there: making one takes a while."""


class TestPineconeItself(StoreSuite):
    store_type = "pinecone"
    waived = {
        "test_random_filters_mean_what_the_algebra_says": "thousands of requests that cost money; known values are asked for elsewhere",
        "test_a_collection_that_is_opened_again_has_everything": "a handle opened after a write does not wait for it: not `immediate`",
        "test_a_handle_from_before_reads_and_writes_after_expunging": "another handle goes on seeing what is gone: not `immediate`",
        "test_of_two_replacements_at_once_the_newer_remains": "the service compares nothing when it writes; the ledger does",
    }

    @pytest.fixture
    @override
    async def make_store(self) -> AsyncIterator[MakeStore]:
        opened: list[PatientStore] = []
        namespace = f"test-{uuid.uuid4().hex[:12]}"
        region = os.environ.get("RAGSTORE_PINECONE_REGION", "us-east-1")

        def make(collection: str, dimensions: int) -> PatientStore:
            store = PatientStore(
                collection=collection,
                dimensions=dimensions,
                index=_INDEX,
                cloud="aws",
                region=region,
                namespace=namespace,
                wait_seconds=120.0,
            )
            opened.append(store)
            return opened[-1]

        yield make
        for store in opened:
            if store._dimensions == DIMENSIONS:
                await store.drop()
            await store.close()
