"""Searches as some principal in; what they miss of the exact answer, and their time beside LanceDB's own, out.

    python tests/benchmarks/filtered.py filtered [--quick] [--output FILE]

100,000 rows of clustered vectors in the default store, readable by role assignments with conditions over tags: half of the documents, a
twentieth and a two-hundredth, drawn at random and made of whole topics far from what is asked for. The time is that of `Retriever.search`
over the vectors, all but the embedding of the query, beside the same query put to LanceDB directly, in turn, so that other work on the
machine slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragstore.contracts import VectorQuery
from ragstore.filters import simplify
from ragstore.retrieval import Retriever
from ragstore_lancedb import LanceDBStore
from ragstore_lancedb.connection import load_lancedb
from ragstore_lancedb.filters import where
from tests.benchmarks.figures import Figure, finish, options
from tests.benchmarks.topics import CHUNKS, DIMENSIONS, Chosen, Library, Share, Topics, Vectors

if TYPE_CHECKING:
    from lancedb.query import AsyncVectorQuery
    from lancedb.table import AsyncTable

LIMIT = 10
RECALL = 0.99
RATIO = 1.3
_ROWS = {False: 100_000, True: 20_000}
_QUERIES = {False: 100, True: 20}
_TIMED = {False: 60, True: 15}
_SHARES = (0.51, 0.05, 0.005)
"""The first is above what the store searches exactly, so that its approximate index is asked as well."""
_PATTERN = "0.5% by a pattern"
_WANTED = 8
_PATTERNS = {False: 10, True: 3}
"""Searches under a filter that is not exact."""

Search = Callable[[Share, Vectors], Awaitable[list[int]]]
"""Numbers of the chunks that were found."""


class Searches:
    """The same search through the one door, by the store alone, and put to LanceDB."""

    def __init__(self, library: Library, store: LanceDBStore, table: AsyncTable, *, exact_below: int) -> None:
        self._library = library
        self._store = store
        self._table = table
        self._exact_below = exact_below
        self._embedder = Chosen()
        self._retriever = Retriever(
            store=store,
            embedder=self._embedder,
            policy=library.policy,
            committed=library.ledger.documents.committed,
            at_once=library.ledger.documents.committed_at_once,
        )

    async def retrieve(self, share: Share, query: Vectors, limit: int = LIMIT) -> list[int]:
        """What the principal is shown."""
        self._embedder.vectors = {"asked": query}
        hits = await self._retriever.search("asked", principal=share.principal, limit=limit, legs="vector")
        return [self._library.numbers[hit.chunk] for hit in hits]

    async def store(self, share: Share, query: Vectors) -> list[int]:
        """What the store finds under the principal's filter."""
        found = self._library.policy.filter_for(share.principal).filter
        matches = await self._store.search(VectorQuery(vector=query), filter=found, limit=LIMIT)
        return [self._library.numbers[match.chunk_id] for match in matches]

    async def defaults(self, share: Share, query: Vectors) -> list[int]:
        """What LanceDB finds under the same condition if it is told nothing else."""
        return await self._found(self._query(share, query))

    async def raw(self, share: Share, query: Vectors) -> list[int]:
        """What LanceDB finds by a query that misses nothing: without its index where few rows are admitted, else as the store asks it."""
        asked = self._query(share, query)
        if share.documents.sum() * CHUNKS <= self._exact_below:
            return await self._found(asked.bypass_vector_index())
        return await self._found(asked.refine_factor(100).maximum_nprobes(0).minimum_nprobes(50))

    def _query(self, share: Share, query: Vectors) -> AsyncVectorQuery:
        condition = where(simplify(self._library.policy.filter_for(share.principal).filter))
        asked = self._table.query().nearest_to(query).distance_type("cosine").limit(LIMIT)
        asked = asked.select(["chunk_id", "document_id", "text", "_distance"])
        return asked if condition is None else asked.where(condition)

    async def _found(self, query: AsyncVectorQuery) -> list[int]:
        found = await query.to_arrow()
        return [self._library.numbers[key] for key in found.column("chunk_id").to_pylist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one search, in milliseconds."""

    wall: float
    cpu: float
    """Of all threads of the process."""


async def _timed(search: Search, share: Share, query: Vectors) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    await search(share, query)
    return Cost(wall=(time.perf_counter() - wall) * 1_000, cpu=(time.process_time() - cpu) * 1_000)


async def _recall(search: Search, topics: Topics, share: Share, queries: Sequence[Vectors]) -> float:
    """Of the ten nearest chunks, how many of ten are found."""
    found = 0
    for query in queries:
        found += len(set(await search(share, query)).intersection(topics.best(query, share.documents, LIMIT)))
    return found / (LIMIT * len(queries))


async def _quality(searches: Searches, topics: Topics, share: Share, queries: Sequence[Vectors]) -> Figure:
    ours = await _recall(searches.retrieve, topics, share, queries)
    defaults = await _recall(searches.defaults, topics, share, queries)
    note = f"{share.documents.sum() * CHUNKS:,} rows may be read; LanceDB with its defaults {defaults:.3f}"
    return Figure(name=f"{share.name}: recall@{LIMIT}", value=ours, unit="", target=RECALL, at_least=True, note=note)


async def _speed(searches: Searches, share: Share, queries: Sequence[Vectors], *, target: float | None) -> Figure:
    """The median time of a search beside that of the raw query, in turn."""
    ways: dict[str, Search] = {"raw": searches.raw, "ours": searches.retrieve, "store": searches.store, "defaults": searches.defaults}
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number, query in enumerate(queries):
        order = [*ways][number % len(ways) :] + [*ways][: number % len(ways)]
        for name in order:
            costs[name].append(await _timed(ways[name], share, query))
    wall = {name: statistics.median(cost.wall for cost in found) for name, found in costs.items()}
    cpu = {name: statistics.median(cost.cpu for cost in found) for name, found in costs.items()}
    note = f"CPU {cpu['ours'] / cpu['raw']:.2f} times; ms: " + ", ".join(f"{name} {took:.1f}" for name, took in wall.items())
    return Figure(name=f"{share.name}: time of a search", value=wall["ours"] / wall["raw"], unit="x raw", target=target, note=note)


async def _filled(searches: Searches, topics: Topics, share: Share, queries: Sequence[Vectors]) -> list[Figure]:
    """Under a filter that admits every row, of which one in two hundred may be read."""
    fewest, missed, times = _WANTED, 0, []
    for query in queries:
        start = time.perf_counter()
        found = await searches.retrieve(share, query, _WANTED)
        times.append((time.perf_counter() - start) * 1_000)
        fewest = min(fewest, len(found))
        missed += len(set(topics.best(query, share.documents, _WANTED)).difference(found))
    note = f"of {share.documents.sum() * CHUNKS:,} among all {topics.documents * CHUNKS:,} rows, {missed} of the nearest missed"
    return [
        Figure(name=f"{share.name}: fewest hits", value=fewest, unit="hits", target=_WANTED, at_least=True, note=note),
        Figure(name=f"{share.name}: time of a search", value=statistics.median(times), unit="ms"),
    ]


def _shares(topics: Topics) -> list[Share]:
    at_random = [Share(name=f"{share * 100:g}% at random", documents=topics.at_random(share)) for share in _SHARES]
    return at_random + [Share(name=f"{share * 100:g}% far topics", documents=topics.far_away(share)) for share in _SHARES]


async def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """All figures, over one library. A quick one has a fifth of the rows, and its store is told so, that it may do the same."""
    topics = Topics(_ROWS[quick] // CHUNKS)
    shares = _shares(topics)
    pattern = Share(name=_PATTERN, documents=topics.at_random(0.005), operator="StringLike", pattern="in *")
    library = Library(topics, [*shares, pattern], folder)
    exact_below = _ROWS[quick] // 2
    store = LanceDBStore(
        base=folder, path="index", collection="chunks", dimensions=DIMENSIONS, ann_from=_ROWS[quick], exact_below=exact_below
    )
    await library.fill(store)
    connection = await load_lancedb().connect_async(folder / "index")
    searches = Searches(library, store, await connection.open_table("chunks"), exact_below=exact_below)
    queries = list(topics.queries(_QUERIES[quick]))
    figures = [await _quality(searches, topics, share, queries) for share in shares]
    # Of a search among few rows the fixed costs are more: a quick run has no target for its time.
    figures += [await _speed(searches, share, queries[: _TIMED[quick]], target=None if quick else RATIO) for share in shares]
    figures += await _filled(searches, topics, pattern, queries[: _PATTERNS[quick]])
    await store.close()
    library.ledger.close()
    return figures


def filtered(*, quick: bool) -> list[Figure]:
    """In a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        return asyncio.run(measure(Path(folder), quick=quick))


MEASURES = {"filtered": filtered}


def main() -> int:
    """The one measure."""
    asked = options(__doc__, MEASURES)
    return finish(MEASURES[asked.name](quick=asked.quick), asked.output)


if __name__ == "__main__":
    sys.exit(main())
