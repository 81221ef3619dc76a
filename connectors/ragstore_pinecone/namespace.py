"""Records in, requests within Pinecone's limits out, a few at a time; and a bounded wait for one's own writes to be readable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ragstore_pinecone.connection import Connection
from ragstore_pinecone.records import Record, document_of

if TYPE_CHECKING:
    from pinecone import AsyncIndex, QueryResponse, Vector

T = TypeVar("T")
_LOG = logging.getLogger("ragstore.pinecone")

# https://docs.pinecone.io/reference/api/database-limits
MOST_MATCHES: Final = 10_000
_BYTES_PER_UPSERT: Final = 2_000_000
_RECORDS_PER_UPSERT: Final = 1_000
_IDS_PER_DELETE: Final = 1_000
_IDS_PER_FETCH: Final = 100
"""Of 1,000; but they travel in the URL, 72 bytes each, and an answer holds their vectors."""
_IDS_PER_PAGE: Final = 100
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0


@dataclass(slots=True)
class _Unread:
    """What this process wrote to a namespace, as far as it is not known to be readable."""

    documents: set[str] = field(default_factory=set)
    lsn: int | None = None
    """The place of the last put or update in the namespace's log."""
    gone: set[str] = field(default_factory=set)
    """Some ids of the last delete after it. The SDK does not pass on where that stands, so they are asked for instead."""
    emptied: bool = False
    version: int = 0

    def wrote(self, ids: Collection[str]) -> None:
        """Before the request: an answer that is lost may be of a write that was not."""
        self.documents.update(map(document_of, ids))
        self.gone.difference_update(ids)
        self.emptied = False
        self.version += 1

    def reached(self, lsn: int | None) -> None:
        """The place of a write in the log, if its answer told one."""
        if lsn is not None:
            self.lsn = max(self.lsn or 0, lsn)

    def concerns(self, document_ids: Collection[str] | None) -> bool:
        """Whether any of it is of these documents, or is there at all."""
        return self.emptied or (bool(self.documents) if document_ids is None else not self.documents.isdisjoint(document_ids))


class Namespace:
    """One namespace of an index. Every method may be repeated."""

    def __init__(self, connection: Connection, index: AsyncIndex, name: str, *, slots: asyncio.Semaphore, wait_seconds: float) -> None:
        self.name = name
        self._connection = connection
        self._index = index
        self._slots = slots
        self._wait_seconds = wait_seconds
        self._unread = _Unread()
        self._settling = asyncio.Lock()

    async def put(self, records: Iterable[Record]) -> None:
        """Insert or overwrite."""
        from pinecone import Vector

        async def put(batch: Sequence[Record]) -> None:
            vectors = [Vector(id=one.id, values=list(one.values), metadata=dict(one.metadata)) for one in batch]
            self._unread.wrote([one.id for one in batch])
            answer = await self._call(lambda: self._index.upsert(vectors=vectors, namespace=self.name, show_progress=False))
            self._unread.reached(answer.response_info.lsn_committed if answer.response_info else None)

        await together(put(batch) for batch in _packed(records))

    async def update(self, metadata: Mapping[str, Mapping[str, Any]]) -> None:
        """Set fields of the metadata of these records, by id; the vector and other fields stay. An id that is not there stays away."""

        async def update(identity: str, fields: Mapping[str, Any]) -> None:
            answer = await self._call(lambda: self._index.update(id=identity, set_metadata=fields, namespace=self.name))
            self._unread.reached(answer.response_info.lsn_committed if answer.response_info else None)

        self._unread.wrote(metadata)
        for some in _some_of(metadata.items(), _IDS_PER_DELETE):
            await together(update(identity, fields) for identity, fields in some)

    async def delete(self, ids: Iterable[str]) -> None:
        """Delete these records, as far as they are there."""

        async def delete(some: list[str]) -> None:
            async def request() -> bool:
                await self._index.delete(ids=some, namespace=self.name)
                return True

            self._unread.wrote(some)
            await self._call(request, absent=False)
            self._unread.gone = set(some[:_IDS_PER_FETCH])

        for some in _some_of(ids, _IDS_PER_DELETE):
            await delete(some)

    async def clear(self) -> None:
        """Delete all records."""

        async def request() -> bool:
            await self._index.delete(delete_all=True, namespace=self.name)
            return True

        await self._call(request, absent=False)
        self._unread.emptied = True

    async def fetch(self, ids: Iterable[str]) -> dict[str, Vector]:
        """The records with these ids that are there, vectors included: Pinecone gives them always."""

        async def fetch(some: list[str]) -> Mapping[str, Vector]:
            return (await self._call(lambda: self._index.fetch(ids=some, namespace=self.name))).vectors

        found: dict[str, Vector] = {}
        for answer in await together(fetch(some) for some in _some_of(dict.fromkeys(ids), _IDS_PER_FETCH)):
            found |= answer
        return found

    async def ids(self, prefix: str | None = None) -> AsyncIterator[list[str]]:
        """The ids with this prefix, or all, page by page, each once."""
        token: str | None = None
        while True:
            page = await self._page(prefix, token)
            found = [item.id for item in page.vectors if item.id is not None]
            if found:
                yield found
            token = page.pagination.next if page.pagination is not None else None
            if not token:
                return

    async def ids_of(self, document_ids: Iterable[str]) -> dict[str, list[str]]:
        """The ids of the records of each of these documents."""

        async def listed(document_id: str) -> tuple[str, list[str]]:
            return document_id, [one async for page in self.ids(f"{document_id}#") for one in page]

        return dict(await together(listed(document_id) for document_id in dict.fromkeys(document_ids)))

    async def query(self, vector: Sequence[float], *, limit: int, condition: Mapping[str, Any] | None, metadata: bool) -> QueryResponse:
        """The nearest records, best first."""
        return await self._call(
            lambda: self._index.query(
                vector=vector, top_k=limit, filter=condition, include_metadata=metadata, include_values=False, namespace=self.name
            )
        )

    async def count(self) -> tuple[int, int]:
        """How many records there are here, and in the whole index; Pinecone says that it may lag."""
        stats = await self._call(self._index.describe_index_stats)
        mine = stats.namespaces.get(self.name)
        return (mine.vector_count if mine is not None else 0), stats.total_vector_count

    async def settle(self, document_ids: Collection[str] | None = None) -> None:
        """Wait until what this process wrote is readable, if any of it is of these documents (or at all); for a while, not for ever.

        Pinecone answers a write before it can be read. Answers to writes say their place in the log, answers to queries how much of the
        log is readable (https://docs.pinecone.io/guides/index-data/check-data-freshness); that a delete came through is seen by fetching.
        """
        async with self._settling:
            if not self._unread.concerns(document_ids):
                return
            end, wait = time.monotonic() + self._wait_seconds, _FIRST_WAIT
            while not await self._readable():
                if time.monotonic() + wait > end:
                    _LOG.warning("what was written to %s is not readable after %g seconds; going on", self.name, self._wait_seconds)
                    break
                await asyncio.sleep(wait)
                wait = min(_LONGEST_WAIT, wait * 1.5)
            self._unread = _Unread()

    async def _readable(self) -> bool:
        unread = self._unread
        version = unread.version
        if unread.lsn is not None:
            answer = await self.query([1.0] + [0.0] * (self._connection.dimensions - 1), limit=1, condition=None, metadata=False)
            reached = answer.response_info.lsn_reconciled if answer.response_info else None
            if reached is not None and reached < unread.lsn:
                return False
        if unread.gone and await self.fetch(unread.gone):
            return False
        if unread.emptied and (await self._page(None, None, limit=1)).vectors:
            return False
        return unread.version == version

    async def _page(self, prefix: str | None, token: str | None, *, limit: int = _IDS_PER_PAGE) -> Any:  # noqa: ANN401 - the SDK's ListResponse
        return await self._call(lambda: self._index.list_paginated(prefix=prefix, limit=limit, pagination_token=token, namespace=self.name))

    async def _call(self, request: Callable[[], Coroutine[Any, Any, T]], *, absent: T | None = None) -> T:
        async with self._slots:
            return await self._connection.call(request, absent=absent)


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; the first error ends the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _packed(records: Iterable[Record]) -> Iterable[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (size + record.bytes > _BYTES_PER_UPSERT or len(batch) == _RECORDS_PER_UPSERT):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record.bytes
    if batch:
        yield batch


def _some_of(items: Iterable[T], size: int) -> Iterable[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
