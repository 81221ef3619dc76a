"""How large a text is for an embedder that cannot read all of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ragstore.chunking import Chunker
from ragstore.chunking.measure import Measure
from ragstore.models import Block

LATIN = frozenset({"LATIN"})
RUSSIAN = "Слова разделены пробелами, и модель их не знает. "


def letters(texts: Sequence[str]) -> list[int]:
    """A tokenizer that takes each character that is no blank for a token, as BERT's does outside its alphabet."""
    return [len("".join(text.split())) for text in texts]


def cut(text: str, scripts: frozenset[str] | None) -> list[str]:
    document = Chunker(size=254, count_tokens=letters, scripts=scripts).document("text/plain")
    return [chunk.text for chunk in document.chunk(Block(text=text, start=0))]


def test_letters_that_the_embedder_cannot_read_count_a_quarter() -> None:
    measure = Measure(letters, scripts=LATIN)
    assert measure.count(["word", "слова", "word слова", ""]) == [4, 2, 6, 0]
    assert measure.running("aя")[-1] == 22 + 25
    assert list(measure.running("сло")) == [0, 25, 50, 75]


@pytest.mark.parametrize("scripts", [None, frozenset({"LATIN", "CYRILLIC"})])
def test_an_embedder_that_knows_the_letters_or_does_not_say_has_them_counted_by_its_tokenizer(scripts: frozenset[str] | None) -> None:
    assert Measure(letters, scripts=scripts).count(["слова"]) == [5]


def test_a_chunk_of_unread_letters_is_as_long_as_one_of_english() -> None:
    few, many = cut(RUSSIAN * 40, LATIN), cut(RUSSIAN * 40, None)
    assert len(many) >= 3 * len(few)
    assert 400 < sum(map(len, few)) / len(few) < 1_300


def test_scripts_without_blanks_are_counted_by_the_tokenizer_whoever_can_read_them() -> None:
    assert Measure(letters, scripts=LATIN).count(["黑洞学说"]) == [4]
    assert cut("黑洞学说。" * 200, LATIN) == cut("黑洞学说。" * 200, None)


def test_what_is_not_read_is_part_of_the_fingerprint() -> None:
    prints = [Chunker(count_tokens=letters, scripts=scripts).fingerprint for scripts in (None, LATIN)]
    assert prints[1] == f"{prints[0]}:unread=25"
