"""Texts in, vectors out: from the cache, from an embedding that is under way, or from the embedder in batches across documents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ragstore.contracts import Embedder
from ragstore.errors import PoisonError, TransientError
from ragstore.ingest.report import Clocked
from ragstore.ledger import Vectors

Vector = NDArray[np.float32]
_Asked = tuple[str, str, asyncio.Future[Vector]]
"""Text hash, text, and who waits for the vector."""

_BATCH = 128
_LOOKED_UP = 512
_PARALLEL = 2
_GATHER_SECONDS = 0.002
_OUTAGE = 3
"""After so many failed batches in a row the embedder counts as down, and the rest of the pass does not wait for it."""


class VectorSupply:
    """Vectors by text hash. Each text is embedded once, whoever asks, and is durable in the cache before anyone gets it."""

    def __init__(self, embedder: Embedder, cache: Vectors, clock: Clocked) -> None:
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._waiting: dict[str, tuple[str, asyncio.Future[Vector]]] = {}
        self._under_way: dict[str, asyncio.Future[Vector]] = {}
        self._wake = asyncio.Event()
        self._failures_in_a_row = 0
        self.down = ""
        """What the embedder said when it failed last; empty while it works."""
        self._workers: list[asyncio.Task[None]] = []

    async def of(self, texts: Mapping[str, str]) -> dict[str, Vector]:
        """The vectors of these texts by their hashes.

        Raises `TransientError` where the embedder is down, `PoisonError` where it refuses one of these texts.
        """
        futures = [self._future(key, text) for key, text in texts.items()]
        # One after the other: `gather` would give each of them callbacks, and they come together anyway.
        return {key: await future for key, future in zip(texts, futures, strict=True)}

    def count_reused(self, chunks: int) -> None:
        """Chunks that cost no embedding."""
        self._clock.report.chunks_reused += chunks

    async def close(self) -> None:
        """Stop the workers; whoever still waits is cancelled."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _future(self, key: str, text: str) -> asyncio.Future[Vector]:
        if key in self._under_way:
            self.count_reused(1)
            return self._under_way[key]
        if not self._workers:
            self._workers = [asyncio.create_task(self._work()) for _ in range(_PARALLEL)]
        future: asyncio.Future[Vector] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        self._waiting[key] = (text, future)
        self._wake.set()
        return future

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            if len(self._waiting) < _BATCH:
                await asyncio.sleep(_GATHER_SECONDS)
            asked = [(key, *self._waiting.pop(key)) for key in list(islice(self._waiting, _LOOKED_UP))]
            if not self._waiting:
                self._wake.clear()
            try:
                missing = await self._from_cache(asked)
                for start in range(0, len(missing), _BATCH):
                    await self._embed(missing[start : start + _BATCH])
            except Exception as error:  # noqa: BLE001 - handed to each document that waits for it: a worker that died would let them wait for ever
                self._fail(asked, error)

    async def _from_cache(self, asked: list[_Asked]) -> list[_Asked]:
        """Hand out what is cached; returns the rest."""
        found = await asyncio.to_thread(self._cache.get, [key for key, _, _ in asked])
        self.count_reused(len(found))
        for key, _, future in asked:
            if key in found:
                del self._under_way[key]
                if not future.done():
                    future.set_result(found[key])
        return [item for item in asked if item[0] not in found]

    async def _embed(self, batch: Sequence[_Asked]) -> None:
        """Embed, keep and hand out; where one text is refused, halve until only that one fails."""
        try:
            if self._failures_in_a_row >= _OUTAGE:
                raise TransientError("the embedder failed several times in a row; run this again when it is back")  # noqa: TRY301
            vectors = await self._embedder.embed([text for _, text, _ in batch], purpose="document")
            self._failures_in_a_row, self.down = 0, ""
        except PoisonError as error:
            await self._set_aside(batch, error)
        except Exception as error:  # noqa: BLE001 - handed to each document that waits for it
            if isinstance(error, TransientError):
                self._failures_in_a_row += 1
                self.down = str(error)
            self._fail(batch, error)
        else:
            await self._hand_out(batch, vectors)

    async def _set_aside(self, batch: Sequence[_Asked], error: PoisonError) -> None:
        if len(batch) == 1:
            self._fail(batch, error)
            return
        if error.index is not None:
            parts = (batch[: error.index], batch[error.index : error.index + 1], batch[error.index + 1 :])
            self._fail(parts[1], error)
            rest = [*parts[0], *parts[2]]
            if rest:
                await self._embed(rest)
            return
        middle = len(batch) // 2
        await self._embed(batch[:middle])
        await self._embed(batch[middle:])

    async def _hand_out(self, batch: Sequence[_Asked], vectors: NDArray[np.float32]) -> None:
        await asyncio.to_thread(self._cache.put, {key: vectors[i] for i, (key, _, _) in enumerate(batch)})
        report = self._clock.report
        report.chunks_embedded += len(batch)
        report.tokens += sum(self._embedder.count_tokens([text for _, text, _ in batch]))
        self._clock.tick()
        for i, (key, _, future) in enumerate(batch):
            del self._under_way[key]
            if not future.done():
                future.set_result(vectors[i])

    def _fail(self, batch: Sequence[_Asked], error: Exception) -> None:
        for key, _, future in batch:
            self._under_way.pop(key, None)
            if not future.done():
                future.set_exception(error)
                future.exception()  # asked for once, so that a failure that nobody awaits is no news
