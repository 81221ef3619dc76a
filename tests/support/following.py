"""An index that is followed while a test tells its feed what happened, and waits until that is so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ragstore.index import AsyncIndex
from ragstore.ingest.report import SyncReport
from ragstore.worker import Worker
from tests.support.feeds import ScriptedFeed
from tests.support.sources import Wrapped
from tests.support.workspace import Workspace, texts


def followed(base: Path, **sections: Any) -> Workspace:
    """A workspace whose feed the test speaks through, and whose source it can hurt."""
    work = Workspace(base, **sections)
    work.sections["source"]["feed"] = "watch"
    work.connectors.source_wrapper = Wrapped
    return work


@asynccontextmanager
async def following(work: Workspace) -> AsyncIterator[tuple[AsyncIndex, ScriptedFeed, Wrapped]]:
    """An index that is followed while the block runs, after its first listing was applied."""
    workers: list[Worker] = []
    async with work.open() as index:
        task = asyncio.create_task(index.follow(started=workers.append))
        await until(lambda: bool(work.connectors.feeds) and work.connectors.feeds[-1].reads > 0, task)
        source = index._assembly.sources()[0]
        assert isinstance(source, Wrapped)
        try:
            yield index, work.connectors.feeds[-1], source
        finally:
            workers[-1].stop()
            await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], bool], task: asyncio.Task[SyncReport] | None = None, seconds: float = 20) -> None:
    """Wait for it; a worker that ends meanwhile fails the test with its error."""
    deadline = time.monotonic() + seconds
    while not condition():
        if task is not None and task.done():
            task.result()
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


async def finds(index: AsyncIndex, query: str, who: str = "ada") -> list[str]:
    return await texts(index, query, who)


async def eventually(question: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await question():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.02)


async def settled(index: AsyncIndex, feed: ScriptedFeed) -> None:
    """All that the feed has told is applied."""
    await until(lambda: index._assembly.ledger.cursors.get(feed.name) == str(len(feed.events)))
    await until(lambda: not index._assembly.ledger.work.depth())


async def has(index: AsyncIndex, query: str, text: str) -> bool:
    return text in await finds(index, query)


async def has_nothing(index: AsyncIndex, query: str, who: str) -> bool:
    return await finds(index, query, who) == []


async def is_in_step(index: AsyncIndex) -> bool:
    return not await index.verify()
