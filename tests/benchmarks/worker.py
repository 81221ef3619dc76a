"""A worker in; how soon an event is searchable, and how many changes it applies in a second, out.

    python tests/benchmarks/worker.py latency|throughput [--quick] [--output FILE]

The feed is a list in memory, so that what is measured is ours: the queue of work in the ledger, reading, embedding, the commit.
`latency` writes one small file at a time and waits until it is committed, with the `hash` and the `minilm` embedder; `throughput` tells of
many files at once.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from ragstore import config
from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.contracts import Feed, Source
from ragstore.index import AsyncIndex
from ragstore.worker import Worker
from tests.benchmarks.figures import Figure, Stopwatch, finish, options
from tests.support.feeds import ScriptedFeed

_POLL = 0.002


class _Told(Connectors):
    """Real connectors, but the feed says what the benchmark says."""

    feed_told: ScriptedFeed

    @override
    def feed(self, kind: str, options: Mapping[str, Any], settings: Settings, *, source: Source, source_options: Mapping[str, Any]) -> Feed:
        self.feed_told = ScriptedFeed(source, per_batch=1000)
        self.feed_told.poll_seconds = _POLL
        return self.feed_told


@asynccontextmanager
async def _following(folder: Path, embedder: str) -> AsyncIterator[tuple[AsyncIndex, ScriptedFeed, Path]]:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "first.txt").write_text("the first document warms everything up")
    sections = {"source": {"type": "folder", "path": "docs", "feed": "watch"}, "embedder": {"type": embedder}, "access": {"mode": "open"}}
    connectors = _Told()
    workers: list[Worker] = []
    async with AsyncIndex(config.from_mapping(sections, base=folder, environ={}), connectors) as index:
        task = asyncio.create_task(index.follow(started=workers.append))
        while not (await index.status())["chunks"]:
            if task.done():
                task.result()
            await asyncio.sleep(_POLL)
        await index.search("first", principal=index.principal())
        yield index, connectors.feed_told, docs
        workers[0].stop()
        await task


async def _latencies(embedder: str, count: int) -> list[float]:
    """Seconds from the event to the first search that finds it, in order of size."""
    found = []
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        async with _following(Path(folder), embedder) as (index, feed, docs):
            for number in range(count):
                (docs / f"{number}.txt").write_text(f"word{number} of a small document that somebody wrote just now")
                await asyncio.sleep(0.1)  # the file rests, and the worker with it
                start = time.perf_counter()
                feed.tell(f"{number}.txt")
                await _committed(index, number)
                found.append(time.perf_counter() - start)
    return sorted(found)


async def _committed(index: AsyncIndex, number: int) -> None:
    """Wait until this file and all before it answer searches."""
    while index._assembly.ledger.documents.counts().get("live", 0) < number + 2:  # noqa: ASYNC110 - another task's doing is awaited
        await asyncio.sleep(_POLL)


def latency(*, quick: bool) -> list[Figure]:
    """Median and 95th percentile; the target is what comes on top of the embedding, which `hash` does in no time."""
    figures = []
    for embedder, target in (("hash", 0.1), ("minilm", None)):
        seconds = asyncio.run(_latencies(embedder, 10 if quick else 40))
        figures.append(Figure(name=f"{embedder}: event to committed, median", value=statistics.median(seconds), unit="s", target=target))
        figures.append(Figure(name=f"{embedder}: event to committed, p95", value=seconds[int(len(seconds) * 0.95)], unit="s"))
    return figures


async def _throughput(count: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        async with _following(Path(folder), "hash") as (index, feed, docs):
            for number in range(count):
                (docs / f"{number}.txt").write_text(f"word{number} of a small document that somebody wrote just now")
            await asyncio.sleep(0.1)
            with Stopwatch() as watch:
                for number in range(count):
                    feed.tell(f"{number}.txt")
                await _committed(index, count - 1)
            return watch.wall, watch.cpu


def throughput(*, quick: bool) -> list[Figure]:
    """Small new documents, each an event, a look, a fetch, a chunk and a commit."""
    count = 300 if quick else 2000
    wall, cpu = asyncio.run(_throughput(count))
    return [Figure(name="changes applied, small documents, hash", value=count / wall, unit="/s", at_least=True, wall=wall, cpu=cpu)]


BENCHMARKS = {"latency": latency, "throughput": throughput}

if __name__ == "__main__":
    chosen = options(__doc__, BENCHMARKS)
    sys.exit(finish(BENCHMARKS[chosen.name](quick=chosen.quick), chosen.output))
