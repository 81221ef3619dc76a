"""Writes in, matches out, from a LanceDB table in a folder or in Azure: one writer, any number of readers in other processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from ragstore.contracts import Expunged, PutRows, Store, StoreCapabilities, StoreStats, TextQuery, VectorQuery, Write
from ragstore.errors import ConfigError
from ragstore.filters import Filter, Never, simplify
from ragstore.models import Match, Row, RowKey
from ragstore_lancedb import maintenance
from ragstore_lancedb.batches import batched
from ragstore_lancedb.collection import Collection
from ragstore_lancedb.commits import carry_out
from ragstore_lancedb.connection import Location
from ragstore_lancedb.counts import Counts
from ragstore_lancedb.failures import RAISED, is_conflict
from ragstore_lancedb.filters import one_of, where
from ragstore_lancedb.schema import KEY_COLUMNS, ROW_COLUMNS, to_keys, to_rows
from ragstore_lancedb.searching import BestText, Nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from lancedb.table import AsyncTable
    from numpy.typing import NDArray

_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DOCUMENTS_PER_READ: Final = 500


class LanceDBStore(Store):
    """A LanceDB table.

    - `path`: a folder, relative to `base`, or `az://container/prefix`. For Azure, `account` or a connection string says which account;
      the variables named by `connection_string_env`, `account_key_env` or `sas_token_env` open it, otherwise the environment's identity.
    - `ann_from`: from this many rows on, `maintain` builds an approximate index (IVF_RQ); until then every search is exact.
    - `exact_below`: with that index, a search whose filter admits at most this many rows is still exact. Approximate search under a narrow
      filter loses most of what it should find, silently.
    - `refine`: an approximate search fetches this many times `limit` candidates and ranks them by their full vectors.
    """

    capabilities = StoreCapabilities(full_text=True, exact_filters=True)

    def __init__(
        self,
        *,
        base: Path,
        collection: str,
        dimensions: int,
        path: str = ".ragstore/index",
        account: str | None = None,
        endpoint: str | None = None,
        connection_string_env: str | None = None,
        account_key_env: str | None = None,
        sas_token_env: str | None = None,
        exact_below: int = 50_000,
        ann_from: int = 100_000,
        refine: int = 20,
    ) -> None:
        if not _TABLE_NAME.fullmatch(collection):
            raise ConfigError(
                f"the collection name {collection!r} may hold letters, digits, '_', '-' and '.' only, and starts with none of the last two"
            )
        location = Location.of(
            path,
            base,
            account=account,
            endpoint=endpoint,
            connection_string_env=connection_string_env,
            account_key_env=account_key_env,
            sas_token_env=sas_token_env,
        )
        self._collection = Collection(location, collection, dimensions)
        self._counts = Counts()
        self._dimensions = dimensions
        self._exact_below = exact_below
        self._ann_from = ann_from
        self._refine = refine

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutRows):
                self._check([row.vector for row in write.rows])
        for batch in batched(writes):
            await carry_out(batch, self._collection, self._dimensions)

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        admitted = simplify(filter)
        if isinstance(admitted, Never) or limit <= 0:
            return []
        condition = where(admitted)
        search: Nearest | BestText
        if isinstance(query, TextQuery):
            search = BestText(text=query.text, condition=condition, limit=limit)
        else:
            self._check([query.vector])
            search = Nearest(
                vector=query.vector,
                condition=condition,
                limit=limit,
                exact_below=self._exact_below,
                refine=self._refine,
                counts=self._counts,
            )
        return await self._collection.read(search.run) or []

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        async for batch in self._scan(ROW_COLUMNS, document_ids):
            for row in to_rows(batch):
                yield row

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        async for batch in self._scan(KEY_COLUMNS, document_ids):
            for key in to_keys(batch):
                yield key

    @override
    async def maintain(self, *, force: bool = False) -> None:
        """Compact, index and clean up where it is due. A commit of another process that gets in the way postpones it to the next call."""

        async def run(table: AsyncTable) -> None:
            try:
                await maintenance.maintain(table, ann_from=self._ann_from, force=force)
            except RAISED as error:
                if not is_conflict(error):
                    raise

        await self._collection.read(run)

    @override
    async def expunge(self) -> Expunged:
        """Every fragment and index is written anew, then all older versions go, at once. In Azure, soft delete keeps them for its time."""
        before = await asyncio.to_thread(self._collection.files)

        async def run(table: AsyncTable) -> list[str]:
            await maintenance.expunge(table, ann_from=self._ann_from)
            return await maintenance.older_versions(table)

        versions = await self._collection.read(run) or []
        after = await asyncio.to_thread(self._collection.files)
        older = [str(file) for file, written in after.items() if before.get(file) == written]
        return Expunged(files=tuple(after), older=(*versions, *older))

    @override
    async def stats(self) -> StoreStats:
        async def read(table: AsyncTable) -> StoreStats:
            condition = await maintenance.Condition.of(table)
            detail: dict[str, int | str] = {
                "kind": "lancedb",
                "version": await table.version(),
                "fragments": condition.fragments,
                "unindexed_rows": condition.unindexed_rows,
                "indexes": ", ".join(sorted(condition.indexed)),
            }
            return StoreStats(rows=condition.rows, detail=detail)

        return await self._collection.read(read) or StoreStats(rows=0, detail={"kind": "lancedb"})

    @override
    async def drop(self) -> None:
        await self._collection.drop()

    @override
    async def close(self) -> None:
        await self._collection.close()

    def _check(self, vectors: Sequence[NDArray[np.float32]]) -> None:
        for vector in vectors:
            if vector.shape != (self._dimensions,):
                raise ConfigError(f"a vector has the shape {vector.shape}, but this collection wants ({self._dimensions},)")
        if vectors and not np.isfinite(np.concatenate(vectors)).all():
            raise ValueError("a vector holds a value that is not a finite number; the embedder that made it is at fault")

    async def _scan(self, columns: Sequence[str], document_ids: Sequence[str] | None) -> AsyncIterator[pa.RecordBatch]:
        conditions: list[str | None] = [None]
        if document_ids is not None:
            unique = list(dict.fromkeys(document_ids))
            conditions = [
                one_of("document_id", unique[start : start + _DOCUMENTS_PER_READ]) for start in range(0, len(unique), _DOCUMENTS_PER_READ)
            ]
        for condition in conditions:
            batches = await self._collection.read(partial(_select, columns=columns, condition=condition))
            if batches is None:
                continue
            try:
                async for batch in batches:
                    yield batch
            except RAISED as error:
                raise self._collection.translated(error) from error


async def _select(table: AsyncTable, *, columns: Sequence[str], condition: str | None) -> AsyncIterator[pa.RecordBatch]:
    query = table.query().select(list(columns))
    return await (query if condition is None else query.where(condition)).to_batches()
