"""Document ids or keys in, what the index holds of them out: page by page, however many rows there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragstore.errors import StoreDamagedError
from ragstore_azure.search.filters import one_of
from ragstore_azure.search.recent import Recent, Written
from ragstore_azure.search.searching import PAGE
from ragstore_azure.search.strings import original, storable

if TYPE_CHECKING:
    from azure.search.documents.aio import SearchClient

    from ragstore_azure.search.service import Service

_VALUES: Final = 500
"""Ids in one filter."""
_VECTORS: Final = 250
"""Rows in one answer where vectors come along."""
_FIRST_POLL_SECONDS: Final = 0.02
_LONGEST_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a write must know of a row."""

    document_id: str
    generation: int


class Reader:
    """Reads rows of one index, those included that this process wrote and the service does not show yet."""

    def __init__(self, service: Service, recent: Recent, *, settle_seconds: float) -> None:
        self._service = service
        self._recent = recent
        self._settle_seconds = settle_seconds

    async def of_documents(self, document_ids: Sequence[str]) -> dict[str, Stored]:
        """The rows of these documents, by key."""
        found = {}
        for condition in _conditions("document_id", list(map(storable, dict.fromkeys(document_ids)))):
            async for document in self.scan(condition, ["key", "document_id", "generation", "ordinal"]):
                found[document["key"]] = _stored(document)
        return _with(found, self._recent.of_documents(set(document_ids)))

    async def of_keys(self, keys: Sequence[str]) -> dict[str, Stored]:
        """The rows with these keys, by key."""
        found = {}
        for condition in _conditions("key", keys):
            async for document in self.scan(condition, ["key", "document_id", "generation", "ordinal"]):
                found[document["key"]] = _stored(document)
        return _with(found, self._recent.of_keys(keys))

    async def settle(self, document_ids: Collection[str] | None = None) -> None:
        """Wait until the service shows what this process wrote to these documents, or to any; not longer than `settle_seconds`."""
        until, pause = time.monotonic() + self._settle_seconds, _FIRST_POLL_SECONDS
        while True:
            waiting = self._recent.of_documents(document_ids)
            if not waiting:
                return
            shown: dict[str, int] = {}
            for condition in _conditions("key", list(waiting)):
                async for document in self.scan(condition, ["key", "stamp", "ordinal"]):
                    shown[document["key"]] = document["stamp"]
            self._recent.forget(key for key, written in waiting.items() if _visible(written, shown.get(key)))
            waiting = self._recent.of_documents(document_ids)
            if time.monotonic() > until:
                self._recent.forget(waiting)  # somebody else wrote the same rows; one does not wait for that twice
                return
            if not waiting:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_SECONDS)

    async def documents(self, document_ids: Sequence[str] | None, fields: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]:
        """Every document of the index, or of these document ids, with these fields, `ordinal` among them."""
        conditions: Sequence[str | None] = [None]
        if document_ids is not None:
            conditions = _conditions("document_id", list(map(storable, dict.fromkeys(document_ids))))
        for condition in conditions:
            async for document in self.scan(condition, fields):
                yield document

    async def scan(self, condition: str | None, fields: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]:
        """Every document that satisfies the condition, in the order of `ordinal`: each page goes on behind the one before.

        `skip` would end at 100,000, and lose its place where rows come and go meanwhile.
        """
        page_size = _VECTORS if "vector" in fields else PAGE
        last, seen = -1, set[str]()
        while True:
            behind = f"ordinal ge {last}" if last >= 0 else None
            odata = " and ".join(f"({part})" for part in (condition, behind) if part is not None) or None
            page = await self._page(odata, fields, page_size)
            if page is None:
                self._recent.clear()
                return
            new = [document for document in page if document["key"] not in seen]
            for document in new:
                yield document
            if len(page) < page_size:
                return
            if not new:
                raise StoreDamagedError(
                    f"{self._service.where} has {page_size} rows of one ordinal; make it anew with: ragstore verify --repair"
                )
            last = page[-1]["ordinal"]
            seen = {document["key"] for document in page if document["ordinal"] == last}

    async def _page(self, odata: str | None, fields: Sequence[str], size: int) -> list[Mapping[str, Any]] | None:
        async def ask(client: SearchClient) -> list[Mapping[str, Any]]:
            order = ["ordinal asc", "key asc"]
            return [one async for one in await client.search(search_text="*", filter=odata, order_by=order, top=size, select=list(fields))]

        return await self._service.read(ask)


def _conditions(field: str, values: Sequence[str]) -> list[str]:
    return [one_of(field, values[start : start + _VALUES]) for start in range(0, len(values), _VALUES)]


def _stored(document: Mapping[str, Any]) -> Stored:
    return Stored(document_id=original(document["document_id"]), generation=document["generation"])


def _with(found: dict[str, Stored], written: Mapping[str, Written]) -> dict[str, Stored]:
    """What is stored, by the latest that this process knows."""
    for key, one in written.items():
        if one.generation is None:
            found.pop(key, None)
        else:
            found[key] = Stored(document_id=one.document_id, generation=one.generation)
    return found


def _visible(written: Written, stamp: int | None) -> bool:
    return stamp is None if written.generation is None else stamp is not None and stamp >= written.stamp
