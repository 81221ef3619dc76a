"""A text in, its search terms out: the one analysis that stores use for their full text, for rows and for queries alike.

Scripts that write words without spaces (Chinese, Japanese, Thai ...), and Korean, whose particles stick to the word, become
overlapping pairs of characters, as CJK analysers do. Everything else is split into words; those of an alphabet that tells their language
are stemmed (Snowball). Stemming of Latin words, and stop words, are left to the store.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from operator import add
from typing import Final

import Stemmer

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana and Han
    r"\u1100-\u11ff\uac00-\ud7af"  # Hangul
    r"\U00020000-\U0003ffff"  # Han beyond the first plane
)
# Python's \w leaves out the vowel signs of the Indic scripts, which are part of their words; the dandas are full stops.
_SIGNS: Final = r"\u0300-\u036f\u0591-\u05bd\u0900-\u0963\u0966-\u0dff\u0f71-\u0f84"
_WORDS: Final = re.compile(rf"(?:[^\W_]+|[{_SIGNS}{_UNSPACED}]+)+")
_ASCII_WORDS: Final = re.compile("[a-z0-9]+")
_ASCII_BLANKS: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
_UNSPACED_RUN: Final = re.compile(f"([{_UNSPACED}]+)")
# The breve of й stays: it is a letter of its own, on which endings, and so stems, depend.
_DROPPED: Final = re.compile(
    r"(?<!\u0438)\u0306|[\u00ad\u0300-\u0305\u0307-\u036f\u0610-\u061a\u0640\u064b-\u065f\u0670\u200b-\u200d\ufeff]"
)
"""Accents, Arabic vowel marks, and characters that only steer the layout."""

_STEMMERS: Final = {
    "greek": (0x0370, 0x03FF),
    "russian": (0x0400, 0x052F),
    "armenian": (0x0530, 0x058F),
    "arabic": (0x0600, 0x06FF),
    "hindi": (0x0900, 0x097F),
    "tamil": (0x0B80, 0x0BFF),
}
"""Snowball's algorithms by the letters of the alphabet whose words they stem. A word of another language of that alphabet is stemmed too,
which may not help and does no harm: rows and queries are treated alike."""
_ALGORITHMS: Final = {code: name for name, (first, last) in _STEMMERS.items() for code in range(first, last + 1)}
_LONGEST: Final = 64
"""Characters of what may be a word."""


class _Stemmers(threading.local):
    """Of each thread its own, because one must not be used by two at a time."""

    def __init__(self) -> None:
        self._by_name: dict[str, Stemmer.Stemmer] = {}

    def stem(self, word: str) -> str:
        name = _ALGORITHMS.get(ord(word[0]))
        if name is None or len(word) > _LONGEST:
            return word
        if name not in self._by_name:
            self._by_name[name] = Stemmer.Stemmer(name)
        return self._by_name[name].stemWord(word) or word


_stemmers = _Stemmers()


def fold(text: str) -> str:
    """The text without case, accents and compatibility forms (`ﬁ`, full width), in composed form."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _DROPPED.sub("", unicodedata.normalize("NFKD", text.casefold()))).casefold()


def row_terms(text: str) -> list[str]:
    """The terms under which a row is found: words, and the characters and pairs of characters of unspaced scripts."""
    return _terms(text, lambda run: [*run, *_pairs(run)])


def row_text(text: str) -> str:
    """The terms of `row_terms` between blanks: what a store hands to a tokenizer that splits at white space."""
    folded = fold(text)
    return folded.translate(_ASCII_BLANKS) if folded.isascii() else " ".join(row_terms(folded))


def query_terms(text: str) -> list[str]:
    """The terms that a query asks for: as `row_terms`, but a single character of an unspaced script only where it stands alone."""
    return _terms(text, lambda run: [run] if len(run) == 1 else list(_pairs(run)))


def _terms(text: str, of_run: Callable[[str], list[str]]) -> list[str]:
    folded = fold(text)
    if folded.isascii():
        return _ASCII_WORDS.findall(folded)
    terms: list[str] = []
    for word in _WORDS.findall(folded):
        if word.isascii():
            terms.append(word)
            continue
        for at, part in enumerate(_UNSPACED_RUN.split(word)):  # odd parts are the runs
            if at % 2:
                terms += of_run(part)
            elif part:
                terms.append(_stemmers.stem(part))
    return terms


def _pairs(characters: str) -> Iterator[str]:
    return map(add, characters, characters[1:])
