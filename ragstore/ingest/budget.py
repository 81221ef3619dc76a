"""A number of bytes in, a place to hold them out: what is in flight is bounded in bytes, so that memory is flat whatever the corpus."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteBudget:
    """Bytes that may be in flight at once, given out first come, first served."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._limit = limit
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait until so many bytes are free, and hold them. More than the limit counts as the limit."""
        size = min(size, self._limit)
        await self._take(size)
        try:
            yield
        finally:
            self._give(size)

    async def _take(self, size: int) -> None:
        if not self._queue and size <= self._free:
            self._free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give(size)  # it was granted in the moment of the cancellation
            raise

    def _give(self, size: int) -> None:
        self._free += size
        while self._queue:
            wanted, turn = self._queue[0]
            if not turn.cancelled():
                if wanted > self._free:
                    return
                self._free -= wanted
                turn.set_result(None)
            self._queue.popleft()
