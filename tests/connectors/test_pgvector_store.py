"""The pgvector store against the suite, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from typing_extensions import override

from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_pgvector import PgvectorStore


@pytest.fixture
async def make_pgvector(postgres_server: str) -> AsyncIterator[MakeStore]:
    """Makes stores in a schema of this test's own; closes them in the end."""
    from tests.support import postgres

    opened: list[PgvectorStore] = []
    with postgres.schema(postgres_server) as url:
        name = url.rpartition("schema=")[2]

        def make(collection: str, dimensions: int) -> PgvectorStore:
            opened.append(PgvectorStore(collection=collection, dimensions=dimensions, url=postgres_server, schema=name))
            return opened[-1]

        yield make
        for store in opened:
            await store.close()


class TestPgvectorStore(StoreSuite):
    @pytest.fixture
    @override
    def make_store(self, make_pgvector: MakeStore) -> MakeStore:
        return make_pgvector
