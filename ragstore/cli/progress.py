"""A growing report in; a bar with chunks, rate and time left on a terminal, and nothing elsewhere, out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragstore.cli.terminal import Terminal

if TYPE_CHECKING:
    from ragstore.ingest.report import Progress, SyncReport

_SHORTEST: Final = 1.0
"""Seconds of work before a rate means anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """How far a pass is, in chunks: counting documents lies, because one file may hold a third of all chunks."""

    done: int
    total: int | None
    """None until enough was read to tell."""
    rate: float | None
    """Chunks per second."""
    seconds_left: float | None


def estimate(report: SyncReport, *, elapsed: float) -> Estimate:
    """The bytes that are left will hold as many chunks per byte as those that are done.

    Which chunks belong to the bytes that are done is known within bounds only: more than those that are committed, fewer than those that
    have vectors, which include blobs still being read. The middle of the two is off by half at the start, and right soon.
    """
    done = report.chunks_embedded + report.chunks_reused
    of_done_bytes = (min(report.chunks, done) + done) / 2
    total = max(done, round(of_done_bytes * report.bytes_total / report.bytes_done)) if report.bytes_done and done else None
    rate = done / elapsed if done and elapsed >= _SHORTEST else None
    left = (total - done) / rate if rate and total is not None else None
    return Estimate(done=done, total=total, rate=rate, seconds_left=left)


@contextmanager
def shown(terminal: Terminal) -> Iterator[Progress | None]:
    """A `Progress` that draws on stderr while the block runs; None where nobody looks."""
    if not terminal.shows_progress:
        yield None
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn("line"), BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=terminal.err, transient=True) as bar:
        task = bar.add_task("listing", total=None)
        clock = _Clock()

        def draw(report: SyncReport) -> None:
            if report.bytes_total:
                now = estimate(report, elapsed=clock.elapsed())
                bar.update(task, total=now.total, completed=now.done, description=describe(now))

        yield draw


class _Clock:
    """Runs from when it is first asked, so that listing a large container does not spoil the rate."""

    def __init__(self) -> None:
        self._started: float | None = None

    def elapsed(self) -> float:
        if self._started is None:
            self._started = time.monotonic()
        return time.monotonic() - self._started


def describe(now: Estimate) -> str:
    """`1,200 of about 4,000 chunks  310/s  9 s left`."""
    parts = [f"{now.done:,} of about {now.total:,} chunks" if now.total is not None else f"{now.done:,} chunks"]
    if now.rate is not None:
        parts.append(f"{now.rate:,.0f}/s" if now.rate >= 10 else f"{now.rate:.1f}/s")  # noqa: PLR2004 - a decimal only where it tells something
    if now.seconds_left is not None:
        parts.append(f"{_span(now.seconds_left)} left")
    return "  ".join(parts)


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004 - minutes in an hour
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
