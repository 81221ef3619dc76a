"""A server as people have it in; how soon it is ready, how long a search takes beside its parts, and what 50 clients get out of it, out.

    python tests/benchmarks/serving.py serving [--quick] [--output FILE]

`ragstore serve` in a process of its own with the default model: over a few documents until `/readyz` says yes, then over 100,000 rows
(`topics.py`) of which role assignments admit a half. One search is compared with embedding its query and putting both legs to the store
under the same filter; 50 clients that never pause, with a route of FastAPI that does that and no more (`bare.py`), in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

import ragstore
from ragstore import config
from ragstore.contracts import TextQuery, VectorQuery
from ragstore.filters import simplify
from ragstore.index import AsyncIndex
from ragstore.models import Principal
from ragstore.service.keys import new_key
from tests.benchmarks.figures import Figure, finish, options
from tests.benchmarks.topics import CHUNKS, Library, Share, Topics

READY = 3.0
"""Seconds."""
RATIO = 1.5
CLIENTS = 50
LIMIT = 8
_ROWS = {False: 100_000, True: 20_000}
_SEARCHES = {False: 200, True: 30}
_STARTS = {False: 5, True: 2}
_SECONDS = {False: 60.0, True: 10.0}
_TURNS = {False: 3, True: 1}
"""The time under load is divided into so many turns of each server, so that other work on the machine slows both."""
_RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]
_ROOT = Path(__file__).parents[2]
_CONFIGURATION = """
source = []
[store]
type = "lancedb"
path = "index"
[ledger]
url = "sqlite:///ledger.db"
[access]
mode = "azure"
assignments = "assignments.json"
deny_assignments = "none"
principals = "principals.json"
[service]
rate = 0
[[service.keys]]
principal = "PRINCIPAL"
hash = "HASH"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server, and what it took to come up."""

    url: str
    wall: float
    cpu: float
    """Seconds, of the process."""


@contextmanager
def started(command: Sequence[str], folder: Path) -> Iterator[Started]:
    """Run this server, which prints a JSON document with its `url`, until it is ready."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")} | {"PYTHONPATH": str(_ROOT)}
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            text = ""
            while "}" not in text:
                line = process.stdout.readline()
                assert line, "the server ended"
                text += line
            url = json.loads(text)["url"]
            while httpx.get(f"{url}/readyz", timeout=30).status_code != httpx.codes.OK:
                time.sleep(0.01)
            times = psutil.Process(process.pid).cpu_times()
            yield Started(url=url, wall=time.perf_counter() - began, cpu=times.user + times.system)
        finally:
            process.terminate()


def ready(folder: Path, *, quick: bool) -> list[Figure]:
    """From the command to the first yes of `/readyz`, over a few documents."""
    (folder / "docs").mkdir()
    for number in range(20):
        (folder / "docs" / f"{number}.md").write_text(f"# Document {number}\n\nIt is about the subject {number}.\n")
    (folder / "ragstore.toml").write_text('source = {type = "folder", path = "docs"}\naccess = {mode = "open"}\n')
    with ragstore.open(folder / "ragstore.toml") as index:
        index.sync()
    starts = []
    for _ in range(_STARTS[quick]):
        with started([*_RAGSTORE, "serve", "--port", "0", "--json", "--quiet"], folder) as server:
            starts.append(server)
    wall, cpu = (statistics.median(getattr(start, name) for start in starts) for name in ("wall", "cpu"))
    note = "with the default model loaded; the CPU seconds are what counts on a busy machine"
    return [Figure(name="ragstore serve: from start to ready", value=wall, unit="s", target=READY, wall=wall, cpu=cpu, note=note)]


@dataclass(slots=True, kw_only=True)
class Place:
    """An index of many rows in a folder, and who reads half of it."""

    folder: Path
    principal: Principal
    key: str
    queries: list[str]
    index: AsyncIndex


@asynccontextmanager
async def filled(folder: Path, rows: int) -> AsyncIterator[Place]:
    """An index of so many rows, as if a pass had written them."""
    topics = Topics(rows // CHUNKS)
    share = Share(name="half", documents=topics.at_random(0.5))
    library = Library(topics, [share], folder)  # writes the assignments too
    key, digest = new_key()
    people = [{"id": share.principal.id, "name": share.principal.name, "groups": []}]
    (folder / "principals.json").write_text(json.dumps(people))
    file = folder / "ragstore.toml"
    file.write_text(_CONFIGURATION.replace("PRINCIPAL", share.principal.id).replace("HASH", digest))
    async with AsyncIndex(config.load(file)) as index:
        parts = index._assembly
        holding = parts.configured()
        await library.fill(parts.store(holding))
        library.ledger.close()
        parts.hold(holding)
        texts = [row.text for document in range(0, topics.documents, max(1, topics.documents // 500)) for row in library.rows(document)]
        yield Place(
            folder=folder,
            principal=index.principal(share.principal.id),
            key=key,
            queries=[" ".join(text.split()[1:11]) for text in texts],
            index=index,
        )


class Parts:
    """What a search is made of: its query embedded, and both legs put to the store under the principal's filter."""

    def __init__(self, index: AsyncIndex, principal: Principal) -> None:
        self._embedder, self._store = index._assembly.reading()
        self._policy = index._assembly.policy
        self._principal = principal

    async def search(self, query: str) -> list[str]:
        """Texts, of either leg."""
        admitted = simplify(self._policy.filter_for(self._principal).filter)
        vector = (await self._embedder.embed([query], purpose="query"))[0]
        legs = await asyncio.gather(
            self._store.search(VectorQuery(vector=vector), filter=admitted, limit=LIMIT),
            self._store.search(TextQuery(text=query), filter=admitted, limit=LIMIT),
        )
        return [match.text for leg in legs for match in leg]


async def searches(place: Place, *, quick: bool) -> list[Figure]:
    """One search after another, beside its parts."""
    parts = Parts(place.index, place.principal)
    ways = {"ours": lambda query: place.index.search(query, principal=place.principal, limit=LIMIT), "parts": parts.search}
    times: dict[str, list[float]] = {name: [] for name in ways}
    chosen = place.queries[: _SEARCHES[quick] + 5]
    for number, query in enumerate(chosen):
        order = list(ways) if number % 2 else list(reversed(ways))
        for name in order:
            begin = time.perf_counter()
            found: Any = await ways[name](query)
            assert found
            if number >= 5:  # what is opened by the first questions is no part of it
                times[name].append((time.perf_counter() - begin) * 1000)
    ours, raw = _p95(times["ours"]), _p95(times["parts"])
    medians = ", ".join(f"{name} {statistics.median(found):.1f}" for name, found in times.items())
    return [
        Figure(
            name="search: p95 beside embedding + store",
            value=ours / raw,
            unit="x parts",
            target=None if quick else RATIO,
            note=f"p95 {ours:.1f} ms, of the parts {raw:.1f} ms; medians, ms: {medians}",
        )
    ]


@dataclass(slots=True)
class Load:
    """What clients were answered."""

    times: list[float] = field(default_factory=list)
    errors: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.times) / self.seconds


async def load(url: str, headers: Mapping[str, str], queries: Sequence[str], seconds: float, told: Load) -> None:
    """So many clients, each asking again as soon as it is answered."""
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60, headers=dict(headers)) as http:
        end = time.perf_counter() + seconds

        async def client(number: int) -> None:
            while time.perf_counter() < end:
                begin = time.perf_counter()
                number += CLIENTS
                try:
                    answer = await http.post("/v1/search", json={"query": queries[number % len(queries)], "limit": LIMIT})
                except httpx.HTTPError:
                    told.errors += 1
                    continue
                if answer.status_code == httpx.codes.OK and answer.json()["hits"]:
                    told.times.append((time.perf_counter() - begin) * 1000)
                else:
                    told.errors += 1

        begin = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        told.seconds += time.perf_counter() - begin


async def clients(place: Place, *, quick: bool) -> list[Figure]:
    """50 clients of the service, and of the bare route, in turn."""
    bare = [sys.executable, "-m", "tests.benchmarks.bare", str(place.folder), place.principal.id]
    commands = {"ours": [*_RAGSTORE, "serve", "--port", "0", "--json", "--quiet"], "bare": bare}
    headers = {"Authorization": f"Bearer {place.key}"}
    loads = {name: Load() for name in commands}
    for _ in range(_TURNS[quick]):
        for name, command in commands.items():
            with started(command, place.folder) as server:
                await load(server.url, headers, place.queries, _SECONDS[quick] / _TURNS[quick], loads[name])
    ours, other = loads["ours"], loads["bare"]
    note = f"p95 {_p95(ours.times):.0f} ms, bare {_p95(other.times):.0f} ms; both share {os.cpu_count()} cores with the clients"
    return [
        Figure(
            name=f"{CLIENTS} clients: answers per second",
            value=ours.rate,
            unit="1/s",
            baseline=other.rate,
            baseline_name="bare route",
            wall=ours.seconds,
            note=note,
        ),
        Figure(
            name=f"{CLIENTS} clients: errors", value=ours.errors, unit="", target=0, note=f"of {len(ours.times) + ours.errors} requests"
        ),
    ]


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1] if len(times) > 1 else float("nan")


async def _over_many_rows(folder: Path, *, quick: bool) -> list[Figure]:
    async with filled(folder, _ROWS[quick]) as place:
        return [*await searches(place, quick=quick), *await clients(place, quick=quick)]


def serving(*, quick: bool) -> list[Figure]:
    """In folders of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as small,
        tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as large,
    ):
        return [*ready(Path(small), quick=quick), *asyncio.run(_over_many_rows(Path(large), quick=quick))]


MEASURES = {"serving": serving}


def main() -> int:
    """The one measure."""
    asked = options(__doc__, MEASURES)
    return finish(MEASURES[asked.name](quick=asked.quick), asked.output)


if __name__ == "__main__":
    sys.exit(main())
