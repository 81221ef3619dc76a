"""Wrappers that fail at a chosen moment: a crash around or within a write, an embedder that is down, a text that is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from ragstore.contracts import Embedder, Expunged, PutRows, Store, StoreStats, TextQuery, VectorQuery, Write
from ragstore.errors import PoisonError, TransientError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore.filters import Filter
    from ragstore.models import Match, Row, RowKey


class SimulatedCrash(Exception):  # noqa: N818 - it is no error of ours, and nothing may handle it
    """The process would be gone now. Nothing catches it but the test, which opens everything anew."""


class CrashingStore(Store):
    """Passes everything on, and calls `before` and `after` around each `apply`: either may raise."""

    def __init__(self, store: Store, *, before: Callable[[Sequence[Write]], None], after: Callable[[Sequence[Write]], None]) -> None:
        self._store = store
        self._before = before
        self._after = after
        self.capabilities = store.capabilities

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        self._before(writes)
        await self._store.apply(writes)
        self._after(writes)

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        return await self._store.search(query, filter=filter, limit=limit)

    @override
    def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        return self._store.rows(document_ids)

    @override
    def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        return self._store.keys(document_ids)

    @override
    async def maintain(self, *, force: bool = False) -> None:
        await self._store.maintain(force=force)

    @override
    async def expunge(self) -> Expunged:
        return await self._store.expunge()

    @override
    async def stats(self) -> StoreStats:
        return await self._store.stats()

    @override
    async def drop(self) -> None:
        await self._store.drop()

    @override
    async def close(self) -> None:
        await self._store.close()


def parts_of(writes: Sequence[Write]) -> int:
    """How many steps there are in these writes: a row that is put is one, and so is every other write."""
    return sum(len(write.rows) if isinstance(write, PutRows) else 1 for write in writes)


class StoppingStore(CrashingStore):
    """Each `apply` does `after` steps (`parts_of`) and raises `TransientError` in the middle: a store that was given up half-way."""

    def __init__(self, store: Store, *, after: int) -> None:
        super().__init__(store, before=lambda _writes: None, after=lambda _writes: None)
        self._steps = after

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        left, done = self._steps, list[Write]()
        for write in writes:
            if left > 0:
                done.append(PutRows(rows=write.rows[:left]) if isinstance(write, PutRows) else write)
            left -= parts_of([write])
        await self._store.apply(done)
        raise TransientError(f"the store was lost after {self._steps} of {parts_of(writes)} steps")


class FaultyEmbedder(Embedder):
    """Counts the document texts that the wrapped embedder gets; while `down` it raises, and it refuses what is in `refused` for good."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.max_tokens = embedder.max_tokens
        self.price_per_million_tokens = embedder.price_per_million_tokens
        self.scripts = embedder.scripts
        self.unrelated_cosine = embedder.unrelated_cosine
        self.embedded: list[str] = []
        self.down: Exception | None = None
        self.refused: Collection[str] = ()

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        if purpose == "document":
            if self.down is not None:
                raise self.down
            for index, text in enumerate(texts):
                if any(word in text for word in self.refused):
                    raise PoisonError("embedding_refused", f"input {index} is refused")
            self.embedded.extend(texts)
        return await self._embedder.embed(texts, purpose=purpose)

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._embedder.count_tokens(texts)

    @override
    async def close(self) -> None:
        await self._embedder.close()

    def fail(self, message: str = "the embedder is down") -> None:
        """From now on every embedding of a document raises `TransientError`."""
        self.down = TransientError(message)
