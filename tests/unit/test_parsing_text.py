"""Normalised text, blocks and headings: what offsets count, where blocks end, what is a heading."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

from ragstore.errors import PoisonError
from ragstore.models import Block
from ragstore.parsing import parse
from ragstore.parsing.blocks import LARGEST, SMALLEST, cut
from ragstore.parsing.headings import HeadingScanner, markdown_title
from ragstore.parsing.normalize import normalize, normalize_pdf, normalize_pieces
from ragstore.parsing.tabular import grouped, lines


def blocks_of(folder: Path, data: bytes, name: str, declared: str | None = None) -> list[Block]:
    file = folder / "spooled"
    file.write_bytes(data)
    return list(parse(file, name=name, declared=declared).blocks)


def headings(text: str) -> list[tuple[int, str]]:
    return [(mark.level, mark.text) for mark in HeadingScanner().scan(text, 0)]


def prose(lines_: int, seed: int = 0) -> list[str]:
    choice = random.Random(seed)
    words = ["".join(choice.choices("abcdefghijklmnop", k=choice.randint(2, 9))) for _ in range(500)]
    return [" ".join(choice.choices(words, k=12)) + choice.choice(["\n", "\n", "\n\n"]) for _ in range(lines_)]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("\ufeffa\r\nb\rc", "a\nb\nc"),
        ("a\x00b\x07c\td\x7f", "abc\td"),
        ("page one\fpage two", "page one\npage two"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("مرحبا\u200f و", "مرحبا\u200f و"),
    ],
)
def test_normalised_text_has_no_controls_and_one_kind_of_line_end(raw: str, text: str) -> None:
    assert normalize(raw) == text


def test_a_line_end_that_is_cut_between_two_pieces_stays_one() -> None:
    assert "".join(normalize_pieces(["a\r", "\nb\r", "c\r"])) == "a\nb\nc\n"


def test_pdf_text_joins_hyphenated_words_and_folds_ligatures() -> None:
    assert normalize_pdf("Na\x02\r\ntional ﬁrst oﬃce\r\n") == "National first office\n"


def test_blocks_tile_the_text_within_their_limits() -> None:
    text = "".join(prose(40_000))
    blocks = list(cut([text[i : i + 10_007] for i in range(0, len(text), 10_007)]))
    assert "".join(blocks) == text
    assert all(SMALLEST <= len(block) <= LARGEST for block in blocks[:-1])
    assert all(block.endswith("\n\n") for block in blocks[:-1])


def test_blocks_do_not_depend_on_how_the_text_arrives() -> None:
    text = "".join(prose(40_000))
    assert list(cut([text])) == list(cut([text[i : i + 999] for i in range(0, len(text), 999)]))


@pytest.mark.parametrize("separator", ["\n", " ", ""])
def test_an_insertion_near_the_top_leaves_later_blocks_alone(separator: str) -> None:
    parts = [line.replace("\n", separator).replace(" ", separator or "") for line in prose(36_000)]
    before = list(cut(parts))
    after = list(cut([*parts[:10], "one more sentence stands here" + separator, *parts[10:]]))
    assert len(set(before) - set(after)) <= 2 < len(before)


def test_markdown_headings_are_atx_and_setext_outside_of_fences_and_front_matter() -> None:
    text = """---
title: "From the front"
# not: a heading
---

# One #

Two
===

```sh
# a comment
~~~
```

~~~~
``` # no
~~~
# no
~~~~

   ## Three
    # code
#nospace
#

- item
---

| a |
---

Four
----
""".replace("~~~ \n", "~~~\n")
    assert headings(text) == [(1, "One"), (1, "Two"), (2, "Three"), (2, "Four")]
    assert markdown_title(text) == "From the front"


def test_heading_marks_stand_where_the_heading_begins() -> None:
    text = "intro\n\n## A b\n\nx\n\nUnder\n=====\n"
    marks = HeadingScanner().scan(text, 100)
    assert [text[mark.start - 100 :].split("\n", maxsplit=1)[0] for mark in marks] == ["## A b", "Under"]


def test_a_fence_that_is_open_at_the_end_of_a_block_is_open_in_the_next() -> None:
    scanner = HeadingScanner()
    assert scanner.scan("```\n# a\n", 0) == ()
    assert scanner.scan("# b\n```\n# c\n", 8)[0].text == "c"


def test_a_line_that_goes_on_from_the_last_block_is_no_heading() -> None:
    scanner = HeadingScanner()
    scanner.scan("words", 0)
    assert scanner.scan("# more\n# real\n", 5)[0].text == "real"


@pytest.mark.parametrize("data", [b" \n\t\r\n", b"\xef\xbb\xbf", "\u3000\n".encode("utf-16"), b"\x00"])
def test_white_space_alone_is_empty(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PoisonError) as caught:
        blocks_of(tmp_path, data, "a.txt")
    assert caught.value.kind == "empty"


def test_csv_rows_stand_in_groups_under_their_header(tmp_path: Path) -> None:
    rows = [f"{number},name {number},city {number}\n" for number in range(500)]
    (block,) = blocks_of(tmp_path, ("id,name,city\n" + "".join(rows)).encode(), "a.csv")
    groups = block.text.split("\n\n")
    assert len(groups) > 5
    assert all(group.startswith("id,name,city\n") for group in groups)
    assert [row + "\n" for group in groups for row in group.splitlines()[1:]] == rows


def test_a_row_in_the_middle_moves_few_groups() -> None:
    rows = [f"{number},name {number},city {number}\n" for number in range(3000)]
    before = set(grouped(iter(["id,name,city\n", *rows])))
    after = set(grouped(iter(["id,name,city\n", *rows[:10], "x,new,row\n", *rows[10:]])))
    assert len(after - before) <= 3


@pytest.mark.parametrize("header", [",name,age\n", "team;2019;2020\n", '"a b"\tc\n'])
def test_a_header_may_have_years_and_an_unnamed_index(header: str) -> None:
    groups = list(grouped(iter([header, *[f"{number},x,y\n" for number in range(1000)]])))
    assert len(groups) > 1
    assert all(group.lstrip("\n").startswith(header) for group in groups)


def test_numbers_at_the_top_are_no_header() -> None:
    rows = ["1,2\n", "3,4\n"] * 400
    assert "".join(grouped(iter(rows))) == "".join(rows)


def test_an_unclosed_quote_does_not_swallow_the_rest() -> None:
    rows = ['1,"un\n', *[f"{number},next\n" for number in range(2000)]]
    assert len(list(grouped(iter(["a,b\n", *rows])))) > 1


def test_lines_end_at_line_feeds_alone_and_a_long_one_comes_in_parts() -> None:
    assert list(lines(["a\u2028b\nc\x85", "d\n"])) == ["a\u2028b\n", "c\x85d\n"]
    assert all(len(part) < 3 * 2**20 for part in lines(["x" * 2**20] * 5))


def test_jsonl_keeps_the_good_lines_and_warns_of_the_bad(tmp_path: Path) -> None:
    (block,) = blocks_of(tmp_path, b'{"a": {"b": 1.50}}\n{"broken\n\n[true, null, "x"]\n', "a.jsonl")
    assert block.text == 'a.b: 1.50\n\n{"broken\n\ntrue, x\n\n'
    assert block.warnings == ("line 2 is not valid JSON and was kept as it is",)


def test_a_block_of_a_source_file_is_the_file(tmp_path: Path) -> None:
    source = "def f():\r\n    return 1\r\n"
    (block,) = blocks_of(tmp_path, source.encode(), "pkg/mod.py")
    assert block.text == source.replace("\r\n", "\n")
    assert block.headings == ()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"<!--a-->" * 1000 + b"x", "a.txt"),
        (b"# " + b" " * 900_000 + b"x", "a.md"),
        (b"# a" + b" #" * 400_000 + b"x", "a.md"),
        (b"- " * 450_000 + b"x\n---\n", "a.md"),
        (b"---\n" + b"--- x\n" * 100_000, "a.md"),
        (b"`" * 900_000, "a.md"),
        (b"<html><pre>a" + b" " * 900_000 + b"b", "a.html"),
        (b"<?xml" + b" " * 900_000 + b"<a>x</a>", "a.xml"),
        (b" " * 900_000 + b"<a>x</a>", "a.xml"),
        (b"{\\rtf1 " + b"0f" * 200_000 + b" x}", "a.rtf"),
        (b"From a " + b"1 " * 400_000 + b"\n", "a.mbox"),
        (b"Subject: " + b"=?utf-8?q?" * 50_000 + b"\n\nx", "a.eml"),
        (b"To: " + b"a@b.c, " * 50_000 + b"\n\nx", "a.eml"),
        (b"a," * 400_000, "a.csv"),
    ],
)
@pytest.mark.timeout(20)
def test_time_grows_with_size_and_no_faster(tmp_path: Path, data: bytes, name: str) -> None:
    started = time.process_time()
    with contextlib.suppress(PoisonError):
        blocks_of(tmp_path, data, name)
    assert time.process_time() - started < 5
