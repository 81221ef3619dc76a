"""A configuration in; workers in processes of their own, which are killed and ended, and what each of them did, out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLLOWER = Path(__file__).parent.parent / "crash" / "follower.py"
ENDS_WITHIN = 15.0
"""Seconds after SIGTERM."""


@dataclass(slots=True, kw_only=True)
class _Run:
    process: subprocess.Popen[str]
    embedded: Path
    errors: Path
    cached: set[str]
    """The vectors that were there when it began."""


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Worker processes by number. `cached` gives the hashes of all texts whose vectors are stored. `close` it, whatever happened."""

    config: Path
    folder: Path
    cached: Callable[[], set[str]]
    lease_seconds: float = 120.0
    runs: int = 0
    killed: int = 0
    ended: int = 0
    slowest_end: float = 0.0
    embedded: Counter[str] = field(default_factory=Counter)
    """How often each text was given to the embedder, in all runs."""
    said: Counter[str] = field(default_factory=Counter)
    """The names of all log lines."""
    _running: dict[int, _Run] = field(default_factory=dict)

    def start(self, number: int) -> None:
        assert number not in self._running
        self._running[number] = self._launch("worker")

    def wait_until(self, number: int, said: str, seconds: float = 20) -> None:
        """Until its log says this, or so long."""
        run, deadline = self._running[number], time.monotonic() + seconds
        while not _says(run.errors, said) and run.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        run = self._running.pop(number)
        run.process.kill()
        run.process.wait()
        self.killed += 1
        self._check(run, -signal.SIGKILL)

    def end(self, number: int) -> None:
        """SIGTERM; it ends in good time, and in good order."""
        run = self._running.pop(number)
        started = time.monotonic()
        run.process.terminate()
        try:
            run.process.wait(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            run.process.kill()
            run.process.wait()
            raise AssertionError(f"it had not ended {ENDS_WITHIN} s after SIGTERM:\n{_tail(run.errors)}") from None
        self.slowest_end = max(self.slowest_end, time.monotonic() - started)
        self.ended += 1
        # While it is still starting there is nothing to finish: it ends as other programs do.
        self._check(run, *([0] if _says(run.errors, "worker.started") else [0, 143, -signal.SIGTERM]))

    def until_idle(self, timeout: float = 90) -> dict[str, Any]:
        """The report of a worker that ends by itself."""
        run = self._launch("worker", "--until-idle", "--json")
        try:
            output, _ = run.process.communicate(timeout=timeout)
        finally:
            run.process.kill()
            run.process.wait()
        self._check(run, 0)
        report: dict[str, Any] = json.loads(output)
        return report

    def check_alive(self) -> None:
        """None of them ended by itself."""
        for number, run in self._running.items():
            code = run.process.poll()
            assert code is None, f"worker {number} ended by itself with {code}:\n{_tail(run.errors)}"

    def running(self) -> list[int]:
        return sorted(self._running)

    def close(self) -> None:
        for run in self._running.values():
            run.process.kill()
            run.process.communicate()
        self._running.clear()

    def _launch(self, *command: str) -> _Run:
        self.runs += 1
        embedded, errors = self.folder / f"embedded-{self.runs}.log", self.folder / f"errors-{self.runs}.log"
        embedded.touch()
        cached = self.cached()
        arguments = [sys.executable, str(FOLLOWER), str(embedded), str(self.lease_seconds), *command, "--config", str(self.config)]
        output = subprocess.PIPE if "--json" in command else subprocess.DEVNULL
        with errors.open("wb") as stream:
            process = subprocess.Popen(arguments, stdout=output, stderr=stream, text=True)
        return _Run(process=process, embedded=embedded, errors=errors, cached=cached)

    def _check(self, run: _Run, *codes: int) -> None:
        assert run.process.returncode in codes, f"it ended with {run.process.returncode}:\n{_tail(run.errors)}"
        texts = run.embedded.read_text(encoding="ascii").split()
        assert not run.cached.intersection(texts), "finished work was done again"
        twice = [text for text, count in Counter(texts).items() if count > 1]
        assert not twice, f"{len(twice)} texts were embedded twice by one worker"
        self.embedded.update(texts)
        for line in run.errors.read_text(encoding="utf-8", errors="replace").splitlines():
            self.said[_name_of(line)] += 1


def _name_of(line: str) -> str:
    try:
        return str(json.loads(line)["event"])
    except (ValueError, KeyError, TypeError):
        return line[:100]


def _says(file: Path, name: str) -> bool:
    return name in file.read_text(encoding="utf-8", errors="replace")


def _tail(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")[-4000:]
