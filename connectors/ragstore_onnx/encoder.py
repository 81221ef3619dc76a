"""Texts and a forward pass in, vectors in their order out: tokenisation and length-sorted batches on threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from ragstore.embedding.batches import padded_batches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore_onnx.tokenizer import WordPieceTokenizer

    Forward = Callable[["NDArray[np.int32]", "NDArray[np.int32]"], "NDArray[np.float32]"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_TEXTS_PER_JOB: Final = 64


class BatchedEncoder:
    """Runs `forward` (ids and mask, both batch x tokens, to normalised vectors) over any number of texts.

    A batch holds at most `batch_tokens`, padding included. `load` gives the forward pass; it is called once, on a worker thread, when
    it is first needed. Bulk work runs on `workers` threads; an urgent call that is not large has a thread of its own, so that a query
    never waits behind an indexing run.
    """

    def __init__(
        self,
        *,
        tokenizer: WordPieceTokenizer,
        load: Callable[[], Forward],
        dimensions: int,
        max_tokens: int,
        batch_tokens: int,
        workers: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._load = load
        self._dimensions = dimensions
        self._max_tokens = max_tokens
        self._batch_tokens = batch_tokens
        self._workers = workers
        self._forward: Forward | None = None
        self._loading = threading.Lock()
        self._bulk = ThreadPoolExecutor(workers, thread_name_prefix="embed")
        self._urgent = ThreadPoolExecutor(1, thread_name_prefix="embed-query")

    async def encode(self, texts: Sequence[str], *, urgent: bool) -> NDArray[np.float32]:
        """Vectors of shape (len(texts), dimensions), in the order of the texts; a text above the limit is cut."""
        import numpy as np

        pool = self._urgent if urgent and len(texts) <= _TEXTS_PER_JOB else self._bulk
        parts = [texts[start : start + _TEXTS_PER_JOB] for start in range(0, len(texts), _TEXTS_PER_JOB)]
        ids = [row for part in await self._run(pool, self._tokenize, parts) for row in part]
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        batches = padded_batches([len(row) for row in ids], budget=self._budget(sum(map(len, ids))))
        results = await self._run(pool, self._embed, [[ids[index] for index in batch] for batch in batches])
        for batch, result in zip(batches, results, strict=True):
            vectors[batch] = result
        return vectors

    def close(self) -> None:
        """Wait for what runs, drop what waits."""
        self._bulk.shutdown(cancel_futures=True)
        self._urgent.shutdown(cancel_futures=True)

    def _budget(self, tokens: int) -> int:
        """Less than a full batch where there is too little work for all workers."""
        return min(self._batch_tokens, -(-tokens // self._workers))

    async def _run(
        self, pool: ThreadPoolExecutor, job: Callable[[Sequence[Item]], Result], arguments: Sequence[Sequence[Item]]
    ) -> list[Result]:
        """`job` over each argument in the pool; where one fails or the caller gives up, those that still wait are dropped."""
        loop = asyncio.get_running_loop()
        futures = [loop.run_in_executor(pool, job, argument) for argument in arguments]
        try:
            return await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()

    def _tokenize(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        return [self._tokenizer.ids(text, limit=self._max_tokens) for text in texts]

    def _embed(self, batch: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        import numpy as np

        ids = np.zeros((len(batch), max(map(len, batch))), np.int32)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        return self._ready()(ids, mask)

    def _ready(self) -> Forward:
        with self._loading:
            if self._forward is None:
                self._forward = self._load()
            return self._forward
