"""Writes in, matches out, from a table in PostgreSQL: any number of writers and readers, each change whole or not at all."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from ragstore.contracts import Expunged, PutRows, Store, StoreCapabilities, StoreStats, TextQuery, VectorQuery, Write
from ragstore.errors import ConfigError
from ragstore.filters import Filter, Never, simplify
from ragstore.models import Match, Row, RowKey
from ragstore_pgvector import maintenance
from ragstore_pgvector.commits import carry_out, steps
from ragstore_pgvector.estimates import Estimates
from ragstore_pgvector.filters import where
from ragstore_pgvector.full_text import BestText, Sizes
from ragstore_pgvector.names import Names, Precision
from ragstore_pgvector.schema import KEY_SELECT, ROW_SELECT, to_keys, to_rows
from ragstore_pgvector.searching import Nearest
from ragstore_pgvector.strings import storable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragstore_pgvector.connection import Connection

_MOST_DIMENSIONS: Final = 16_000
_LARGEST_HALF: Final = 65_504.0


class PgvectorStore(Store):
    """Tables in PostgreSQL with pgvector 0.8 or newer; a ledger may live in the same database, in a schema of its own.

    - `url`: `postgresql://USER@HOST/DATABASE`, or the variable named by `url_env` holds it. The password is in `PGPASSWORD` or `~/.pgpass`.
    - `schema`: where the tables are; it is made if need be.
    - `precision`: "f16" halves the vectors (`halfvec`); what comes back is rounded to three digits.
    - `ann_from`: from this many rows on, `maintain` builds an approximate index (HNSW); until then every search is exact.
    - `exact_below`: with that index, a search whose filter admits at most about this many rows, as the planner of PostgreSQL estimates,
      is still exact, where other indexes find these rows; so is one that finds few of the nearest rows admitted, whatever was estimated. An
      approximate search under such filters would lose most rows, silently.
    - `reader_url`, or `reader_url_env`: another user for searches alone, who needs no more than SELECT. What the database does not let it
      see no search finds, whatever ragstore makes of a filter: row-level security is a second wall there. Everything else sees all rows.
    - `pool_size`: connections in use at a time, but for long results.
    """

    capabilities = StoreCapabilities(full_text=True, exact_filters=True)

    def __init__(
        self,
        *,
        collection: str,
        dimensions: int,
        url: str | None = None,
        url_env: str | None = None,
        reader_url: str | None = None,
        reader_url_env: str | None = None,
        schema: str = "ragstore",
        precision: Precision = "f32",
        exact_below: int = 20_000,
        ann_from: int = 50_000,
        pool_size: int = 8,
    ) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise ConfigError("the store 'pgvector' needs psycopg, which is not installed: pip install 'ragstore[pgvector]'")
        from ragstore_pgvector.collection import Collection
        from ragstore_pgvector.connection import Database, url_of

        if not 0 < dimensions <= _MOST_DIMENSIONS:
            raise ConfigError(f"pgvector keeps vectors of 1 to {_MOST_DIMENSIONS:,} dimensions, not {dimensions}; choose another embedder")
        if pool_size < 1:
            raise ConfigError(f"[store] pool_size = {pool_size} must be at least 1")
        names = Names(schema=schema, collection=collection, dimensions=dimensions, precision=precision)
        self._collection = self._searched = Collection(Database(url_of(url, url_env), pool_size), names)
        if reader_url is not None or reader_url_env is not None:
            reader = url_of(reader_url, reader_url_env, option="reader_url")
            self._searched = Collection(Database(reader, pool_size), names, searched_only=True)
        self._names = names
        self._exact_below = exact_below
        self._ann_from = ann_from
        self._sizes: Sizes | None = None
        self._estimates = Estimates()

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        """All of it in one transaction: whoever searches meanwhile sees everything as it was, or as it is then."""
        for write in writes:
            if isinstance(write, PutRows):
                self._check([row.vector for row in write.rows])
        todo = list(steps(writes))
        if not todo:
            return

        async def change(connection: Connection, names: Names) -> None:
            for step in todo:
                await carry_out(step, connection, names)

        await self._collection.write(change)
        self._sizes = None

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        admitted = simplify(filter)
        if isinstance(admitted, Never) or limit <= 0:
            return []
        condition = where(admitted)
        if isinstance(query, TextQuery):
            text = BestText(text=query.text, condition=condition, limit=limit)
            return await self._searched.read(partial(self._by_text, text)) or []
        self._check([query.vector])
        nearest = Nearest(
            vector=query.vector,
            condition=condition,
            by_index=where(admitted, by_index=True),
            limit=limit,
            exact_below=self._exact_below,
            estimates=self._estimates,
        )
        return await self._searched.read(nearest.run) or []

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        async for found in self._scan(f"{ROW_SELECT} FROM {{vectors}} AS vectors JOIN {{table}} AS stored USING (id)", document_ids):
            for row in to_rows(found, self._names.precision):
                yield row

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        # A chunk whose vector is not there, or under other access columns, is not found: it is missing, and to be put again.
        async for found in self._scan(
            f"{KEY_SELECT} FROM {{vectors}} AS vectors JOIN {{table}} AS stored USING (id, access_id)", document_ids
        ):
            for key in to_keys(found):
                yield key

    @override
    async def maintain(self, *, force: bool = False) -> None:
        await self._collection.read(partial(maintenance.maintain, ann_from=self._ann_from, force=force))
        self._sizes = None
        self._estimates.forget()

    @override
    async def expunge(self) -> Expunged:
        """The table and its indexes are written anew (`VACUUM FULL`), for which nobody may read them meanwhile.

        The server's WAL, its backups, and dead rows of its own catalogue of statistics are its administrator's.
        """
        return Expunged(older=tuple(await self._collection.read(maintenance.expunge) or ()))

    @override
    async def stats(self) -> StoreStats:
        if self._searched is not self._collection:  # whoever asks for sizes asks whether a search would be answered
            await self._searched.read(self._estimates.usable)
        found = await self._collection.read(maintenance.detail)
        return StoreStats(rows=0, detail={"kind": "pgvector"}) if found is None else StoreStats(rows=found[0], detail=found[1])

    @override
    async def drop(self) -> None:
        await self._collection.drop()
        self._estimates.forget()

    @override
    async def close(self) -> None:
        await self._collection.close()
        await self._searched.close()

    async def _by_text(self, text: BestText, connection: Connection, names: Names) -> list[Match]:
        if self._sizes is None or not self._sizes.fresh:
            self._sizes = await Sizes.of(connection, names)
        return await text.run(connection, names, self._sizes)

    def _check(self, vectors: Sequence[NDArray[np.float32]]) -> None:
        names = self._names
        for vector in vectors:
            if vector.shape != (names.dimensions,):
                raise ConfigError(f"a vector has the shape {vector.shape}, but this collection wants ({names.dimensions},)")
        if not vectors:
            return
        together = np.concatenate(vectors)
        if not np.isfinite(together).all():
            raise ValueError("a vector holds a value that is not a finite number; the embedder that made it is at fault")
        if names.precision == "f16" and np.abs(together).max() > _LARGEST_HALF:
            raise ConfigError("a vector holds a value that precision = 'f16' cannot; normalise the vectors, or let it be 'f32'")

    async def _scan(self, selected: str, document_ids: Sequence[str] | None) -> AsyncIterator[list[tuple[Any, ...]]]:
        template, parameters = f"SELECT {selected} JOIN {{access}} AS held ON held.id = stored.access_id", list[object]()
        if document_ids is not None:
            if not document_ids:
                return
            template += " WHERE document_id = ANY(%s::text[])"
            parameters.append([storable(document_id) for document_id in dict.fromkeys(document_ids)])
        async for found in self._collection.scan(template, parameters):
            yield found
