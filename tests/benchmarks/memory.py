"""Blobs in, the peak memory of indexing them out: over few and many files, and over one text of 256 MB.

    python tests/benchmarks/memory.py files|blob [--quick] [--output FILE]

Each pass runs in a process of its own; it and its children (parsers) are looked at from outside every few milliseconds.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.corpus import Corpus
from tests.benchmarks.figures import Figure, PeakMemory, finish, options

_LOOK_SECONDS = 0.01
_BLOB = 256 * 2**20
"""Exactly the default of `max_bytes`."""
_FLAT = 1.2
"""Five times the files may take so many times the memory: two equal runs differ by a tenth, by what the allocator keeps."""

_PASS = """
import json, sys, time
from pathlib import Path
import ragstore
from tests.benchmarks.corpus import settings
begin = time.perf_counter()
with ragstore.open(settings(Path(sys.argv[1]))) as index:
    report = index.sync()
    failures = index.failures()
print(json.dumps({"chunks": report.chunks, "failures": failures, "wall": time.perf_counter() - begin, "cpu": time.process_time()}))
"""
_NOTHING = "import lancedb, pyarrow, numpy, sqlalchemy, pydantic, langchain_text_splitters, time; time.sleep(0.3)"
"""The libraries alone: what no pass can go below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A pass that was watched."""

    memory: PeakMemory
    chunks: int
    wall: float
    cpu: float


def _watched(*arguments: str) -> tuple[PeakMemory, str]:
    """Run Python with these arguments; the peak of its memory, and what it printed."""
    peak = PeakMemory()
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            peak.look(process)
            time.sleep(_LOOK_SECONDS)
        assert child.stdout is not None
        printed = child.stdout.read()
    if child.returncode:
        raise RuntimeError(f"the watched process ended with {child.returncode}")
    return peak, printed


def _pass(base: Path) -> Outcome:
    memory, printed = _watched("-c", _PASS, str(base))
    told = json.loads(printed)
    if told["failures"]:
        raise RuntimeError(f"not everything was indexed: {told['failures'][:3]}")
    return Outcome(memory=memory, chunks=told["chunks"], wall=told["wall"], cpu=told["cpu"])


def files(*, quick: bool) -> list[Figure]:
    """The peak of a first pass over 1,500 files against one over 300."""
    few, many = (_over_files(count) for count in ((60, 300) if quick else (300, 1500)))
    libraries = _watched("-c", _NOTHING)[0].total
    ratio = many.memory.total / few.memory.total
    note = f"{many.memory.total:.0f} MB for {many.chunks} chunks, {few.memory.total:.0f} MB for {few.chunks}"
    return [
        Figure(name="peak memory, 5 times the files", value=ratio, unit="times", target=_FLAT, wall=many.wall, cpu=many.cpu, note=note),
        Figure(
            name="peak memory, many files",
            value=many.memory.total,
            unit="MB",
            baseline=libraries,
            baseline_name="libraries alone",
        ),
    ]


def _over_files(count: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        corpus = Corpus(Path(folder))
        corpus.fill(count)
        return _pass(corpus.base)


def blob(*, quick: bool) -> list[Figure]:
    """The peak while one text of the largest size that is read by default is indexed."""
    size = _BLOB // 8 if quick else _BLOB
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder:
        corpus = Corpus(Path(folder))
        write_text(corpus.docs / "large.txt", size)
        done = _pass(corpus.base)
    libraries = _watched("-c", _NOTHING)[0].total
    title = f"text of {size // 2**20} MB"
    return [
        Figure(
            name=f"{title}: peak memory of all processes",
            value=done.memory.total,
            unit="MB",
            target=500,
            wall=done.wall,
            cpu=done.cpu,
            baseline=libraries,
            baseline_name="libraries alone",
            note=f"{done.chunks} chunks",
        ),
        Figure(name=f"{title}: peak memory, main process", value=done.memory.main, unit="MB", target=500),
        Figure(name=f"{title}: peak memory, parser process", value=done.memory.child, unit="MB", target=500),
        Figure(name=f"{title}: time per chunk", value=done.wall * 1000 / done.chunks, unit="ms", note="start-up and embedder included"),
    ]


def write_text(file: Path, size: int) -> None:
    """Exactly so many bytes of words in sentences and paragraphs; hardly any paragraph comes twice."""
    dice = random.Random(0)
    syllables = ["ka", "lo", "mi", "ter", "an", "su", "ve", "ri", "don", "el", "pra", "sto", "qui", "nem", "or", "bal"]
    words = ["".join(dice.choices(syllables, k=dice.choice((1, 2, 2, 3, 4)))) for _ in range(20_000)]
    written = 0
    with file.open("wb") as out:
        while written < size:
            sentences = [" ".join(dice.choices(words, k=dice.randint(5, 20))).capitalize() + "." for _ in range(dice.randint(2, 8))]
            paragraph = (" ".join(sentences) + "\n\n").encode()[: size - written]
            written += out.write(paragraph)


BENCHMARKS = {"files": files, "blob": blob}


def main() -> int:
    """Run the named benchmark."""
    chosen = options(__doc__, BENCHMARKS)
    return finish(BENCHMARKS[chosen.name](quick=chosen.quick), chosen.output)


if __name__ == "__main__":
    sys.exit(main())
