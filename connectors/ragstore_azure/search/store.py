"""Writes in, matches out, from an index of Azure AI Search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from ragstore.contracts import Expunged, PutRows, Store, StoreCapabilities, StoreStats, TextQuery, VectorQuery, Write
from ragstore.errors import ConfigError
from ragstore.filters import Filter, Never, simplify
from ragstore.models import Match, Row, RowKey
from ragstore_azure.search import expunging
from ragstore_azure.search.connection import Connection
from ragstore_azure.search.failures import Patience
from ragstore_azure.search.filters import where
from ragstore_azure.search.reading import Reader
from ragstore_azure.search.recent import Recent
from ragstore_azure.search.schema import KEY_FIELDS, ROW_FIELDS, to_key, to_row
from ragstore_azure.search.searching import Searcher, count
from ragstore_azure.search.service import Service, index_name
from ragstore_azure.search.writing import Writer, batched

if TYPE_CHECKING:
    from numpy.typing import NDArray


class AzureSearchStore(Store):
    """An index of Azure AI Search, one for each collection.

    - `endpoint`: `https://NAME.search.windows.net`. `key_env` names the variable that holds an admin key; without it the environment's
      identity is asked, which needs the roles 'Search Service Contributor' and 'Search Index Data Contributor'.
    - `index`: what the names of the indexes begin with; an index is created where there is none, and checked where there is one.
    - `semantic`: the name of a semantic configuration, which reranks the first 50 rows of a text query. It costs extra, and is a part of
      the index: set it before the first `ragstore index`.
    - `exact_below`: a search whose filter admits at most this many rows compares all of them; beyond it the graph (HNSW) is searched.
    - `batch_rows`, `batch_bytes`: of one request, at most 1,000 and 16,000,000.
    - `timeout`: seconds to wait for an answer. `settle`: seconds that `verify` waits at most until this process's own writes are shown.

    Filters are supersets: a prefix counts to its last `/`, and patterns to their first wildcard. Retrieval checks every hit.
    """

    capabilities = StoreCapabilities(full_text=True, exact_filters=False, our_terms=True, immediate=False)
    patience = Patience()

    def __init__(
        self,
        *,
        collection: str,
        dimensions: int,
        endpoint: str,
        key_env: str | None = None,
        index: str = "ragstore",
        semantic: str | None = None,
        exact_below: int = 50_000,
        batch_rows: int = 1_000,
        batch_bytes: int = 12_000_000,
        timeout: float = 60.0,
        settle: float = 10.0,
    ) -> None:
        self._dimensions = dimensions
        self.capabilities = replace(self.capabilities, lag_seconds=settle)
        self._connection = Connection(endpoint=endpoint, key_env=key_env, timeout=timeout)
        name = index_name(index, collection)
        self._service = Service(self._connection, name, dimensions=dimensions, semantic=semantic, patience=self.patience)
        self._recent = Recent()
        self._reader = Reader(self._service, self._recent, settle_seconds=settle)
        self._writer_of = partial(Writer, reader=self._reader, batch_rows=batch_rows, batch_bytes=batch_bytes)
        self._writer = self._writer_of(self._service, recent=self._recent)
        self._searcher = Searcher(self._service, exact_below=exact_below, semantic=semantic)

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutRows):
                self._check([row.vector for row in write.rows])
        for batch in batched(writes):
            await self._writer.carry_out(batch)

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        admitted = simplify(filter)
        if isinstance(query, VectorQuery):
            self._check([query.vector])
        if isinstance(admitted, Never) or limit <= 0:
            return []
        condition = where(admitted)
        if isinstance(query, TextQuery):
            return await self._searcher.best(query.text, condition.odata, limit)
        return await self._searcher.nearest(query.vector, condition.odata, limit)

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        await self._reader.settle(set(document_ids))
        async for document in self._reader.documents(document_ids, ROW_FIELDS):
            yield to_row(document)

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        await self._reader.settle(None if document_ids is None else set(document_ids))
        async for document in self._reader.documents(document_ids, KEY_FIELDS):
            yield to_key(document)

    async def settle(self) -> None:
        """Wait until searches show what this process wrote, or `settle` seconds are over."""
        await self._reader.settle()

    @override
    async def maintain(self, *, force: bool = False) -> None:
        """The service looks after its index itself."""

    @override
    async def expunge(self) -> Expunged:
        """The rows are copied into a new index, and the old one is deleted. Nothing of either lies on this machine."""
        await expunging.expunge(self._service, self._reader, lambda copy: self._writer_of(copy, recent=Recent()))
        return Expunged()

    @override
    async def stats(self) -> StoreStats:
        await self._reader.settle()
        rows = await self._service.read(lambda client: count(client, None)) or 0
        sizes = await self._service.sizes()
        return StoreStats(rows=rows, detail={"kind": "azure-search", "index": self._service.index, **sizes})

    @override
    async def drop(self) -> None:
        await self._service.drop()
        self._recent.clear()

    @override
    async def close(self) -> None:
        await self._connection.close()

    def _check(self, vectors: Sequence[NDArray[np.float32]]) -> None:
        for vector in vectors:
            if vector.shape != (self._dimensions,):
                raise ConfigError(f"a vector has the shape {vector.shape}, but this collection wants ({self._dimensions},)")
        if vectors and not np.isfinite(np.concatenate(vectors)).all():
            raise ValueError("a vector holds a value that is not a finite number; the embedder that made it is at fault")
