"""Text that others wrote in; what a terminal, a pipe, a closed file and a poor locale get to see out."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.cli.hits import query_words, snippet_of
from ragstore.cli.outcome import Exit, run
from ragstore.cli.progress import describe, estimate
from ragstore.cli.terminal import plain
from ragstore.ingest.report import SyncReport

_HOSTILE = (
    "# Heading \x1b]0;title\x07 [red]red[/red]\n\nThe lentil \x1b[31msoup\x1b[0m \u202e is \x9b2J [link=http://x]here[/link] \x00 \x08."
)
_OWN_STYLE = re.compile(r"\x1b\[[0-9;]*[mK]|\x1b\[\?25[lh]|\x1b\[[0-9]*[AG]")
"""Colours, and what a progress bar needs to draw over itself."""
_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index over files whose names and texts try to command the terminal."""
    here = tmp_path_factory.mktemp("hostile")
    (here / "docs").mkdir()
    (here / "docs" / "evil\x1b[2J [bold]\u202e.md").write_text(_HOSTILE)
    (here / "docs" / "schlüssel.md").write_text("Die Schlüssel der Küche hängen im Schrank. " * 40)
    (here / "docs" / "bro\x1b]0;x\x07ken.pdf").write_bytes(b"%PDF-1.4 nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")
        assert run(["index", "docs", "-q"]) == Exit.INCOMPLETE
    return here


@pytest.fixture
def inside(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are run in this process work on that folder."""
    monkeypatch.chdir(indexed)
    monkeypatch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "RAGSTORE_EMBEDDER__TYPE": "hash", "TERM": "xterm-256color", "COLUMNS": "80", **more}


def _ragstore(here: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(_command(*arguments), cwd=here, env=_environment(**more), capture_output=True, timeout=120, check=False)


def _command(*arguments: str) -> list[str]:
    # Whoever runs the tests in the background may have told their children to ignore an interrupt; a terminal does not.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    return [sys.executable, "-c", f"{heed}\nfrom ragstore.cli import main; main()", *arguments]


def _on_a_terminal(here: Path, *arguments: str) -> tuple[int, str]:
    """Run with a pseudo terminal as stdin, stdout and stderr; the exit code, and all that was sent to it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(_command(*arguments), cwd=here, env=_environment(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # Linux reports the end of the other side as an I/O error
        while select.select([ours], [], [], 120)[0] and (part := os.read(ours, 65536)):
            shown += part
    os.close(ours)
    return process.wait(), shown.decode()


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_plain_text_commands_no_terminal(text: str) -> None:
    shown = plain(text)
    shown.encode()
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(character) for character in shown} & _BIDI_CONTROLS


@pytest.mark.parametrize("text", ["Ünïcödé", "日本語", "👩‍🔬", "می‌خواهم", "a b", "[red]"])
def test_plain_leaves_harmless_text_alone(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("arguments", [["search", "lentil soup"], ["failures"], ["index", "--reembed"]])
def test_hostile_names_and_texts_reach_a_terminal_as_text(indexed: Path, arguments: list[str]) -> None:
    code, shown = _on_a_terminal(indexed, *arguments)
    assert code in (Exit.DONE, Exit.INCOMPLETE)
    rest = _OWN_STYLE.sub("", shown).replace("\r", "").replace("\n", "")
    assert rest.isprintable(), ascii(rest)
    if arguments[0] == "index":
        assert "listing" in rest, "a bar is drawn while it works"
    if arguments[0] == "search":
        assert "[red]red[/red]" in rest
        assert "\x1b[1;33mlentil" in shown, "the word that was asked for is highlighted"


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("arguments", [["search", "soup"], ["search", "soup", "--json"], ["prompt", "soup"], ["failures"], ["verify"]])
def test_the_same_text_is_safe_in_a_pipe_and_in_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == Exit.DONE
    out = capsys.readouterr().out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out)
    assert out.isascii() or "--json" not in arguments


def test_a_locale_without_unicode_gets_escapes(indexed: Path) -> None:
    ran = _ragstore(indexed, "search", "Küche", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (ran.returncode, ran.stderr) == (Exit.DONE, b"")
    assert rb"schl\xfcssel.md" in ran.stdout


def test_a_reader_that_goes_away_ends_the_command_quietly(indexed: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = subprocess.run(
            _command("search", "soup"), cwd=indexed, env=_environment(), stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False
        )
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (Exit.BROKEN_PIPE, b"")


def test_a_closed_stdout_is_no_error_and_no_file_takes_its_place(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", *_command("search", "soup")]
    ran = subprocess.run(shell, cwd=indexed, env=_environment(), stderr=subprocess.PIPE, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (Exit.DONE, b"")
    monkeypatch.chdir(indexed)
    assert run(["verify"]) == Exit.DONE


def test_an_interrupt_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(400):
        (tmp_path / "docs" / f"{number}.md").write_text(" ".join(f"word{number * word}" for word in range(400)))
    process = subprocess.Popen(
        _command("index", "docs"), cwd=tmp_path, env=_environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    ledger = tmp_path / ".ragstore" / "ledger.db.writer"
    deadline = time.monotonic() + 60
    while not ledger.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert b"run it again to go on" in said
    assert b"Traceback" not in said
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")
    assert run(["index"]) == Exit.DONE


def test_a_snippet_shows_the_densest_place_of_the_words() -> None:
    text = "nothing here " * 50 + "the copper wire costs four euros " + "nothing there " * 50
    words = query_words("price of copper wire")
    shown = snippet_of(text, words)
    assert "copper wire costs" in shown
    assert shown.startswith("...")
    assert shown.endswith("...")


@given(st.text(), st.text())
def test_any_query_and_any_text_make_a_snippet(query: str, text: str) -> None:
    assert len(snippet_of(text, query_words(query))) <= 286


def test_words_are_highlighted_from_their_beginning_only() -> None:
    words = query_words("key of a Straße 日本")
    assert words is not None
    assert [found[0] for found in words.finditer("Keys monkey of straße 在日本")] == ["Key", "straße", "日本"]
    assert query_words("?!") is None


def test_time_left_is_told_by_chunk_and_not_by_document() -> None:
    # One file of many is finished: by documents 90 % of the work would be left, by bytes half of it.
    report = SyncReport(blobs=10, bytes_total=2000, bytes_done=1000, chunks=50, chunks_embedded=40, chunks_reused=10)
    now = estimate(report, elapsed=5.0)
    assert (now.done, now.total, now.rate, now.seconds_left) == (50, 100, 10.0, 5.0)
    assert describe(now) == "50 of about 100 chunks  10/s  5 s left"


def test_chunks_of_blobs_that_are_still_read_count_half() -> None:
    assert estimate(SyncReport(bytes_total=2000, bytes_done=1000, chunks=50, chunks_embedded=150), elapsed=5.0).total == 200


def test_nothing_is_claimed_before_something_is_known() -> None:
    now = estimate(SyncReport(bytes_total=2000), elapsed=0.1)
    assert (now.total, now.rate, now.seconds_left, describe(now)) == (None, None, None, "0 chunks")


@given(
    st.builds(
        SyncReport,
        bytes_total=st.integers(0, 10**12),
        bytes_done=st.integers(0, 10**12),
        chunks=st.integers(0, 10**7),
        chunks_embedded=st.integers(0, 10**7),
        chunks_reused=st.integers(0, 10**7),
    ),
    st.floats(0, 10**6),
)
def test_an_estimate_is_never_less_than_what_is_done(report: SyncReport, elapsed: float) -> None:
    now = estimate(report, elapsed=elapsed)
    assert now.total is None or now.total >= now.done
    assert now.seconds_left is None or now.seconds_left >= 0
    describe(now)


@pytest.mark.parametrize(
    ("command", "line"), [("plan", "planned, nothing was changed"), ("failures", "docs/bro\\x1b]0;x\\x07ken.pdf"), ("status", "feeds")]
)
def test_titles_and_names_stand_in_one_line_however_narrow_their_table(indexed: Path, command: str, line: str) -> None:
    _, shown = _on_a_terminal(indexed, command)
    assert line in [_OWN_STYLE.sub("", one).strip() for one in shown.splitlines()]
