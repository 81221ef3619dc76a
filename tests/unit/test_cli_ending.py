"""A command that is ended from outside, or meets a full disk: its exit code, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragstore.cli.files import write_whole
from ragstore.cli.outcome import Exit
from tests.support.commands import Ragstore

# Whoever runs the tests in the background may have told their children to ignore an interrupt; a terminal does not.
_HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
_SLOWLY = """
import asyncio
from ragstore.embedding.hashing import HashEmbedder
embed = HashEmbedder.embed
async def slowly(self, texts, *, purpose):
    await asyncio.sleep(1)
    return await embed(self, texts, purpose=purpose)
HashEmbedder.embed = slowly
from ragstore.cli import main; main()
"""
_NARROW = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
from ragstore.cli import main; main()
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for number in range(60):
        # The first ones are large enough for the spool.
        words = " ".join(f"word{number}x{i}" for i in range(8000 if number < 3 else 300))
        (tmp_path / "docs" / f"{number}.txt").write_text(words)
    return tmp_path


def _environment() -> dict[str, str]:
    return {**os.environ, "RAGSTORE_EMBEDDER__TYPE": "hash"}


def _start(here: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HEED + script, *arguments]
    return subprocess.Popen(command, cwd=here, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _spool(here: Path) -> list[str]:
    return [file.name for file in here.glob(".ragstore/spool/*")]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.TERMINATED), (signal.SIGHUP, Exit.HUNG_UP)]
)
def test_a_pass_that_is_ended_is_clean_and_quick_and_the_next_goes_on(
    here: Path, ragstore: Ragstore, number: signal.Signals, code: Exit
) -> None:
    process = _start(here, _SLOWLY, "index", "docs", "--json")
    deadline = time.monotonic() + 60
    while not _spool(here) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)  # into the embedding
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, ""), errors
    assert errors.splitlines()[-1] == "stopped; what was finished is kept, run it again to go on"
    assert _spool(here) == []
    ended = ragstore("index", "--json")
    assert ended.code == Exit.DONE, ended.err
    assert ended.json["blobs"] == 60


def test_an_interrupt_while_the_program_is_loading_shows_no_traceback(here: Path) -> None:
    script = "import os, signal, sys\nsys.meta_path.insert(0, type('Finder', (), {'find_spec': staticmethod(lambda name, *_: "
    script += "os.kill(os.getpid(), signal.SIGINT) if name == 'typer' else None)}))\nfrom ragstore.cli import main; main()"
    process = _start(here, script, "status")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (Exit.INTERRUPTED, "", "")


def test_a_disk_that_is_full_ends_the_pass_and_the_next_one_goes_on(here: Path, ragstore: Ragstore) -> None:
    process = _start(here, _NARROW, "index", "docs", "--json")
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (Exit.BUG, ""), errors
    assert "unexpected" not in errors
    assert _spool(here) == []
    ended = ragstore("index", "--json")
    assert ended.code == Exit.DONE, ended.err
    assert ragstore("verify").code == Exit.DONE


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    script = "import resource, signal, sys\nfrom pathlib import Path\nfrom ragstore.cli.files import write_whole\n"
    script += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
    script += "write_whole(Path(sys.argv[1]), 'x' * 100, replace=True)"
    file = tmp_path / "kept.json"
    file.write_text("before")
    ended = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert "File too large" in ended.stderr
    assert (file.read_text(), [entry.name for entry in tmp_path.iterdir()]) == ("before", ["kept.json"])


def test_a_file_that_is_there_is_replaced_only_where_that_was_said_and_through_a_link(tmp_path: Path) -> None:
    file = tmp_path / "real" / "kept.json"
    file.parent.mkdir()
    file.write_text("before")
    link = tmp_path / "link.json"
    link.symlink_to(file)
    with pytest.raises(FileExistsError):
        write_whole(link, "after", replace=False)
    write_whole(link, "after", replace=True)
    assert link.is_symlink()
    assert file.read_text() == "after"
