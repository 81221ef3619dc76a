"""SIGKILL at any moment of a pass, or of a worker: the next one ends in step, and does nothing again that was finished."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.workspace import Workspace, found, paragraphs

INDEXER = Path(__file__).with_name("indexer.py")
MOMENTS = ["after:0", "before:0", "-", "after:1", "-", "before:1", "-", "after:2", "-", "before:2"]
"""`after:0` is after the store's first write and before the ledger's; `-` is killed from outside, at a random time."""


class Killer:
    """Runs passes in processes of their own, and knows which vectors were finished before each."""

    def __init__(self, work: Workspace, what: str) -> None:
        self.work = work
        self.what = what
        self.log = work.base / "embedded.log"
        self.log.touch()
        self.runs = 0
        self.killed = 0

    def cached(self) -> set[str]:
        ledger = self.work.base / ".ragstore" / "ledger.db"
        if not ledger.exists():
            return set()
        with sqlite3.connect(ledger) as connection:
            return {row[0] for row in connection.execute("SELECT text_hash FROM vectors")} if self._has_table(connection) else set()

    @staticmethod
    def _has_table(connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'vectors'").fetchall())

    def run(self, moment: str, *, kill_after: float | None = None) -> int:
        """The exit code of one pass; checks that it embedded nothing that was in the cache when it began."""
        finished = self.cached()
        before = len(self.log.read_text().splitlines())
        arguments = [json.dumps({**self.work.sections, "base": str(self.work.base)}), str(self.log), moment, self.what]
        process = subprocess.Popen([sys.executable, str(INDEXER), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            _, errors = process.communicate(timeout=kill_after if kill_after is not None else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, errors
        embedded = self.log.read_text().splitlines()[before:]
        assert not finished & set(embedded), "finished work was done again"
        assert len(embedded) == len(set(embedded)), "a text was embedded twice in one pass"
        self.runs += 1
        self.killed += process.returncode != 0
        return process.returncode


def change(work: Workspace, chance: random.Random) -> None:
    """A few random changes of every kind."""
    names = sorted(file.name for file in work.docs.iterdir())
    for _ in range(4):
        kind = chance.choice(["new", "edit", "rename", "retag", "delete"])
        name = chance.choice(names)
        file = work.docs / name
        if kind == "new" or not file.exists():
            work.write(f"{chance.randrange(10**6)}.txt", paragraphs(f"topic{chance.randrange(10**6)}", chance.randrange(1, 40)))
        elif kind == "edit":
            work.write(name, f"edited {chance.random()}\n\n" + file.read_text())
        elif kind == "rename":
            work.allow(f"r{name}", "staff")
            file.rename(work.docs / f"r{name}")
        elif kind == "retag":
            work.allow(name, chance.choice(["staff", "board", ""]))
        else:
            file.unlink()


async def kill_and_converge(work: Workspace, rounds: int, seed: int, what: str) -> None:
    chance = random.Random(seed)
    for i in range(12):
        work.write(f"{i}.txt", paragraphs(f"topic{i}", 20 + i))
    killer = Killer(work, what)
    started = time.monotonic()
    assert killer.run("before:0") == -signal.SIGKILL
    start_up = time.monotonic() - started
    for number in range(rounds):
        moment = MOMENTS[number % len(MOMENTS)]
        killer.run(moment, kill_after=None if moment != "-" else start_up * chance.uniform(0.3, 1.5))
        change(work, chance)
    assert killer.run("-") == 0
    assert killer.killed >= rounds // 3
    async with work.open() as index:
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}
        shown = {hit.blob for hit in await found(index, "topic paragraph speaks about", "Ada", limit=1000)}
    readable = {f"docs/{file.name}" for file in work.docs.iterdir() if work.tags.get(file.name, {}).get("allow")}
    assert shown == readable
    assert killer.run("-") == 0, "and a pass without change"
    print(f"{killer.runs} passes, {killer.killed} killed, {len(killer.log.read_text().splitlines())} texts embedded")


@pytest.mark.parametrize("what", ["pass", "worker"])
async def test_ten_kills_end_in_step(tmp_path: Path, what: str) -> None:
    await kill_and_converge(Workspace(tmp_path, store="lancedb"), rounds=10, seed=int(os.environ.get("RAGSTORE_SEED", "7")), what=what)


@pytest.mark.long
@pytest.mark.parametrize("what", ["pass", "worker"])
async def test_fifty_kills_end_in_step(tmp_path: Path, what: str) -> None:
    await kill_and_converge(Workspace(tmp_path, store="lancedb"), rounds=50, seed=random.randrange(10**6), what=what)
