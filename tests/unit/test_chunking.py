"""Chunking: sizes, structure, placement, and chunks that stay what they are when text nearby is edited."""

from __future__ import annotations

import random
import re
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ragstore.chunking import CHUNKER_VERSION, Chunker
from ragstore.errors import ConfigError, PoisonError
from ragstore.models import Block, Chunk, HeadingMark, PageMark, text_hash

_TOKEN = re.compile(r"[a-zA-Z]{1,5}|\d{1,2}|\S")
_HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)


def count(texts: Sequence[str]) -> list[int]:
    """A tokenizer of the kind that models have: parts of words, pairs of digits, single marks and characters."""
    return [len(_TOKEN.findall(text)) for text in texts]


def marked(text: str, start: int = 0) -> Block:
    """A block with its Markdown headings marked."""
    headings = (HeadingMark(start=start + m.start(), level=len(m[1]), text=m[2]) for m in _HEADING.finditer(text))
    return Block(text=text, start=start, headings=tuple(headings))


def chunks(text: str, media_type: str = "text/markdown", size: int = 254) -> list[Chunk]:
    """The chunks of a document of one block."""
    block = marked(text) if media_type == "text/markdown" else Block(text=text, start=0)
    return Chunker(size=size, count_tokens=count).document(media_type).chunk(block)


def prose(seed: int, sentences: int) -> list[str]:
    """Sentences of made-up words, the same for the same seed."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghilmnoprstu", k=chance.randint(2, 10))) for _ in range(800)]
    return [" ".join(chance.choices(words, k=chance.randint(5, 25))).capitalize() + "." for _ in range(sentences)]


def paragraphs(seed: int, number: int) -> list[str]:
    chance = random.Random(seed)
    text = prose(seed, number * 6)
    return [" ".join(text[index * 6 : index * 6 + chance.randint(1, 6)]) for index in range(number)]


def markdown(seed: int) -> str:
    parts = []
    for index, paragraph in enumerate(paragraphs(seed, 220)):
        if index % 5 == 0:
            parts.append(f"{'#' * (2 + index % 3)} Section {paragraph[:24]}")
        parts.append(paragraph)
        if index % 7 == 0:
            parts.append(f"```python\nvalue = {index}\n\nprint({paragraph[:30]!r})\n```")
    return "# Title\n\n" + "\n\n".join(parts)


def html_text(seed: int) -> str:
    return "\n".join(paragraphs(seed, 300))


def pdf_text(seed: int) -> str:
    return "\n".join(textwrap.fill(paragraph, 78) for paragraph in paragraphs(seed, 200))


def one_line(seed: int) -> str:
    return " ".join(paragraphs(seed, 250))


def chinese_line(seed: int) -> str:
    chance = random.Random(seed)
    characters = [chr(code) for code in range(0x4E00, 0x5200)]
    return "".join("".join(chance.choices(characters, k=chance.randint(4, 60))) + chance.choice("，。。！？") for _ in range(800))


TEXTS: list[tuple[str, Callable[[int], str], str]] = [
    ("text/markdown", markdown, "\n"),
    ("text/html", html_text, "\n"),
    ("application/pdf", pdf_text, "\n"),
    ("text/plain", one_line, " "),
    ("text/plain", chinese_line, "。"),
]


def kept(before: str, after: str, media_type: str) -> float:
    """The share of the chunks of `after` whose text was a chunk of `before`."""
    known = {chunk.text for chunk in chunks(before, media_type)}
    now = [chunk.text for chunk in chunks(after, media_type)]
    return sum(text in known for text in now) / len(now)


# Stability


@pytest.mark.parametrize(("media_type", "make", "end"), TEXTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_line_inserted_at_the_top_leaves_nine_tenths_of_the_chunks(
    media_type: str, make: Callable[[int], str], end: str, seed: int
) -> None:
    text = make(seed)
    assert kept(text, f"A line that was not here before{end}{text}", media_type) >= 0.9


@pytest.mark.parametrize(("media_type", "make", "end"), TEXTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_sentence_inserted_in_the_first_fifth_leaves_nine_tenths_of_the_chunks(
    media_type: str, make: Callable[[int], str], end: str, seed: int
) -> None:
    text = make(seed)
    place = text.index(end, random.Random(seed).randrange(len(text) // 5)) + 1
    assert kept(text, f"{text[:place]}One more sentence stands here.{end}{text[place:]}", media_type) >= 0.9


def test_a_paragraph_deleted_near_the_top_leaves_nine_tenths_of_the_chunks() -> None:
    parts = markdown(4).split("\n\n")
    assert kept("\n\n".join(parts), "\n\n".join(parts[:6] + parts[7:]), "text/markdown") >= 0.9


def test_an_insertion_into_text_without_separators_leaves_nine_tenths_of_the_chunks() -> None:
    text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60_000))
    assert kept(text, text[:3000] + "inserted" + text[3000:], "text/plain") >= 0.9


def test_an_edit_of_real_documents_leaves_nine_tenths_of_the_chunks(shared: Path) -> None:
    files = sorted((shared / "data" / "corpus" / "docs").rglob("*.md"), key=lambda file: file.stat().st_size)[-12:]
    for file in files:
        text = file.read_text(encoding="utf-8")
        place = text.index("\n", len(text) // 7)
        assert kept(text, "An inserted line.\n" + text, "text/markdown") >= 0.9
        assert kept(text, f"{text[:place]} One more sentence.{text[place:]}", "text/markdown") >= 0.9


# Size


@pytest.mark.parametrize(("media_type", "make", "end"), TEXTS)
def test_chunks_fill_half_to_four_fifths_of_the_size(media_type: str, make: Callable[[int], str], end: str) -> None:
    counts = count([chunk.text for chunk in chunks(make(5), media_type)])
    assert 0.5 < sum(counts) / len(counts) / 254 < 0.8
    assert max(counts) <= 254


def test_real_markdown_fills_three_fifths_of_the_size(shared: Path) -> None:
    files = sorted((shared / "data" / "corpus" / "docs").rglob("*.md"))[::30]
    counts = count([chunk.text for file in files for chunk in chunks(file.read_text(encoding="utf-8"))])
    assert 0.55 < sum(counts) / len(counts) / 254 < 0.8
    assert max(counts) <= 254


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("中" * 5000, id="one character"),
        pytest.param("👩🏽‍💻" * 900, id="emoji of four code points"),
        pytest.param("🇩🇪🇫🇷" * 600, id="flags"),
        pytest.param("é" * 3000, id="combining marks"),
        pytest.param("e" + "\u0301" * 5000, id="marks without end"),
        pytest.param("QUJDRA" * 2000 + "==", id="base64"),
        pytest.param("a.b" * 3000, id="dots"),
        pytest.param("x\r\n" * 3000, id="CRLF"),
        pytest.param("# a\n" * 3000, id="headings only"),
        pytest.param("```\n" * 3000, id="fences only"),
        pytest.param("\ud800" * 2000, id="lone surrogates"),
    ],
)
def test_no_text_has_a_chunk_over_the_size(text: str) -> None:
    def characters(texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    found = Chunker(size=100, count_tokens=characters).document("text/markdown").chunk(marked(text))
    assert max(len(chunk.text) for chunk in found) <= 100
    assert "".join(text.split()) == "".join("".join(chunk.text.split()) for chunk in found)


def test_a_tokenizer_that_makes_three_tokens_of_a_character_is_obeyed() -> None:
    found = Chunker(size=60, count_tokens=lambda texts: [3 * len(text) for text in texts]).document("text/plain")
    assert max(len(chunk.text) for chunk in found.chunk(Block(text=one_line(1)[:20_000], start=0))) <= 20


def test_one_character_over_the_size_is_refused() -> None:
    chunker = Chunker(size=16, count_tokens=lambda texts: [17 * len(text) for text in texts])
    with pytest.raises(PoisonError, match="one character"):
        chunker.document("text/plain").chunk(Block(text="ab", start=0))


def test_the_tokenizer_is_asked_once_for_a_block_and_once_more_for_what_is_over() -> None:
    asked: list[int] = []

    def recorded(texts: Sequence[str]) -> list[int]:
        asked.append(len(texts))
        return count(texts)

    found = Chunker(count_tokens=recorded).document("text/markdown").chunk(marked(markdown(6)))
    assert len(asked) <= 3
    assert asked[0] <= len(found)


def test_a_short_text_is_one_chunk() -> None:
    assert [chunk.text for chunk in chunks("\n# Title\n\nOne paragraph.\n\nAnother.\n")] == ["# Title\n\nOne paragraph.\n\nAnother."]


@pytest.mark.parametrize("text", ["", " ", "\n" * 10_000, " \t\u00a0\u3000\r\n" * 500])
def test_blank_text_has_no_chunks(text: str) -> None:
    assert chunks(text, "text/plain") == []


@pytest.mark.parametrize("text", ["\n" * 400_000, "x" + " " * 400_000 + "x", "\r" * 400_000, "🇩" * 200_000, "e" + "\u0301" * 200_000])
def test_hostile_text_takes_linear_time(text: str) -> None:
    begin = time.process_time()
    chunks(text, "text/plain")
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("size", [15, 0, -1])
def test_a_size_that_is_too_small_is_a_configuration_error(size: int) -> None:
    with pytest.raises(ConfigError, match="too small"):
        Chunker(size=size, count_tokens=count)


@pytest.mark.parametrize("ratio", [0.0, 0.51, -1.0])
def test_a_ratio_out_of_range_is_a_configuration_error(ratio: float) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Chunker(count_tokens=count, min_ratio=ratio)


def test_the_fingerprint_covers_size_ratio_and_version() -> None:
    prints = {Chunker(size=size, count_tokens=count, min_ratio=ratio).fingerprint for size in (100, 254) for ratio in (0.2, 0.3)}
    assert len(prints) == 4
    assert all(CHUNKER_VERSION in fingerprint for fingerprint in prints)


# Structure


def test_a_chunk_begins_at_the_highest_heading_within_reach() -> None:
    body = "\n\n".join(paragraphs(7, 3))
    text = f"# One\n\n{body}\n\n### Deep\n\n{body}\n\n## Two\n\n{body}\n\n### Deep\n\n{body}\n"
    starts = [chunk.text.splitlines()[0] for chunk in chunks(text, size=2 * count([body])[0] + 40)]
    assert "## Two" in starts


def test_a_heading_is_never_the_last_line_of_a_chunk() -> None:
    for seed in range(4):
        for chunk in chunks(markdown(seed)):
            assert not chunk.text.splitlines()[-1].startswith("#")


def test_headings_in_a_row_stay_with_the_text_below_the_last() -> None:
    sections = (f"## A\n\n### {paragraph[:9]}\n\n#### C\n\n{paragraph}" for paragraph in paragraphs(3, 80))
    for chunk in chunks("\n\n".join(sections)):
        assert chunk.text.startswith("## A")
        assert not chunk.text.splitlines()[-1].startswith("#")


def test_fenced_code_that_fits_stays_together() -> None:
    code = "```python\n" + "\n\n".join(f"first_{n} = {n}\nsecond_{n} = {n}" for n in range(9)) + "\n```"
    text = "\n\n".join(f"{paragraph}\n\n{code}" for paragraph in paragraphs(8, 12))
    found = chunks(text, size=400)
    assert sum(chunk.text.count(code) for chunk in found) == 12


def test_source_code_is_cut_before_definitions() -> None:
    bodies = ["\n".join(f"    value_{n} = call({n})\n" for n in range(12)) for _ in range(12)]
    text = "\n".join(f"def function_{index}():\n{body}" for index, body in enumerate(bodies))
    found = chunks(text, "text/x-python", size=300)
    assert len(found) > 4
    assert all(chunk.text.startswith("def ") for chunk in found)


def test_source_code_is_cut_between_methods_rather_than_inside_them() -> None:
    body = "\n\n".join(f"        value_{n} = call({n})\n        other_{n} = call({n})" for n in range(4))
    text = "class Large:\n" + "\n\n".join(f"    def method_{index}(self):\n{body}" for index in range(20))
    found = chunks(text, "text/x-python", size=300)
    assert len(found) > 4
    assert all(chunk.text.startswith(("class ", "def ")) for chunk in found)


def test_chinese_is_cut_at_the_end_of_sentences() -> None:
    found = chunks(chinese_line(9), "text/plain")
    assert sum(chunk.text[-1] in "。！？" for chunk in found) > 0.9 * len(found)


def test_prose_on_one_line_is_cut_at_the_end_of_sentences() -> None:
    found = chunks(one_line(9), "text/plain")
    assert all(chunk.text.endswith(".") for chunk in found)


def test_words_stay_whole_where_there_are_no_sentences() -> None:
    text = one_line(10).replace(".", "")
    words = set(text.split())
    assert all(words.issuperset(chunk.text.split()) for chunk in chunks(text, "text/plain"))


@pytest.mark.parametrize("unit", ["e\u0301", "👩🏽‍💻", "🇩🇪", "क्षि", "❤️", "\ud83d\ude00", "。\ufe00"])
def test_what_belongs_to_one_character_is_not_parted(unit: str) -> None:
    found = chunks(unit * 2000, "text/plain", size=100)
    assert len(found) > 5
    assert all(set(chunk.text) == set(unit) and chunk.text.startswith(unit[0]) for chunk in found)
    assert all(len(chunk.text) % len(unit) == 0 for chunk in found if unit not in {"क्षि", "\ud83d\ude00"})


# Placement


def test_pages_and_headings_are_those_over_the_first_character_of_a_chunk() -> None:
    text = "\n\n".join(["# One", *paragraphs(11, 4), "## Two", *paragraphs(12, 4), "# Three", *paragraphs(13, 4)])
    pages = tuple(PageMark(start=start, number=number) for number, start in enumerate(range(0, len(text), 500), 1))
    block = Block(text=text, start=0, pages=pages, headings=marked(text).headings)
    found = Chunker(size=100, count_tokens=count).document("text/markdown").chunk(block)
    for chunk in found:
        assert chunk.page == chunk.start // 500 + 1
        expected = "Three" if chunk.start >= text.index("# Three") else "One > Two" if chunk.start >= text.index("## Two") else "One"
        assert chunk.heading == expected


def test_no_chunk_stands_on_two_pages() -> None:
    slides = ["Slide one is short.", "Slide two is short.", " ".join(paragraphs(3, 30)), "The last one."]
    starts = [sum(len(slide) + 2 for slide in slides[:number]) for number in range(len(slides))]
    pages = tuple(PageMark(start=start, number=number) for number, start in enumerate(starts, 1))
    found = Chunker(count_tokens=count).document("text/plain").chunk(Block(text="\n\n".join(slides), start=0, pages=pages))
    assert [(chunk.page, chunk.text) for chunk in found if chunk.page != 3] == [(1, slides[0]), (2, slides[1]), (4, slides[3])]
    assert all(chunk.text in slides[2] for chunk in found if chunk.page == 3)


def test_text_before_the_first_mark_has_no_page_and_no_heading() -> None:
    found = chunks("Before.\n\n# Heading\n")
    assert (found[0].page, found[0].heading) == (None, None)


def test_offsets_page_and_headings_go_on_over_the_border_of_blocks() -> None:
    first = "# One\n\n## Two\n\nText of the first block. "
    second = "Text of the second.\n\n## Three\n\nText under the third, which is long enough to stand in a chunk of its own."
    document = Chunker(size=16, count_tokens=count).document("text/markdown")
    block = marked(first)
    before = document.chunk(Block(text=first, start=0, headings=block.headings, pages=(PageMark(start=0, number=3),)))
    after = document.chunk(marked(second, len(first)))
    whole = first + second
    assert all(whole[chunk.start : chunk.end] == chunk.text for chunk in (*before, *after))
    assert after[0].start == len(first)
    assert (after[0].heading, after[0].page) == ("One > Two", 3)
    assert after[-1].heading == "One > Three"


def test_a_chunk_has_the_hash_of_its_text() -> None:
    assert all(chunk.text_hash == text_hash(chunk.text) for chunk in chunks(markdown(1)))


def test_two_documents_do_not_share_headings() -> None:
    chunker = Chunker(count_tokens=count)
    chunker.document("text/markdown").chunk(marked("# One\n\ntext"))
    assert chunker.document("text/markdown").chunk(marked("text"))[0].heading is None
