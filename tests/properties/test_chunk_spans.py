"""Properties of chunks over arbitrary text: exact spans that tile it, within the size, the same every time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.chunking import Chunker
from ragstore.chunking.graphemes import joined
from ragstore.chunking.measure import Measure
from ragstore.models import Block, Chunk, HeadingMark

_WORDS = re.compile(r"\w{1,4}|\S")

COUNTERS: list[Callable[[Sequence[str]], list[int]]] = [
    lambda texts: [len(_WORDS.findall(text)) for text in texts],
    lambda texts: [len(text) for text in texts],
    lambda texts: [len(text.encode("utf-8", "surrogatepass")) for text in texts],
]

_AWKWARD = (
    *(" ", "\n", "\n\n", "\r\n", "\r", "\f", "\t", "\u2028", ". ", "。", "，"),
    *("# Heading\n", "## Second\n\n", "```\n", "~~~\n", "| a | b |\n", "def f():\n    return 1\n\n", "word " * 30, "A" * 300),
    *("e\u0301", "\u0301" * 90, "👩🏽\u200d💻", "🇩🇪", "\u200d", "\ud800", "\ud83d\ude00"),
)
_PARTS = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x4E40), max_size=60),
    st.text(st.characters(min_codepoint=0x400, max_codepoint=0x460), max_size=60),
    st.sampled_from(_AWKWARD),
)
TEXTS = st.lists(_PARTS, max_size=60).map("".join)
MEDIA_TYPES = st.sampled_from(["text/markdown", "text/html", "text/plain", "application/pdf", "text/x-python", "text/x-haskell"])


def _block(text: str, start: int = 0) -> Block:
    headings = (
        HeadingMark(start=start + m.start(), level=len(m[1]), text=m[2]) for m in re.finditer(r"^(#{1,6}) (.+)$", text, re.MULTILINE)
    )
    return Block(text=text, start=start, headings=tuple(headings))


def _chunks(text: str, media_type: str, size: int, counter: Callable[[Sequence[str]], list[int]]) -> list[Chunk]:
    return Chunker(size=size, count_tokens=counter).document(media_type).chunk(_block(text))


@pytest.mark.parametrize("counter", COUNTERS, ids=["words", "characters", "bytes"])
@given(text=TEXTS, media_type=MEDIA_TYPES, size=st.sampled_from([16, 50, 254]))
def test_chunks_tile_the_text_within_the_size(text: str, media_type: str, size: int, counter: Callable[[Sequence[str]], list[int]]) -> None:
    chunks = _chunks(text, media_type, size, counter)
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    borders = [0, *(offset for chunk in chunks for offset in (chunk.start, chunk.end)), len(text)]
    assert borders == sorted(borders)
    assert all(not text[borders[index] : borders[index + 1]].strip() for index in range(0, len(borders), 2))
    assert all(chunk.text.strip() for chunk in chunks)
    assert all(number <= size for number in counter([chunk.text for chunk in chunks]))


@given(text=TEXTS, media_type=MEDIA_TYPES, size=st.sampled_from([16, 50, 254]))
def test_chunks_tile_a_text_that_the_embedder_cannot_read_all_of(text: str, media_type: str, size: int) -> None:
    counter, scripts = COUNTERS[1], frozenset({"LATIN"})
    chunks = Chunker(size=size, count_tokens=counter, scripts=scripts).document(media_type).chunk(_block(text))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert "".join("".join(chunk.text for chunk in chunks).split()) == "".join(text.split())
    assert all(number <= size for number in Measure(counter, scripts=scripts).count([chunk.text for chunk in chunks]))


@given(text=TEXTS, media_type=MEDIA_TYPES)
def test_chunking_is_deterministic(text: str, media_type: str) -> None:
    assert _chunks(text, media_type, 50, COUNTERS[0]) == _chunks(text, media_type, 50, COUNTERS[0])


@given(text=TEXTS)
def test_no_cut_parts_a_character_of_ordinary_length(text: str) -> None:
    text = re.sub("[\u0301\u200d]{3,}", "", text)
    chunks = _chunks(text, "text/plain", 254, COUNTERS[0])
    assert all(not joined(text, left.end) for left, right in pairwise(chunks) if left.end == right.start)


@given(texts=st.lists(TEXTS, max_size=4), media_type=MEDIA_TYPES)
def test_spans_are_exact_over_several_blocks(texts: list[str], media_type: str) -> None:
    document = Chunker(size=50, count_tokens=COUNTERS[0]).document(media_type)
    whole, chunks = "", []
    for text in texts:
        chunks += document.chunk(_block(text, len(whole)))
        whole += text
    assert all(whole[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert "".join("".join(chunk.text for chunk in chunks).split()) == "".join(whole.split())
