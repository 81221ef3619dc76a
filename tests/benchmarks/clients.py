"""A store's name in, the store and its vendor's own client out, which write the same rows and ask the same question.

What a raw client is given is made ready before the clock runs: the columns, terms and filters as the store would send them. So the
difference is all that a store does besides: analysis and conversion, guarding generations, choosing how to search, ranking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types import TypeInfo
from typing_extensions import override

from ragstore.contracts import Store
from ragstore.filters import Filter
from ragstore.models import Row
from ragstore_azure.search import AzureSearchStore
from ragstore_azure.search.filters import where as odata
from ragstore_azure.search.schema import to_document
from ragstore_azure.search.service import index_name
from ragstore_lancedb import LanceDBStore
from ragstore_lancedb.connection import load_lancedb
from ragstore_lancedb.filters import where as lance
from ragstore_lancedb.schema import to_arrow
from ragstore_pgvector import PgvectorStore
from ragstore_pgvector.filters import where as sql
from ragstore_pgvector.schema import ACCESS, LISTS, SCALARS, access_values, text_vector, vector_bytes
from ragstore_pinecone import PineconeStore
from ragstore_pinecone.filters import translate
from ragstore_pinecone.records import Columns, row_record
from tests.benchmarks.fakes import KEY
from tests.benchmarks.topics import DIMENSIONS, Vectors

LIMIT = 10
KEY_VARIABLE: Final = "RAGSTORE_BENCHMARK_KEY"


class RawClient(ABC):
    """What its vendor ships, and nothing around it, at one collection that a store has made."""

    @abstractmethod
    def prepared(self, rows: Sequence[Row]) -> Any:
        """The rows as the client wants them."""

    @abstractmethod
    async def put(self, prepared: Any) -> None:
        """Insert or overwrite them."""

    @abstractmethod
    def asked(self, query: Vectors, admitted: Filter) -> Any:
        """The question as the client wants it."""

    @abstractmethod
    async def search(self, asked: Any) -> list[Any]:
        """Ids of the nearest ten chunks, as the vendor has them, with their documents and texts."""

    @abstractmethod
    async def close(self) -> None:
        """Give back connections."""


class Lance(RawClient):
    """LanceDB in a folder."""

    def __init__(self, table: Any) -> None:
        self._table = table

    @classmethod
    async def opened(cls, folder: Path, collection: str) -> Lance:
        """A table of the folder's."""
        return cls(await (await load_lancedb().connect_async(folder / "index")).open_table(collection))

    @override
    def prepared(self, rows: Sequence[Row]) -> Any:
        return to_arrow(rows, DIMENSIONS)

    @override
    async def put(self, prepared: Any) -> None:
        await self._table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all().execute(prepared)

    @override
    def asked(self, query: Vectors, admitted: Filter) -> Any:
        return query, lance(admitted)

    @override
    async def search(self, asked: Any) -> list[Any]:
        vector, condition = asked
        query = self._table.query().nearest_to(vector).distance_type("cosine").select(["chunk_id", "document_id", "text", "_distance"])
        found = await query.where(condition).limit(LIMIT).bypass_vector_index().to_arrow()
        return list(found.column("chunk_id").to_pylist())

    @override
    async def close(self) -> None:
        """Nothing is open."""


class VectorDumper(Dumper):
    """As the package `pgvector` has it: psycopg itself knows no vectors."""

    format = Format.BINARY

    @override
    def dump(self, obj: NDArray[np.float32]) -> bytes:
        return vector_bytes(obj, "f32")


_KEY = 'text COLLATE "C" NOT NULL'
_FLAT: Final = {
    "chunk_id": 'text COLLATE "C" PRIMARY KEY',
    "document_id": _KEY,
    "generation": "bigint NOT NULL",
    "text": _KEY,
    "terms": "tsvector NOT NULL",
    "words": "integer NOT NULL",
    "vector": f"vector({DIMENSIONS}) NOT NULL",
    **{name: _KEY if name in SCALARS else 'text[] COLLATE "C" NOT NULL' for name in ACCESS},
}
"""One table, as it is usually done."""
_BESIDE: Final = (
    "(document_id)",
    "(left(container, 200))",
    "(left(path, 200))",
    *(f"USING gin ({column})" for column in ("terms", *LISTS)),
)


class Psycopg(RawClient):
    """psycopg: `COPY` row by row into a temporary table, then an upsert into one table with the same columns and indexes.

    It asks our own tables, by a statement made by hand. Exact where `exact`, else as the planner likes, with an index that is searched on
    until the limit is filled.
    """

    def __init__(self, connection: Any, schema: str, collection: str) -> None:
        self.connection = connection
        self._flat = f'"{schema}"."{collection} flat"'
        self._table, self._access, self._vectors = (f'"{schema}"."{collection}{end}"' for end in ("", ":access", ":vectors"))
        self.exact = True

    @classmethod
    async def opened(cls, url: str, schema: str, collection: str) -> Psycopg:
        """A connection with its settings made."""
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        info = await TypeInfo.fetch(connection, "vector")
        assert info is not None
        info.register(connection)
        connection.adapters.register_dumper(np.ndarray, type("Bound", (VectorDumper,), {"oid": info.oid}))
        settings = ("jit = off", "random_page_cost = 1.1", "hnsw.iterative_scan = relaxed_order", "hnsw.ef_search = 400")
        for setting in (*settings, "hnsw.max_scan_tuples = 40000"):
            await connection.execute(f"SET {setting}".encode())
        client = cls(connection, schema, collection)
        given = ", ".join(f"{name} {'text' if name == 'terms' else kind.split()[0]}" for name, kind in _FLAT.items())
        await connection.execute(f"CREATE TEMPORARY TABLE given ({given}) ON COMMIT DELETE ROWS".encode())
        await connection.execute(f"CREATE TABLE {client._flat} ({', '.join(f'{name} {kind}' for name, kind in _FLAT.items())})".encode())
        for index in _BESIDE:
            await connection.execute(f"CREATE INDEX ON {client._flat} {index}".encode())
        return client

    @override
    def prepared(self, rows: Sequence[Row]) -> Any:
        made = []
        for row in rows:
            terms, words = text_vector(row.text)
            access = access_values(row.access)
            made.append((row.chunk_id, row.document_id, row.generation, row.text, terms, words, row.vector, *access))
        return made

    @override
    async def put(self, prepared: Any) -> None:
        names = ", ".join(_FLAT)
        changed = ", ".join(f"{name} = excluded.{name}" for name in _FLAT if name != "chunk_id")
        values = ", ".join(f"{name}::tsvector" if name == "terms" else name for name in _FLAT)
        async with self.connection.transaction(), self.connection.cursor() as cursor:
            async with cursor.copy(f"COPY given ({names}) FROM STDIN (FORMAT BINARY)".encode()) as copy:
                copy.set_types(["text" if name == "terms" else kind.split()[0].split("(")[0] for name, kind in _FLAT.items()])
                for row in prepared:
                    await copy.write_row(row)
            await cursor.execute(
                f"INSERT INTO {self._flat} ({names}) SELECT {values} FROM given ON CONFLICT (chunk_id) DO UPDATE SET {changed}".encode()
            )

    @override
    def asked(self, query: Vectors, admitted: Filter) -> Any:
        return query, sql(admitted)

    @override
    async def search(self, asked: Any) -> list[Any]:
        vector, condition = asked
        # No index gives the order by a sum.
        order = "(vector <=> %s) + 0" if self.exact else "vector <=> %s"
        statement = (
            f"SELECT chunk_id, document_id, text, vector <=> %s AS distance FROM {self._vectors} AS v JOIN {self._access} AS a "
            f"ON a.id = v.access_id JOIN {self._table} AS c ON c.id = v.id WHERE {condition.sql} ORDER BY {order} LIMIT {LIMIT}"
        )
        found = await self.connection.execute(statement.encode(), (vector, *condition.parameters, vector))
        return [row[0] for row in await found.fetchall()]

    @override
    async def close(self) -> None:
        await self.connection.close()


class AzureSdk(RawClient):
    """azure-search-documents, with the documents as dictionaries."""

    def __init__(self, endpoint: str, collection: str) -> None:
        from azure.core.credentials import AzureKeyCredential
        from azure.search.documents.aio import SearchClient

        self._client = SearchClient(endpoint, index_name("ragstore", collection), AzureKeyCredential(KEY))

    @override
    def prepared(self, rows: Sequence[Row]) -> Any:
        return [to_document(row, 1) for row in rows]

    @override
    async def put(self, prepared: Any) -> None:
        results = await self._client.upload_documents(documents=prepared)
        assert all(result.succeeded for result in results)

    @override
    def asked(self, query: Vectors, admitted: Filter) -> Any:
        return query.tolist(), odata(admitted).odata

    @override
    async def search(self, asked: Any) -> list[Any]:
        from azure.search.documents.models import VectorizedQuery

        query = VectorizedQuery(vector=asked[0], k_nearest_neighbors=LIMIT, fields="vector", exhaustive=True)
        found = await self._client.search(
            vector_queries=[query], filter=asked[1], vector_filter_mode="preFilter", select=["key", "document_id", "text"], top=LIMIT
        )
        return [one["key"] async for one in found]

    @override
    async def close(self) -> None:
        await self._client.close()


class PineconeSdk(RawClient):
    """pinecone, with its own objects for records."""

    def __init__(self, client: Any, index: Any, namespace: str) -> None:
        self._client, self._index, self._namespace = client, index, namespace

    @classmethod
    async def opened(cls, host: str, collection: str) -> PineconeSdk:
        """An index at the fake."""
        from pinecone import AsyncPinecone

        client = AsyncPinecone(api_key=KEY)
        return cls(client, await client.index(host=host), f"ragstore.{collection}")

    @override
    def prepared(self, rows: Sequence[Row]) -> Any:
        from pinecone import Vector

        records = [row_record(row, Columns.of(row.access))[0] for row in rows]
        return [Vector(id=one.id, values=list(one.values), metadata=dict(one.metadata)) for one in records]

    @override
    async def put(self, prepared: Any) -> None:
        await self._index.upsert(vectors=prepared, namespace=self._namespace, show_progress=False)

    @override
    def asked(self, query: Vectors, admitted: Filter) -> Any:
        return query.tolist(), translate(admitted).condition

    @override
    async def search(self, asked: Any) -> list[Any]:
        found = await self._index.query(vector=asked[0], top_k=LIMIT, filter=asked[1], include_metadata=True, namespace=self._namespace)
        return [one.id for one in found.matches]

    @override
    async def close(self) -> None:
        await self._index.close()
        await self._client.close()


class Vendor(ABC):
    """One place in which stores and raw clients have collections."""

    name: str
    batch: int
    """Rows of a call; for a vendor that takes them in requests, of a request."""

    @abstractmethod
    def store(self, collection: str) -> Store:
        """A store."""

    @abstractmethod
    async def raw(self, collection: str) -> RawClient:
        """A client at what a store has made."""


class LanceVendor(Vendor):
    """A folder."""

    name, batch = "lancedb", 500

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def store(self, collection: str) -> Store:
        return LanceDBStore(base=self._folder, path="index", collection=collection, dimensions=DIMENSIONS)

    @override
    async def raw(self, collection: str) -> RawClient:
        return await Lance.opened(self._folder, collection)


class PostgresVendor(Vendor):
    """A server."""

    name, batch = "pgvector", 500

    def __init__(self, url: str) -> None:
        self.url = url

    @override
    def store(self, collection: str, **options: Any) -> PgvectorStore:
        return PgvectorStore(collection=collection, dimensions=DIMENSIONS, url=self.url, **options)

    @override
    async def raw(self, collection: str) -> Psycopg:
        return await Psycopg.opened(self.url, "ragstore", collection)


class AzureVendor(Vendor):
    """A fake of AI Search."""

    name, batch = "azure-search", 500

    def __init__(self, url: str) -> None:
        self._url = url

    @override
    def store(self, collection: str) -> Store:
        return AzureSearchStore(collection=collection, dimensions=DIMENSIONS, endpoint=self._url, key_env=KEY_VARIABLE)

    @override
    async def raw(self, collection: str) -> RawClient:
        return AzureSdk(self._url, collection)


class PineconeVendor(Vendor):
    """A fake of Pinecone. More rows than these are more than the 2 MB of a request."""

    name, batch = "pinecone", 150

    def __init__(self, host: str) -> None:
        self._host = host

    @override
    def store(self, collection: str) -> Store:
        return PineconeStore(collection=collection, dimensions=DIMENSIONS, host=self._host, api_key_env=KEY_VARIABLE)

    @override
    async def raw(self, collection: str) -> RawClient:
        return await PineconeSdk.opened(self._host, collection)
