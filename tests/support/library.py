"""A memory store beside a committed list, and a store that is watched, for the tests of what retrieval asks and shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from ragstore.access import GroupsPolicy, Policy
from ragstore.contracts import PutRows, Reranker, Store, StoreCapabilities, TextQuery, VectorQuery
from ragstore.embedding.hashing import HashEmbedder
from ragstore.filters import ALWAYS, Filter
from ragstore.models import AccessAttributes, BlobId, CommittedChunk, Match, Principal, Row, chunk_id, text_hash
from ragstore.retrieval import Committed, Retriever
from ragstore_memory import MemoryStore

ALICE = Principal(id="alice", name="Alice", groups=frozenset({"staff"}))
GROUPS = GroupsPolicy(tag_key="allow")
PLACE: dict[str, Any] = {"start": 0, "page": 1, "heading": "A", "title": "T", "media_type": "text/plain", "version": "v", "etag": "e"}


class Library:
    """A memory store and a ledger's committed list, filled side by side."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.embedder = HashEmbedder()
        self.store = MemoryStore(collection=name, dimensions=self.embedder.dimensions, namespace="test_retrieval_search")
        self.policy = policy
        self.ledger: dict[str, CommittedChunk] = {}

    async def add(self, path: str, *texts: str, allow: str | None = "staff", commit: bool = True, stale: bool = False) -> list[str]:
        """A blob with these chunks; returns their ids."""
        blob = BlobId(account="local", container="docs", path=path)
        access = AccessAttributes(account="local", container="docs", path=path, tags={} if allow is None else {"allow": allow})
        columns = self.policy.columns(access, media_type="text/plain")
        vectors = await self.embedder.embed(texts, purpose="document")
        rows = []
        for index, text in enumerate(texts):
            row_id = chunk_id(blob.document_id, text_hash(text), 0)
            rows.append(Row(chunk_id=row_id, document_id=blob.document_id, generation=1, text=text, vector=vectors[index], access=columns))
            if commit:
                ids: dict[str, Any] = {"chunk_id": row_id, "document_id": blob.document_id}
                access_twice: dict[str, Any] = {"generation_access": access, "current_access": access}
                self.ledger[row_id] = CommittedChunk(**PLACE, **ids, **access_twice, blob=blob, end=len(text), stale=stale)
        await self.store.apply([PutRows(rows=rows)])
        return [row.chunk_id for row in rows]

    def committed(self, ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        return {chunk: self.ledger[chunk] for chunk in ids if chunk in self.ledger}

    def retriever(self, *, store: Store | None = None, committed: Committed | None = None, reranker: Reranker | None = None) -> Retriever:
        return Retriever(
            store=store or self.store, embedder=self.embedder, policy=self.policy, committed=committed or self.committed, reranker=reranker
        )

    async def blobs(self, query: str, **options: Any) -> list[str]:
        return [hit.blob.removeprefix("docs/") for hit in await self.retriever().search(query, principal=ALICE, **options)]


class Watching(MemoryStore):
    """A memory store that keeps what it was asked."""

    def __init__(self, inner: MemoryStore, *, obey: bool = True, full_text: bool = True) -> None:
        self.capabilities = StoreCapabilities(full_text=full_text, exact_filters=True)
        self.inner = inner
        self.obey = obey
        self.asked: list[tuple[VectorQuery | TextQuery, Filter, int]] = []

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        self.asked.append((query, filter, limit))
        return await self.inner.search(query, filter=filter if self.obey else ALWAYS, limit=limit)

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        async for row in self.inner.rows(document_ids):
            yield row
