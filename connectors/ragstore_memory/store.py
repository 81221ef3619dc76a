"""Writes in, matches out, from a dictionary of rows in this process; every filter means what `filters.matches` says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from ragstore.contracts import (
    DropDocument,
    DropRows,
    Expunged,
    PutRows,
    Retag,
    Store,
    StoreCapabilities,
    StoreStats,
    TextQuery,
    VectorQuery,
    Write,
)
from ragstore.errors import ConfigError
from ragstore.filters import Filter, Never, matches, simplify
from ragstore.models import Match, Row, RowKey
from ragstore_memory.bm25 import BM25

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True, kw_only=True)
class _Collection:
    """The rows that every store object of one name shares, and what was last derived from them."""

    dimensions: int
    rows: dict[str, Row] = field(default_factory=dict)
    ordered: list[Row] | None = None
    directions: NDArray[np.float32] | None = None
    """Shape (rows, dimensions): the vectors of `ordered`, L2-normalised."""
    words: BM25 | None = None

    def changed(self) -> None:
        self.ordered = self.directions = self.words = None

    def order(self) -> list[Row]:
        if self.ordered is None:
            self.ordered = list(self.rows.values())
        return self.ordered


class MemoryStore(Store):
    """Rows in this process.

    - Store objects of one namespace and collection share their rows, so that opening the collection again in this process sees them.
    - `namespace` keeps apart indexes that use the same collection name.
    """

    capabilities = StoreCapabilities(full_text=True, exact_filters=True)
    collections: ClassVar[dict[tuple[str, str], _Collection]] = {}
    """What is open in this process, by namespace and collection."""

    def __init__(self, *, collection: str, dimensions: int, namespace: str = "") -> None:
        self._key = (namespace, collection)
        self._dimensions = dimensions
        self._collection()

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        collection = self._collection()
        for write in writes:
            if isinstance(write, PutRows):
                for row in write.rows:
                    self._check(row.vector)
        for write in writes:
            _apply(write, collection.rows)
        collection.changed()

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        admitted = simplify(filter)
        if isinstance(admitted, Never) or limit <= 0:
            return []
        collection = self._collection()
        rows = collection.order()
        kept = [position for position, row in enumerate(rows) if matches(admitted, row.access)]
        if isinstance(query, TextQuery):
            collection.words = collection.words or BM25([row.text for row in rows])
            scores = collection.words.scores(query.text)
            kept = [position for position in kept if position in scores]
        else:
            self._check(query.vector)
            cosines = self._cosines(query.vector, kept)
            scores = dict(zip(kept, cosines.tolist(), strict=True))
        best = sorted(kept, key=lambda position: (-scores[position], rows[position].chunk_id))[:limit]
        return [_match(rows[position], scores[position]) for position in best]

    @override
    async def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        wanted = frozenset(document_ids)
        for row in list(self._collection().rows.values()):
            if row.document_id in wanted:
                yield row

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        wanted = None if document_ids is None else frozenset(document_ids)
        for row in list(self._collection().rows.values()):
            if wanted is None or row.document_id in wanted:
                yield RowKey(chunk_id=row.chunk_id, document_id=row.document_id, generation=row.generation, access=row.access)

    @override
    async def maintain(self, *, force: bool = False) -> None:
        """Nothing is ever due."""

    @override
    async def expunge(self) -> Expunged:
        """A row that is gone is gone; what was derived from the rows goes as well."""
        self._collection().changed()
        return Expunged()

    @override
    async def stats(self) -> StoreStats:
        return StoreStats(rows=len(self._collection().rows), detail={"kind": "memory"})

    @override
    async def drop(self) -> None:
        self.collections.pop(self._key, None)

    @override
    async def close(self) -> None:
        """The rows stay for whoever opens the collection again in this process."""

    def _collection(self) -> _Collection:
        collection = self.collections.setdefault(self._key, _Collection(dimensions=self._dimensions))
        if collection.dimensions != self._dimensions:
            raise ConfigError(
                f"the collection {self._key[1]!r} holds vectors of {collection.dimensions} dimensions, not {self._dimensions}; "
                "use the embedder that wrote it, or another collection"
            )
        return collection

    def _check(self, vector: NDArray[np.float32]) -> None:
        if vector.shape != (self._dimensions,):
            raise ConfigError(f"a vector has the shape {vector.shape}, but the collection {self._key[1]!r} wants ({self._dimensions},)")
        if not np.isfinite(vector).all():
            raise ValueError("a vector holds a value that is not a finite number; the embedder that made it is at fault")

    def _cosines(self, query: NDArray[np.float32], kept: list[int]) -> NDArray[np.float32]:
        collection = self._collection()
        if collection.directions is None:
            stacked = np.array([row.vector for row in collection.order()], dtype=np.float32).reshape(-1, self._dimensions)
            collection.directions = stacked / np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), np.float32(1e-30))
        direction = query / max(float(np.linalg.norm(query)), 1e-30)
        cosines: NDArray[np.float32] = collection.directions[kept] @ direction
        return cosines


def _apply(write: Write, rows: dict[str, Row]) -> None:
    match write:
        case PutRows():
            for row in write.rows:
                stored = rows.get(row.chunk_id)
                if stored is None or stored.generation <= row.generation:
                    rows[row.chunk_id] = replace(row, vector=np.array(row.vector, dtype=np.float32))
        case DropRows():
            for chunk_id in write.chunk_ids:
                stored = rows.get(chunk_id)
                if stored is not None and stored.document_id == write.document_id and stored.generation <= write.generation:
                    del rows[chunk_id]
        case DropDocument():
            for row in _document(rows, write.document_id):
                if row.generation <= write.generation:
                    del rows[row.chunk_id]
        case Retag():
            for row in _document(rows, write.document_id):
                rows[row.chunk_id] = replace(row, access=write.access)


def _document(rows: dict[str, Row], document_id: str) -> list[Row]:
    return [row for row in rows.values() if row.document_id == document_id]


def _match(row: Row, score: float) -> Match:
    return Match(chunk_id=row.chunk_id, document_id=row.document_id, text=row.text, score=score)
