"""What is measured in, figures with target and baseline out: wall and CPU seconds, peak memory, a line of a table, a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

RESULTS = Path(__file__).parent / "results"
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, beside what the raw parts need for the same work in the same process and minute."""

    name: str
    value: float
    unit: str
    target: float | None = None
    """None: shown for comparison, judged by nobody."""
    at_least: bool = False
    """Whether the target is the smallest good value; otherwise it is the largest."""
    wall: float | None = None
    """Seconds."""
    cpu: float | None = None
    """Seconds, of the process and its children."""
    baseline: float | None = None
    """In the same unit."""
    baseline_name: str = ""
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the target was reached, where there is one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target

    def line(self) -> str:
        """The figure as a line of the table that `head` begins."""
        sign = "" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}"
        verdict = "" if self.target is None else ("ok" if self.reached else "MISSED")
        ratio = f"{self.value / self.baseline:.1f} x {self.baseline_name} {self.baseline:.4g}" if self.baseline else ""
        wall, cpu = (f"{seconds:.2f}" if seconds is not None else "" for seconds in (self.wall, self.cpu))
        text = f"{self.name:<44}{self.value:>10.4g} {self.unit:<9}{sign:>9} {verdict:<7}{wall:>8}{cpu:>8}  {ratio:<44}{self.note}"
        return text.rstrip()


def pace() -> float:
    """Seconds that plain Python needs for two million additions here and now, the least of seven: what wall and CPU times compare with.

    Shared machines change theirs by a half within minutes: figures of different runs compare only where their paces do.
    """
    times = []
    for _ in range(7):
        start = time.perf_counter()
        total = 0
        for number in range(2_000_000):
            total += number
        times.append(time.perf_counter() - start)
    return min(times)


def head() -> str:
    """The names of the columns."""
    return f"{'figure':<44}{'value':>10} {'unit':<9}{'target':>9} {'':<7}{'wall s':>8}{'CPU s':>8}  {'ratio to baseline':<44}note"


class Stopwatch:
    """`with Stopwatch() as watch:` and afterwards `watch.wall` and `watch.cpu`, in seconds; CPU of this process and its children."""

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    """Of this process, of children that have ended, and of those that still run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        running += times.user + times.system
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


@dataclass(slots=True)
class PeakMemory:
    """The most memory that a process and its children had, in MB, as seen by looking every few milliseconds."""

    total: float = 0.0
    """Sum over all processes; pages that they share count in each."""
    main: float = 0.0
    child: float = 0.0
    """Of the largest child."""

    def look(self, process: psutil.Process) -> None:
        """Once more."""
        try:
            main = process.memory_info().rss / _MEGABYTE
            children = [child.memory_info().rss / _MEGABYTE for child in process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        self.total = max(self.total, main + sum(children))
        self.main = max(self.main, main)
        self.child = max([self.child, *children])


def options(description: str | None, names: Iterable[str]) -> argparse.Namespace:
    """`NAME --quick --output FILE`, the command line of every benchmark that `run.py` starts."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("name", choices=sorted(names))
    parser.add_argument("--quick", action="store_true", help="less data: minutes become seconds, and the figures are rougher")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    return parser.parse_args()


def finish(figures: list[Figure], output: Path | None) -> int:
    """Print the figures and write them; 1 where a target was missed."""
    print(head())
    for figure in figures:
        print(figure.line(), flush=True)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        made = {"load": os.getloadavg()[0], "figures": [asdict(figure) for figure in figures]}
        output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0 if all(figure.reached for figure in figures) else 1
