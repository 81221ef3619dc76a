"""Jobs in their order in; their results in the same order, with a bounded number of them running or waiting to be taken, out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")
Job = Callable[[], Awaitable[T]]


@asynccontextmanager
async def ahead(jobs: AsyncGenerator[Job[T]], limit: int) -> AsyncGenerator[AsyncIterator[T]]:
    """The results, each as soon as all before it are taken. Whatever ends it early ends all that was begun.

    A job counts from its begin until the next result is asked for, so no more than `limit` results are in memory.
    """
    slots = asyncio.Semaphore(limit)
    begun: asyncio.Queue[asyncio.Task[T] | None] = asyncio.Queue()
    tasks: set[asyncio.Task[Any]] = set()

    async def begin() -> None:
        try:
            async with aclosing(jobs):
                async for job in jobs:
                    await slots.acquire()
                    task = asyncio.ensure_future(_run(job))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    begun.put_nowait(task)
        finally:
            begun.put_nowait(None)

    async def results() -> AsyncGenerator[T]:
        while (task := await begun.get()) is not None:
            yield await task
            slots.release()
        await beginner

    beginner = asyncio.create_task(begin())
    try:
        async with aclosing(results()) as found:
            yield found
    finally:
        beginner.cancel()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(beginner, *tasks, return_exceptions=True)
        while not begun.empty():
            if (left := begun.get_nowait()) is not None and not left.cancelled():
                left.exception()  # nobody will ask for it


async def together(waiting: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(job: Job[T]) -> T:
    return await job()
