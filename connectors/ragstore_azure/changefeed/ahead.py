"""Jobs in their order in; their results in the same order, with a bounded number of them running or waiting to be taken, out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """Something to be done, once."""

    run: Callable[[], Awaitable[T]]
    weight: int = 1
    """What it counts for among those that are begun and not taken."""


@asynccontextmanager
async def ahead(jobs: AsyncGenerator[Job[T]], limit: int) -> AsyncGenerator[AsyncIterator[T]]:
    """The results, each as soon as all before it are taken. Whatever ends it early ends all that was begun.

    A job counts from its begin until the next result is asked for, so results of no more weight than `limit` are in memory.
    """
    carried = 0
    freed = asyncio.Event()
    begun: asyncio.Queue[tuple[asyncio.Task[T], int] | None] = asyncio.Queue()
    tasks: set[asyncio.Task[Any]] = set()

    async def begin() -> None:
        nonlocal carried
        try:
            async with aclosing(jobs):
                async for job in jobs:
                    while carried and carried + job.weight > limit:
                        freed.clear()
                        await freed.wait()
                    carried += job.weight
                    task = asyncio.ensure_future(job.run())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    begun.put_nowait((task, job.weight))
        finally:
            begun.put_nowait(None)

    async def results() -> AsyncGenerator[T]:
        nonlocal carried
        while (next_ := await begun.get()) is not None:
            task, weight = next_
            yield await task
            carried -= weight
            freed.set()
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
            if (left := begun.get_nowait()) is not None and not left[0].cancelled():
                left[0].exception()  # nobody will ask for it


async def together(waiting: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
