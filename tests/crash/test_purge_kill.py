"""SIGKILL at any moment of a purge: nothing of the blob is shown from then on, and the next purge leaves no byte of it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from ragstore.errors import ConfigError
from tests.support.workspace import Workspace, found, paragraphs

KILLS = 4
PARAGRAPHS = 30
PURGE = (
    "import json, sys, ragstore; from pathlib import Path; from ragstore import config; sections = json.loads(sys.argv[1]); "
    "settings = config.from_mapping(sections, base=Path(sections.pop('base')), environ={}); "
    "index = ragstore.open(settings); print('ready', flush=True); index.purge(sys.argv[2]); index.close()"
)


def purge(work: Workspace, blob: str, *, kill_after: float | None) -> tuple[int, float]:
    """The exit code of a purge in a process of its own, and the seconds it took from the moment in which it was loaded."""
    arguments = [json.dumps({**work.sections, "base": str(work.base)}), blob]
    with subprocess.Popen([sys.executable, "-c", PURGE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        try:
            _, errors = process.communicate(timeout=kill_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, errors
        return process.returncode, time.monotonic() - begin


def on_disk(work: Workspace) -> bytes:
    return b"".join(file.read_bytes() for place in ("index", ".ragstore") for file in (work.base / place).rglob("*") if file.is_file())


async def test_a_killed_purge_shows_nothing_and_is_finished_by_the_next(tmp_path: Path) -> None:
    work = Workspace(tmp_path, store="lancedb")
    topics = [f"topic{number}" for number in range(KILLS + 1)]
    for topic in [*topics, "kept"]:
        work.write(f"{topic}.txt", paragraphs(topic, PARAGRAPHS))
    async with work.open() as index:
        await index.sync()
    chance = random.Random(4)
    killed, whole = 0, 0.0
    for topic in topics:
        (work.docs / f"{topic}.txt").unlink()
        code, took = purge(work, f"docs/{topic}.txt", kill_after=chance.uniform(0.02, 0.9) * whole if whole else None)
        whole = whole or took
        killed += code != 0
        async with work.open() as index:
            if code == 0:
                continue
            # A kill before the first step leaves everything as it was, which may be shown; there is nothing in between.
            shown = [hit for hit in await found(index, f"{topic} paragraph", "Ada", limit=1000) if hit.blob == f"docs/{topic}.txt"]
            assert len(shown) in {0, PARAGRAPHS}
            try:
                assert (await index.purge(f"docs/{topic}.txt")).left == []
            except ConfigError as error:  # it was killed after its last step
                if "holds nothing" not in str(error):
                    raise
            assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}
    assert killed >= KILLS // 2
    content = on_disk(work)
    for topic in topics:
        assert f"{topic}.txt".encode() not in content
        assert f"{topic} paragraph".encode() not in content
    assert b"kept.txt" in content
