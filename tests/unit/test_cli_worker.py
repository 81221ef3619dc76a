"""`ragstore worker` as a process: it follows, is seen, and ends when it is asked to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ragstore.cli.outcome import Exit
from tests.support.commands import Ragstore

# Whoever runs the tests in the background may have told their children to ignore an interrupt; a terminal does not.
_HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
_COMMAND = [sys.executable, "-c", _HEED + "from ragstore.cli import main; main()"]
_SECONDS = 60


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("alpha words")
    (tmp_path / "ragstore.toml").write_text(
        'source = {type = "folder", path = "docs", feed = "watch"}\nembedder = {type = "hash"}\naccess = {mode = "open"}\n'
    )
    return tmp_path


@contextmanager
def worker(here: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*_COMMAND, "worker", *arguments], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def status(ragstore: Ragstore) -> dict[str, object]:
    """As another process than the worker's sees it."""
    found: dict[str, object] = ragstore("status", "--json").json
    return found


def test_until_idle_prints_the_report_of_a_pass(here: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")}
    command = [*_COMMAND, "worker", "--until-idle", "--json"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=_SECONDS, env=environment, check=False)
    assert done.returncode == Exit.DONE, done.stderr
    report = json.loads(done.stdout)
    assert (report["added"], report["chunks_embedded"]) == (1, 1)


def test_a_blob_in_quarantine_is_told_by_the_exit_code(here: Path, ragstore: Ragstore) -> None:
    (here / "docs" / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    assert ragstore("worker", "--until-idle").code == Exit.INCOMPLETE
    assert ragstore("worker", "--until-idle").code == Exit.INCOMPLETE, "as long as it is there, as after a pass"


def test_deletes_that_a_guard_holds_back_are_told_by_the_exit_code(here: Path, ragstore: Ragstore) -> None:
    for number in range(25):
        (here / "docs" / f"{number}.txt").write_text(f"words {number}")
    assert ragstore("worker", "--until-idle").code == Exit.DONE
    for number in range(25):
        (here / "docs" / f"{number}.txt").unlink()
    assert ragstore("worker", "--until-idle").code == Exit.STOPPED
    assert ragstore("worker", "--until-idle", "--allow-mass-delete").code == Exit.DONE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_is_seen_follows_and_ends_in_good_order(here: Path, ragstore: Ragstore, number: signal.Signals) -> None:
    with worker(here, "--metrics-port", "0", "--verbose") as process:
        until(lambda: status(ragstore)["worker"] is not None and status(ragstore)["blobs"] == 1)
        (here / "docs" / "new.txt").write_text("gamma words")
        until(lambda: status(ragstore)["blobs"] == 2)
        refused = ragstore("index")
        assert refused.code == Exit.USAGE
        assert "another ragstore" in refused.err
        process.send_signal(number)
        out, log = process.communicate(timeout=20)
    assert (process.returncode, out) == (Exit.DONE, ""), log
    events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
    assert events[0] == "worker.started"
    assert events[-1] == "worker.stopped"
    assert status(ragstore)["worker"] is None


def test_metrics_are_served_on_the_port_that_was_asked_for(here: Path, unused_tcp_port: int) -> None:
    with worker(here, "--metrics-port", str(unused_tcp_port)):
        url = f"http://127.0.0.1:{unused_tcp_port}/metrics"

        def tells(line: str) -> bool:
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return line in answer.read().decode()
            except OSError:
                return False

        until(lambda: tells('ragstore_changes_total{kind="content"} 1.0'))
        until(lambda: tells("ragstore_embedded_chunks_total 1.0"))
        until(lambda: tells('ragstore_queue_depth{queue="work"} 0.0'))
