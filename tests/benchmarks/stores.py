"""Four stores in, what each costs beyond its vendor's own client out; what pgvector misses, and what a retag sends.

    python tests/benchmarks/stores.py stores [--quick] [--output FILE]

LanceDB in a folder and pgvector on a server of its own are timed by the clock; AI Search and Pinecone are asked at fakes in a process of
their own, whose time is no vendor's, so there the CPU time of this process is compared. A store and its raw client (clients.py) write the
same batches in turn, each into a collection of its own with the same columns and indexes, and ask the same questions of one collection.

The recall of LanceDB on 100,000 rows is in filtered.py; here is that of pgvector, with the default options, over the same rows.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
from sqlalchemy import make_url

from ragstore.contracts import PutRows, Store, VectorQuery
from ragstore.filters import AnyOf, Filter
from ragstore.models import Row
from tests.benchmarks import fakes
from tests.benchmarks.clients import (
    KEY_VARIABLE,
    LIMIT,
    AzureVendor,
    LanceVendor,
    PineconeVendor,
    PostgresVendor,
    Psycopg,
    RawClient,
    Vendor,
)
from tests.benchmarks.figures import Figure, finish, options
from tests.benchmarks.retags import retags
from tests.benchmarks.topics import CHUNKS, Library, Share, Topics, Vectors
from tests.support import postgres

SHARE, PER_CHUNK = 0.15, 0.3
"""The overhead that is allowed: this part of the raw client's time, or so many milliseconds."""
RECALL = 0.99
_SHARES = (0.5, 0.05, 0.005)
_GROUPS, _EACH = 20_000, 3
"""Groups that there are, and that may read a document."""
_MANY = (20, 63, 64, 1_000, 10_000)
"""Groups of a principal; from 64 on pgvector looks them up in a hash table, unless its index finds the rows."""
_TARGET_ROWS = {False: 100_000, True: 20_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is done with a store."""

    rounds: int
    batches: int
    rows: int
    """Of the collection that is asked."""
    queries: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds by the clock, and of CPU: of this process, and of the server where there is a real one."""

    wall: float
    cpu: float


class Clock:
    """Times one thing after another."""

    def __init__(self, server: Callable[[], float] = lambda: 0.0) -> None:
        self._server = server
        self._wall = self._cpu = 0.0

    def start(self) -> None:
        """From now on."""
        self._cpu = time.process_time() + self._server()
        self._wall = time.perf_counter()

    def stop(self) -> Cost:
        """Until now."""
        wall = time.perf_counter() - self._wall
        return Cost(wall * 1_000, (time.process_time() + self._server() - self._cpu) * 1_000)


def _server_cpu(url: str) -> Callable[[], float]:
    """CPU seconds of the server's processes that serve a client."""
    data = Path(str(make_url(url).query["host"]))
    postmaster = psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))

    def seconds() -> float:
        total = 0.0
        for child in postmaster.children():
            try:
                if "[local]" in " ".join(child.cmdline()):
                    times = child.cpu_times()
                    total += times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return total

    return seconds


class Rows:
    """The chunks of `topics`, each readable for the shares that its document is of, and for some groups."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.groups = np.random.default_rng(6).integers(_GROUPS, size=(library.topics.documents, _EACH))

    def of(self, documents: Sequence[int]) -> Iterator[Row]:
        """Of these documents."""
        for document in documents:
            columns = None
            for row in self._library.rows(document):
                columns = columns or replace(row.access, allowed=tuple(f"group-{group}" for group in self.groups[document]))
                yield replace(row, access=columns)

    def batches(self, number: int, size: int) -> Iterator[list[Row]]:
        """So many batches of so many rows."""
        for start in range(number):
            yield list(self.of(range(start * size // CHUNKS, (start + 1) * size // CHUNKS)))


def _overhead(name: str, ours: Sequence[Cost], raw: Sequence[Cost], *, by_clock: bool, per: int, note: str, part: float = 50) -> Figure:
    """The difference of the two, per chunk (or query), at this percentile."""

    def at(costs: Sequence[Cost], *, clock: bool) -> float:
        return float(np.percentile([cost.wall if clock else cost.cpu for cost in costs], part)) / per

    mine, other = at(ours, clock=by_clock), at(raw, clock=by_clock)
    others = f"{at(ours, clock=not by_clock):.3f} and {at(raw, clock=not by_clock):.3f} ms"
    beside = f"{'CPU' if by_clock else 'by the clock, with the fake,'} {others}"
    return Figure(
        name=name,
        value=mine - other,
        unit="ms" if by_clock else "CPU-ms",
        target=max(SHARE * other, PER_CHUNK),
        baseline=other,
        baseline_name="raw",
        note=f"{(mine / other - 1) * 100:+.0f} %, {mine:.3f} ms{note}; {beside}",
    )


async def _upserts(vendor: Vendor, rows: Rows, effort: Effort, clock: Clock, *, by_clock: bool) -> Figure:
    """Batch by batch in turn, into new collections each round."""
    costs: dict[str, list[Cost]] = {"ours": [], "raw": []}
    for number in range(effort.rounds):
        ours, made = vendor.store(f"ours{number}"), vendor.store(f"raw{number}")
        first, *batches = rows.batches(effort.batches + 1, vendor.batch)
        for store in (ours, made):
            await store.apply([PutRows(rows=first[:CHUNKS])])
        raw = await vendor.raw(f"raw{number}")
        sums = {"ours": Cost(0, 0), "raw": Cost(0, 0)}
        for turn, batch in enumerate(batches):
            prepared = raw.prepared(batch)
            for side in ("ours", "raw") if (turn + number) % 2 else ("raw", "ours"):
                clock.start()
                await (ours.apply([PutRows(rows=batch)]) if side == "ours" else raw.put(prepared))
                took = clock.stop()
                sums[side] = Cost(sums[side].wall + took.wall, sums[side].cpu + took.cpu)
        for side, total in sums.items():
            costs[side].append(total)
        await raw.close()
        for store in (ours, made):
            await store.drop()
            await store.close()
    chunks = effort.batches * vendor.batch
    median = statistics.median(cost.wall if by_clock else cost.cpu for cost in costs["ours"])
    note = f" for a chunk, {chunks / median * 1_000:,.0f} a second in batches of {vendor.batch}"
    return _overhead(f"{vendor.name}: upsert", costs["ours"], costs["raw"], by_clock=by_clock, per=chunks, note=note)


async def _timed(
    store: Store, raw: RawClient, admitted: Filter, queries: Sequence[Vectors], clock: Clock
) -> tuple[dict[str, list[Cost]], list[list[str]]]:
    """The costs of both sides in turn, and what the store found."""
    costs: dict[str, list[Cost]] = {"ours": [], "raw": []}
    found: list[list[str]] = []
    for number, query in enumerate([queries[0], *queries]):
        asked = raw.asked(query, admitted)
        for side in ("ours", "raw") if number % 2 else ("raw", "ours"):
            clock.start()
            if side == "ours":
                matches = await store.search(VectorQuery(vector=query), filter=admitted, limit=LIMIT)
            else:
                await raw.search(asked)
            took = clock.stop()
            if number == 0:  # connections are open, and what can be known of the table is
                continue
            costs[side].append(took)
            if side == "ours":
                found.append([match.chunk_id for match in matches])
    return costs, found


def _speeds(name: str, costs: dict[str, list[Cost]], *, by_clock: bool) -> list[Figure]:
    return [
        _overhead(f"{name} p{part}", costs["ours"], costs["raw"], by_clock=by_clock, per=1, note=" for a query", part=part)
        for part in (50, 95)
    ]


async def _beside(vendor: Vendor, library: Library, effort: Effort, clock: Clock, *, by_clock: bool) -> list[Figure]:
    """Upserts, and searches by readers of a twentieth, at a store that holds some rows."""
    rows = Rows(library)
    figures = [await _upserts(vendor, rows, effort, clock, by_clock=by_clock)]
    store = vendor.store("asked")
    for batch in rows.batches(effort.rows // vendor.batch, vendor.batch):
        await store.apply([PutRows(rows=batch)])
    raw = await vendor.raw("asked")
    for share in library.shares:
        admitted = library.policy.filter_for(share.principal).filter
        costs, _ = await _timed(store, raw, admitted, list(library.topics.queries(effort.queries)), clock)
        figures += _speeds(f"{vendor.name}: {share.name}", costs, by_clock=by_clock)
    await raw.close()
    await store.close()
    return figures


async def _postgres(vendor: PostgresVendor, library: Library, effort: Effort) -> list[Figure]:
    """Upserts; then recall and time under each share, and under many groups, at a table with an index; then a retag in it."""
    clock, rows = Clock(_server_cpu(vendor.url)), Rows(library)
    figures = [await _upserts(vendor, rows, effort, clock, by_clock=True)]
    less = {} if effort.rows == _TARGET_ROWS[False] else {"ann_from": effort.rows, "exact_below": effort.rows // 5}
    store = vendor.store("asked", **less)
    for batch in rows.batches(effort.rows // 1_000, 1_000):
        await store.apply([PutRows(rows=batch)])
    await store.maintain(force=True)
    raw = await vendor.raw("asked")
    queries = list(library.topics.queries(effort.queries))
    for share in library.shares:
        figures += await _under(share, store, raw, library, queries, clock)
    figures += await _many_groups(store, rows, library, queries[:20])
    await raw.close()
    await store.close()
    return figures


async def _under(share: Share, store: Store, raw: Psycopg, library: Library, queries: Sequence[Vectors], clock: Clock) -> list[Figure]:
    admitted = library.policy.filter_for(share.principal).filter
    ways = {exact: await _tried(raw, share, admitted, library, queries[:20], exact=exact) for exact in (True, False)}
    # The baseline misses nothing: of the two ways to ask, the quicker one that does not.
    raw.exact = ways[False][1] < RECALL or ways[True][0] < ways[False][0]
    costs, found = await _timed(store, raw, admitted, queries, clock)
    recall = _recall(library, share, queries, found)
    told = ", ".join(f"{'exact' if exact else 'as planned'} {took:.1f} ms {right:.3f}" for exact, (took, right) in ways.items())
    note = f"{share.documents.sum() * CHUNKS:,} rows may be read; raw {told}: compared with {'exact' if raw.exact else 'as planned'}"
    figure = Figure(name=f"pgvector: {share.name}, recall@{LIMIT}", value=recall, unit="", target=RECALL, at_least=True, note=note)
    return [figure, *_speeds(f"pgvector: {share.name}", costs, by_clock=True)]


async def _tried(
    raw: Psycopg, share: Share, admitted: Filter, library: Library, queries: Sequence[Vectors], *, exact: bool
) -> tuple[float, float]:
    """The median milliseconds and the recall of the raw client, asked this way."""
    raw.exact = exact
    times, found = [], []
    for query in queries:
        begin = time.perf_counter()
        found.append(await raw.search(raw.asked(query, admitted)))
        times.append((time.perf_counter() - begin) * 1_000)
    return statistics.median(times), _recall(library, share, queries, found)


def _recall(library: Library, share: Share, queries: Sequence[Vectors], found: Sequence[Sequence[str]]) -> float:
    hits = 0
    for query, ids in zip(queries, found, strict=True):
        hits += len({library.numbers[one] for one in ids}.intersection(library.topics.best(query, share.documents, LIMIT)))
    return hits / (LIMIT * len(queries))


async def _many_groups(store: Store, rows: Rows, library: Library, queries: Sequence[Vectors]) -> list[Figure]:
    """Of a principal who is in so many groups, with no condition besides."""
    figures = []
    for number in _MANY:
        admitted = AnyOf("allowed", frozenset(f"group-{group}" for group in range(number)))
        readable = np.isin(rows.groups, np.arange(number)).max(axis=1)
        hits, times = 0.0, []
        for query in [queries[0], *queries]:
            begin = time.perf_counter()
            found = await store.search(VectorQuery(vector=query), filter=admitted, limit=LIMIT)
            times.append((time.perf_counter() - begin) * 1_000)
            best = library.topics.best(query, readable, LIMIT)
            hits += len({library.numbers[match.chunk_id] for match in found}.intersection(best)) / len(best) if best else 1.0
        note = (
            f"{readable.sum() * CHUNKS:,} rows may be read; {statistics.median(times[1:]):.1f} ms, p95 {np.percentile(times[1:], 95):.1f}"
        )
        recall = hits / len(times)
        figures.append(Figure(name=f"pgvector: {number:,} groups, recall", value=recall, unit="", target=RECALL, at_least=True, note=note))
    return figures


def _library(folder: Path, rows: int, shares: Sequence[float], *, far: bool) -> Library:
    topics = Topics(rows // CHUNKS)
    readers = [Share(name=f"{share * 100:g}% at random", documents=topics.at_random(share)) for share in shares]
    if far:
        readers += [Share(name=f"{share * 100:g}% far topics", documents=topics.far_away(share)) for share in shares]
    folder.mkdir()
    return Library(topics, readers, folder)


@asynccontextmanager
async def _closed(library: Library) -> AsyncIterator[Library]:
    yield library
    library.ledger.close()


async def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """All figures."""
    os.environ[KEY_VARIABLE] = fakes.KEY
    rounds, queries, clock = (2 if quick else 5), (20 if quick else 100), Clock()
    figures: list[Figure] = []
    async with _closed(_library(folder / "small", 20_000, (0.05,), far=False)) as library:
        effort = Effort(rounds=rounds, batches=8, rows=20_000, queries=queries)
        figures += await _beside(LanceVendor(folder / "lance"), library, effort, clock, by_clock=True)
        effort = Effort(rounds=rounds, batches=4, rows=1_500, queries=queries)
        with fakes.apart("azure-search") as url:
            figures += await _beside(AzureVendor(url), library, effort, clock, by_clock=False)
        with fakes.apart("pinecone") as host:
            figures += await _beside(PineconeVendor(host), library, effort, clock, by_clock=False)
    async with _closed(_library(folder / "large", _TARGET_ROWS[quick], _SHARES, far=True)) as library:
        with postgres.running() as url:
            effort = Effort(rounds=rounds, batches=8, rows=_TARGET_ROWS[quick], queries=queries)
            figures += await _postgres(PostgresVendor(url), library, effort)
            figures += await retags(folder / "retags", PostgresVendor(url).store("asked"), url)
    return figures


def stores(*, quick: bool) -> list[Figure]:
    """In a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        return asyncio.run(measure(Path(folder), quick=quick))


MEASURES = {"stores": stores}


def main() -> int:
    """The one measure."""
    asked = options(__doc__, MEASURES)
    return finish(MEASURES[asked.name](quick=asked.quick), asked.output)


if __name__ == "__main__":
    sys.exit(main())
