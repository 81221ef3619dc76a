"""A fake of Pinecone in, stores that talk to it by the real SDK out."""

from __future__ import annotations

from typing import Any, Protocol

from typing_extensions import override

from ragstore.contracts import TextQuery, VectorQuery
from ragstore.filters import Filter
from ragstore.models import Match
from ragstore_pinecone import PineconeStore


class OpenPinecone(Protocol):
    """Opens any number of stores at the fake; they are closed in the end."""

    def __call__(self, collection: str = "chunks", dimensions: int = 8, **options: Any) -> PineconeStore: ...


class PatientStore(PineconeStore):
    """Waits before a search until its own writes can be read, which a search does not do by itself."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        namespaces = await self._open()
        if namespaces is not None:
            await namespaces.rows.settle()
            await namespaces.texts.settle()
        return await super().search(query, filter=filter, limit=limit)
