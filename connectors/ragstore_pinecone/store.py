"""Writes in, matches out, from a namespace of a serverless index in Pinecone, whose writes can be read some seconds later."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
from typing_extensions import override

from ragstore.contracts import Expunged, PutRows, Store, StoreCapabilities, StoreStats, TextQuery, VectorQuery, Write
from ragstore.embedding.retry import RetryBudget
from ragstore.errors import ConfigError
from ragstore.filters import Filter, Never, simplify
from ragstore.models import Match, Row, RowKey
from ragstore_pinecone.connection import Connection, Location
from ragstore_pinecone.filters import translate
from ragstore_pinecone.namespace import MOST_MATCHES, Namespace
from ragstore_pinecone.records import document_of, key_of, named, part_ids, parts_of, text_of
from ragstore_pinecone.writing import Sizes, Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pinecone import AsyncIndex, ScoredVector, Vector

_COLLECTION: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,200}")
_WITH_METADATA: Final = 90
"""Matches whose metadata is asked for with them: 40 KB each, and an answer holds 4 MB. Of more, it is fetched afterwards."""
_DOCUMENTS_PER_READ: Final = 100
_READY_SECONDS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Namespaces:
    """A collection: the namespace of its rows, and that of the texts that do not fit into those."""

    rows: Namespace
    texts: Namespace


class PineconeStore(Store):
    """A namespace of a Pinecone index, which is serverless, has the dimensions of the embedder and the metric cosine.

    - `index`: its name; or `host`: its host, where the key has no right to describe indexes.
    - `cloud`, `region`: where the index is made if it is not there yet. Without them it must be there.
    - `namespace`: rows are kept in `NAMESPACE.COLLECTION`, and texts that do not fit into a record in `NAMESPACE.COLLECTION~text`.
    - `api_key_env`: the environment variable that holds the API key.
    - `endpoint`: of the control plane, where it is not Pinecone's own.
    - `concurrency`: requests at a time. `timeout`: seconds for each.
    - `attempts`, `retry_seconds`: how long throttling and outages are waited out before `TransientError`; `Retry-After` is honoured.
    - `wait_seconds`: how long `keys`, `rows`, `stats` and writes to the same document wait until this process's own writes can be read.

    It has no full text, and its filters take in more rows than asked for (`ragstore_pinecone.filters`). A search returns at most 10,000
    rows. The access columns of a document take at most 40 KB, with the names of its readers and labels; more raises `PoisonError`.
    """

    capabilities = StoreCapabilities(full_text=False, exact_filters=False, our_terms=False, immediate=False)

    def __init__(
        self,
        *,
        collection: str,
        dimensions: int,
        index: str | None = None,
        host: str | None = None,
        cloud: str | None = None,
        region: str | None = None,
        namespace: str = "ragstore",
        api_key_env: str = "PINECONE_API_KEY",
        endpoint: str | None = None,
        concurrency: int = 8,
        timeout: float = 30.0,
        attempts: int = 4,
        retry_seconds: float = 60.0,
        wait_seconds: float = 30.0,
    ) -> None:
        if not _COLLECTION.fullmatch(collection):
            raise ConfigError(f"the collection name {collection!r} may hold letters, digits, '_', '-' and '.' only")
        if not _NAMESPACE.fullmatch(namespace):
            raise ConfigError(f"[store] namespace = {namespace!r} may hold letters, digits, '_' and '-' only")
        if concurrency < 1 or attempts < 1 or timeout <= 0:
            raise ConfigError("[store] concurrency and attempts are 1 or more, and timeout is more than 0 seconds")
        location = Location(index=index, host=host, endpoint=endpoint, api_key_env=api_key_env, cloud=cloud, region=region)
        budget = RetryBudget(attempts=attempts, seconds=retry_seconds)
        self._connection = Connection(location, dimensions, timeout=timeout, budget=budget, ready_seconds=_READY_SECONDS)
        self._dimensions = dimensions
        self._name = f"{namespace}.{collection}"
        self._concurrency = concurrency
        self._wait_seconds = wait_seconds
        self.capabilities = replace(self.capabilities, lag_seconds=wait_seconds)
        self._namespaces: _Namespaces | None = None

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutRows):
                for row in write.rows:
                    self._check(row.vector)
        sizes = Sizes.checked(writes)
        namespaces = await self._open(create=True) if writes else None
        if namespaces is not None:
            await Writer(rows=namespaces.rows, texts=namespaces.texts, dimensions=self._dimensions).write(writes, sizes)

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        if isinstance(query, TextQuery):
            raise ConfigError("the store 'pinecone' has no full text; search by vectors only (legs = \"vector\"), or use another store")
        self._check(query.vector)
        admitted = simplify(filter)
        if isinstance(admitted, Never) or limit <= 0:
            return []
        condition = translate(admitted).condition
        namespaces = await self._open()
        if namespaces is None:
            return []
        vector = np.asarray(query.vector, np.float32).tolist()
        few = limit <= _WITH_METADATA
        answer = await namespaces.rows.query(vector, limit=min(limit, MOST_MATCHES), condition=condition, metadata=few)
        found = {one.id: one for one in answer.matches} if few else await namespaces.rows.fetch(one.id for one in answer.matches)
        texts = await self._texts(namespaces, found.values())
        return [
            Match(chunk_id=one.id.partition("#")[2], document_id=document_of(one.id), text=text, score=one.score)
            for one in answer.matches
            if (text := texts.get(one.id)) is not None
        ]

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        namespaces = await self._open()
        if namespaces is None:
            return
        async for records in self._records(namespaces, document_ids):
            texts = await self._texts(namespaces, records)
            for record in records:
                key, text = key_of(record), texts[record.id]
                if text is not None:
                    yield Row(
                        chunk_id=key.chunk_id,
                        document_id=key.document_id,
                        generation=key.generation,
                        text=text,
                        vector=np.array(record.values, np.float32),
                        access=key.access,
                    )

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        namespaces = await self._open()
        if namespaces is None:
            return
        async for records in self._records(namespaces, document_ids):
            beside = await self._texts(namespaces, [record for record in records if parts_of(record.metadata)])
            for record in records:
                if beside.get(record.id, "") is not None:  # without its text it is not found, so it is missing
                    yield key_of(record)

    @override
    async def maintain(self, *, force: bool = False) -> None:
        """Nothing is ever due: Pinecone looks after its indexes itself."""

    @override
    async def expunge(self) -> Expunged:
        """Texts that belong to no row go. What Pinecone keeps of deleted records, and for how long, is not ours to see: its backups too."""
        namespaces = await self._open()
        if namespaces is not None:
            await self._sweep(namespaces)
        return Expunged()

    @override
    async def stats(self) -> StoreStats:
        namespaces = await self._open()
        if namespaces is None:
            return StoreStats(rows=0, detail={"kind": "pinecone"})
        await namespaces.rows.settle()
        rows, records = await namespaces.rows.count()
        texts, _ = await namespaces.texts.count()
        detail: dict[str, int | str] = {"kind": "pinecone", "namespace": self._name, "texts_beside": texts, "index_records": records}
        return StoreStats(rows=rows, detail=detail)

    @override
    async def drop(self) -> None:
        """The namespaces go; the index, which others may use, stays."""
        namespaces = await self._open()
        if namespaces is not None:
            await namespaces.rows.clear()
            await namespaces.texts.clear()

    @override
    async def close(self) -> None:
        self._namespaces = None
        await self._connection.close()

    async def _open(self, *, create: bool = False) -> _Namespaces | None:
        if self._namespaces is None:
            index = await self._connection.index(create=create)
            if index is None:
                return None
            self._made(index)
        return self._namespaces

    def _made(self, index: AsyncIndex) -> None:
        if self._namespaces is None:  # of two that open it at a time, one has waited for the other
            slots = asyncio.Semaphore(self._concurrency)
            rows, texts = (
                Namespace(self._connection, index, name, slots=slots, wait_seconds=self._wait_seconds)
                for name in (self._name, f"{self._name}~text")
            )
            self._namespaces = _Namespaces(rows=rows, texts=texts)

    def _check(self, vector: NDArray[np.float32]) -> None:
        if vector.shape != (self._dimensions,):
            raise ConfigError(f"a vector has the shape {vector.shape}, but this collection wants ({self._dimensions},)")
        if not np.isfinite(vector).all():
            raise ValueError("a vector holds a value that is not a finite number; the embedder that made it is at fault")

    async def _records(self, namespaces: _Namespaces, document_ids: Sequence[str] | None) -> AsyncIterator[list[Vector]]:
        await namespaces.rows.settle(document_ids)
        await namespaces.texts.settle(document_ids)
        if document_ids is None:
            async for page in namespaces.rows.ids():
                yield list((await namespaces.rows.fetch(page)).values())
            return
        left = iter(dict.fromkeys(one for one in document_ids if named(one)))
        while some := list(islice(left, _DOCUMENTS_PER_READ)):
            listed = [one for ids in (await namespaces.rows.ids_of(some)).values() for one in ids]
            for start in range(0, len(listed), _DOCUMENTS_PER_READ):
                yield list((await namespaces.rows.fetch(listed[start : start + _DOCUMENTS_PER_READ])).values())

    async def _texts(self, namespaces: _Namespaces, records: Iterable[Vector | ScoredVector]) -> dict[str, str | None]:
        """The text of each of these records, by id; None for one that is kept beside and not all there, or not yet."""
        metadata = {record.id: record.metadata for record in records}
        wanted = [part for identity, one in metadata.items() for part in part_ids(identity, 0, parts_of(one))]
        beside = await namespaces.texts.fetch(wanted) if wanted else {}
        return {identity: text_of(identity, one, beside) for identity, one in metadata.items()}

    async def _sweep(self, namespaces: _Namespaces) -> None:
        """Remove parts of texts of which no row tells: what two writers of one document left, or a crash."""
        await namespaces.rows.settle()
        await namespaces.texts.settle()
        async for page in namespaces.texts.ids():
            owners = {part: part.rpartition("#")[0] for part in page}
            rows = await namespaces.rows.fetch(owners.values())
            held = {part for identity, row in rows.items() for part in part_ids(identity, 0, parts_of(row.metadata))}
            orphans = [part for part in page if part not in held]
            if orphans:
                await namespaces.texts.delete(orphans)
