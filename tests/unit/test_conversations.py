"""Turns in a file: whose they are, what they were made of, and what is left of those that are erased or too old."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ragstore.conversations import Conversations, Turn
from ragstore.errors import ConfigError, OutageError


@pytest.fixture
def kept(tmp_path: Path) -> Conversations:
    return Conversations(tmp_path / "state" / "conversations.db", keep_days=30)


def _turn(text: str = "words", **options: Any) -> Turn:
    return Turn(question=text, answer=f"about {text}", **options)


def _begun(kept: Conversations, owner: str = "ada") -> str:
    made = kept.begin(owner)
    assert made is not None
    return made.id


def test_the_file_comes_with_the_first_conversation_for_its_owner_alone(kept: Conversations, tmp_path: Path) -> None:
    assert kept.all("ada") == []
    assert kept.find("ada", "conv_x") is None
    assert not kept.add("ada", "conv_x", _turn())
    assert not kept.delete("ada", "conv_x")
    assert (kept.count("0" * 32), kept.erase("0" * 32), kept.files) == (0, 0, [])
    _begun(kept)
    [file] = kept.files
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_turn_comes_back_as_it_was(kept: Conversations) -> None:
    name = _begun(kept)
    turn = _turn("größer 北京 \U0001f600 ' \u2028", cited=((1, "a" * 32),), chunks=("a" * 32, "b" * 32), after=())
    assert kept.add("ada", name, turn)
    assert kept.add("ada", name, _turn(after=(1,)))
    found = kept.find("ada", name)
    assert found is not None
    first, second = found.turns
    assert (first.question, first.answer, first.cited, first.chunks) == (turn.question, turn.answer, turn.cited, turn.chunks)
    assert [(each.number, each.after) for each in (first, second)] == [(1, ()), (2, (1,))]
    assert found.chunks == {"a" * 32, "b" * 32}


def test_of_turns_those_stay_that_rest_on_readable_chunks_through_all_turns_before(kept: Conversations) -> None:
    name = _begun(kept)
    for chunks, after in ((("a",), ()), (("b",), (1,)), ((), (2,)), (("a",), ()), ((), ()), (("a", "b"), ()), (("a",), (9,))):
        kept.add("ada", name, _turn(chunks=chunks, after=after))
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.readable({"a"})] == [1, 4, 5]
    assert [turn.number for turn in found.readable({"a", "b"})] == [1, 2, 3, 4, 5, 6]
    assert [turn.number for turn in found.readable(())] == [5]


def test_many_writers_at_once_lose_nothing(kept: Conversations) -> None:
    name = _begun(kept)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: kept.add("ada", name, _turn(str(number), chunks=("c",))), range(60)))
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.turns] == list(range(1, 61))
    assert {turn.question for turn in found.turns} == {str(number) for number in range(60)}


def test_what_was_not_used_for_too_long_is_gone_also_from_the_file(tmp_path: Path) -> None:
    now = [1000.0]
    kept = Conversations(tmp_path / "c.db", keep_days=1, clock=lambda: now[0])
    old, used = _begun(kept), _begun(kept)
    kept.add("ada", old, _turn("halyard"))
    now[0] += 50_000
    kept.add("ada", used, _turn("anchor"))
    now[0] += 50_000
    assert [each.id for each in kept.all("ada")] == [used]
    assert kept.find("ada", old) is None
    assert not kept.add("ada", old, _turn())
    assert b"halyard" in kept.files[0].read_bytes()
    kept.expire()
    assert b"halyard" not in kept.files[0].read_bytes()
    assert b"anchor" in kept.files[0].read_bytes()


def test_a_conversation_takes_no_more_than_its_room(kept: Conversations) -> None:
    name = _begun(kept)
    assert not kept.add("ada", name, _turn("ä" * 600_000))
    assert kept.add("ada", name, _turn("ä" * 200_000))
    assert not kept.add("ada", name, _turn("ä" * 200_000))
    found = kept.find("ada", name)
    assert found is not None
    assert (len(found.turns), found.full) == (1, False)


def test_what_is_erased_takes_with_it_what_was_said_after_it(kept: Conversations) -> None:
    name, other = _begun(kept), _begun(kept, "bob")
    document, another = "0123abcd" + "1" * 24, "fedc4321" + "2" * 24
    for chunks, after in ((("0123abcdff",), ()), (("fedc432100",), (1,)), ((), (2,)), (("fedc432100",), ())):
        kept.add("ada", name, _turn(f"halyard {chunks}", chunks=chunks, after=after))
    kept.add("bob", other, _turn("halyard", chunks=("0123abcd00",)))
    assert (kept.count(document), kept.count(another)) == (2, 2)
    assert kept.erase(document) == 4
    assert (kept.count(document), kept.count(another)) == (0, 1)
    found = kept.find("ada", name)
    assert found is not None
    assert [turn.number for turn in found.turns] == [4]
    assert b"0123abcd" not in kept.files[0].read_bytes()


def test_a_file_that_is_damaged_or_newer_says_so(kept: Conversations, tmp_path: Path) -> None:
    _begun(kept)
    [file] = kept.files
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(ConfigError, match="newer"):
        kept.all("ada")
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(OutageError, match="conversations"):
        kept.all("ada")
    with pytest.raises(OutageError, match="conversations"):
        Conversations(tmp_path / "state" / "conversations.db" / "x" / "y.db", keep_days=1).begin("ada")


_TALKING = """
import pathlib, sys
from concurrent.futures import ThreadPoolExecutor
from ragstore.conversations import Conversations, Turn
kept = Conversations(pathlib.Path(sys.argv[1]), keep_days=1)
def talk(_):
    name = kept.begin("ada").id
    return [name, *(kept.add("ada", name, Turn(question="q", answer="a" * 3000, chunks=("c" * 40,))) for _ in range(3))]
with ThreadPoolExecutor(4) as pool:
    for told in pool.map(talk, range(15)):
        print(*told)
"""


def test_conversations_that_several_processes_begin_at_once_are_all_kept(kept: Conversations, tmp_path: Path) -> None:
    """A process that closes the file by itself, while another thread of it writes, gives up its locks: the file was ruined by that."""
    command = [sys.executable, "-c", _TALKING, str(tmp_path / "state" / "conversations.db")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    done = [process.communicate(timeout=120) for process in running]
    assert [error for _, error in done] == [""] * 3
    told = [line.split() for words, _ in done for line in words.splitlines()]
    assert [line[1:] for line in told] == [["True"] * 3] * 45
    for name, *_ in told:
        found = kept.find("ada", name)
        assert found is not None
        assert len(found.turns) == 3
