"""The parts of the chunker: token estimate, code fences, characters that belong together, separators, and the library beneath."""

from __future__ import annotations

import inspect
import random
import re
import subprocess
import sys

import pytest
from langchain_text_splitters import RecursiveCharacterTextSplitter, TextSplitter

from ragstore.chunking.estimate import UNIT, running_estimate
from ragstore.chunking.fences import fences
from ragstore.chunking.graphemes import joined, slices
from ragstore.chunking.separators import _ALIASES, separators
from ragstore.chunking.splitter import _PieceSplitter


def test_a_fence_left_open_at_the_end_of_a_block_is_open_in_the_next() -> None:
    spans, opened = fences("text\n~~~~ info\ncode\n\n")
    assert (spans, opened) == ([(5, 21)], "~~~~")
    assert fences("more\n~~~\n~~~~\nafter\n", opened) == ([(0, 14)], None)


def test_fences_follow_commonmark() -> None:
    assert fences("``` a`b\ntext\n") == ([], None)
    assert fences("    ```\ntext\n") == ([], None)
    assert fences("inline ``` ticks\n") == ([], None)
    assert fences("````\n```\n````\n") == ([(0, 14)], None)
    assert fences("```\n~~~\n``` x\n```") == ([(0, 17)], None)


@pytest.mark.parametrize("name", sorted(_ALIASES))
def test_every_language_has_separators_of_its_own(name: str) -> None:
    found = separators(f"text/x-{name}")
    assert found.structure is not None
    assert not found.structure.match("")
    assert all(re.compile(pattern).groups == 0 for pattern in found.patterns)


@pytest.mark.parametrize("media_type", ["text/x-rustsrc", "application/javascript; charset=utf-8", "text/x-java-source", "TEXT/X-GO"])
def test_other_names_of_a_language_are_known(media_type: str) -> None:
    assert separators(media_type).structure is not None


def test_joined_says_where_not_to_cut() -> None:
    assert joined("\r\n", 1)
    assert joined("e\u0301", 1)
    assert joined("\ud83d\ude00", 1)
    assert joined("🇩🇪🇫🇷", 1)
    assert not joined("🇩🇪🇫🇷", 2)
    assert not joined("ab", 1)
    assert not joined("a", 0)
    assert not joined("a", 1)


def test_slices_keep_every_character_and_their_bounds() -> None:
    text = "".join(random.Random(2).choices("abcdef中文😀", k=5000))
    pieces = list(slices(text, 90, 30))
    assert "".join(pieces) == text
    assert all(30 <= len(piece) <= 90 for piece in pieces)


def test_the_estimate_is_near_for_prose_and_a_token_for_other_scripts() -> None:
    assert running_estimate("中文字")[-1] == 3 * UNIT
    assert running_estimate("").tolist() == [0]
    sums = running_estimate("a1 .中")
    assert sums.tolist() == sorted(set(sums.tolist()))
    assert len(sums) == 6


def test_the_library_still_merges_in_the_private_method_that_we_override() -> None:
    assert "_merge_splits" in vars(TextSplitter)
    assert "_merge_splits" not in vars(RecursiveCharacterTextSplitter)
    assert list(inspect.signature(TextSplitter._merge_splits).parameters) == ["self", "splits", "separator"]
    text = "one. two. three.\n\nfour five six"
    pieces = _PieceSplitter(patterns=(r"\n\s*\n", r"\. "), characters=12).split_text(text)
    assert pieces == ["one. ", "two. ", "three.\n\n", "four five six"]
    assert "".join(pieces) == text


def test_importing_the_chunker_loads_neither_the_library_nor_numpy() -> None:
    program = (
        "import sys, ragstore.chunking; print(sorted({'langchain_text_splitters', 'langchain_core', 'numpy'}.intersection(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
