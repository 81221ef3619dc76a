"""A blob pinned by its ETag in; its content, in order, in a spool file out, with memory bounded for all downloads together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from ragstore.spool import SpoolFile

RANGE_BYTES: Final = 8 * 2**20

ReadRange = Callable[[int, int], Awaitable[bytes]]
"""Offset and length in, exactly that many bytes out."""


class ByteBudget:
    """So many bytes may be in memory at once. Who asks first is served first, so that a large request is not overtaken for ever."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold that many bytes of the budget for the length of the block."""
        wanted = min(size, self._limit)
        if self._waiting or wanted > self._free:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(wanted)
                raise
        else:
            self._free -= wanted
        try:
            yield
        finally:
            self._give_back(wanted)

    def _give_back(self, size: int) -> None:
        self._free += size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.done():
                if wanted > self._free:
                    return
                self._free -= wanted
                turn.set_result(None)
            self._waiting.popleft()


async def download(read_range: ReadRange, size: int, spooled: SpoolFile, *, budget: ByteBudget, parallel: int) -> None:
    """Append `size` bytes to the spool file, reading up to `parallel` ranges at once.

    A range holds its part of the budget until it is written. Ranges are asked for in order and the budget is first come, first served, so
    the range that must be written next is never the one that waits. Whatever ends it early ends all of its reads.
    """
    loop = asyncio.get_running_loop()
    last_written: asyncio.Future[None] = loop.create_future()
    last_written.set_result(None)
    running: deque[asyncio.Task[None]] = deque()

    async def one(offset: int, before: asyncio.Future[None], after: asyncio.Future[None]) -> None:
        length = min(RANGE_BYTES, size - offset)
        async with budget.hold(length):
            content = await read_range(offset, length)
            await before
            await _write(spooled, content)
            after.set_result(None)

    try:
        for offset in range(0, size, RANGE_BYTES):
            if len(running) == parallel:
                await running.popleft()
            this_written: asyncio.Future[None] = loop.create_future()
            running.append(asyncio.ensure_future(one(offset, last_written, this_written)))
            last_written = this_written
        while running:
            await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _write(spooled: SpoolFile, content: bytes) -> None:
    """Write in a thread, and do not leave before it is done: the file must not be closed under the writer."""
    writing = asyncio.ensure_future(asyncio.to_thread(spooled.write, content))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.gather(writing, return_exceptions=True)
        raise
