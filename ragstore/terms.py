"""A text in, its search terms out: the one analysis that stores use for their full text, for rows and for queries alike.

Scripts that write words without spaces (Chinese, Japanese, Thai ...), and Korean, whose particles stick to the word, become
overlapping pairs of characters, as CJK analysers do. Everything else is split into words, which are stemmed (Snowball) as the alphabet
tells. Latin words of a row are stemmed as its function words tell, and as English where these tell nothing; the commonest words are left
out. A query, which is often too short to tell, asks for its words in every language.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import add
from typing import Final

import Stemmer

from ragstore.languages import FUNCTION_WORDS, LANGUAGES, told

TERMS_VERSION: Final = "2"
"""Part of the pipeline's fingerprint: raise it when the same text would have other terms, so that rows get them with the next pass."""

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
_UNSPACED_RUN: Final = re.compile(f"([{_UNSPACED}]+)")
# The breve of й stays: it is a letter of its own, on which endings, and so stems, depend.
_DROPPED: Final = re.compile(
    r"(?<!\u0438)\u0306|[\u00ad\u0300-\u0305\u0307-\u036f\u0610-\u061a\u0640\u064b-\u065f\u0670\u200b-\u200d\ufeff]"
)
"""Accents, Arabic vowel marks, and characters that only steer the layout."""

_MARKS: Final = re.compile(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")
"""No character has so many marks, and to put n of them in order takes n * n steps (Unicode Standard Annex 15 allows 30 in a row)."""

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
_LATIN: Final = "english"
_STOP_WORDS: Final = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on", "or", "such",
    "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
})  # fmt: skip
"""Those of Lucene's `EnglishAnalyzer`: every row has them, so that they tell rows apart badly and cost the most."""
_LEFT_OUT: Final = {name: own | _STOP_WORDS for name, own in FUNCTION_WORDS.items()}
_LATIN_END: Final = "\u0250"
_IN_EVERY_LANGUAGE: Final = 256
_ALGORITHMS: Final = {code: name for name, (first, last) in _STEMMERS.items() for code in range(first, last + 1)}


class _Stemmers(threading.local):
    """Of each thread its own, because one must not be used by two at a time."""

    def __init__(self) -> None:
        self._by_name: dict[str, Stemmer.Stemmer] = {}

    def __getitem__(self, name: str) -> Stemmer.Stemmer:
        if name not in self._by_name:
            self._by_name[name] = Stemmer.Stemmer(name)
        return self._by_name[name]


_stemmers = _Stemmers()


def fold(text: str) -> str:
    """The text without case, accents and compatibility forms (`ﬁ`, full width), in composed form."""
    if text.isascii():
        return text.lower()
    text = _MARKS.sub(r"\1", text)
    return unicodedata.normalize("NFC", _DROPPED.sub("", unicodedata.normalize("NFKD", text.casefold()))).casefold()


def words(text: str) -> list[str]:
    """The words of a text as they stand there, folded; of unspaced scripts characters and pairs of them."""
    return _words(fold(text), _characters_and_pairs)


def row_terms(text: str) -> list[str]:
    """The terms under which a row is found: stems of words, and the characters and pairs of characters of unspaced scripts.

    Stems of a language that is told from English begin with its code, `de_haus`, which no word does: words have no `_`. The German
    `Center` is not the English `cent`.
    """
    found = words(text)
    language = told(found)
    return _english(found) if language is None else _own(found, language)


def row_text(text: str) -> str:
    """The terms of `row_terms` between blanks: what a store hands to a tokenizer that splits at white space."""
    return " ".join(row_terms(text))


def query_terms(text: str) -> list[str]:
    """The terms that a query asks for: those of all its chains, those of the first first; of the chains after it none twice."""
    first, *more = query_chains(text)
    seen = set(first)
    return [*first, *dict.fromkeys(term for term in chain.from_iterable(more) if term not in seen)]


def query_chains(text: str) -> list[list[str]]:
    """The terms of a query in the order in which they stand in it: as in a row of English, and as in one of each language that is told.

    English comes first, but after the language that the query tells, because stores cut what is long. A single character of an unspaced
    script is a term only where it stands alone. Numbers and other scripts are the same in each chain; a chain without a term of its own is
    left out.

    All are asked for, also where the query tells its language: a question finds names in rows of other languages, and what no row has
    costs little (measured in LanceDB, 100,000 English rows: 4 %). Of a long text just the first 256 words are, which name its subject.
    """
    found = _words(fold(text), lambda run: [run] if len(run) == 1 else list(_pairs(run)))
    first = _english(found)
    seen = set(first)
    language = told(found)
    own = {name: _own(found if name == language else found[:_IN_EVERY_LANGUAGE], name) for name in LANGUAGES}
    more = {name: terms for name, terms in own.items() if not seen.issuperset(terms)}
    told_first = [more.pop(language)] if language in more else []
    return [*told_first, first, *more.values()]


def _english(found: Sequence[str]) -> list[str]:
    kept = [word for word in found if word not in _STOP_WORDS]
    if "".join(kept).isascii():
        stems: list[str] = _stemmers[_LATIN].stemWords(kept)
        return stems
    return [_stem(word) for word in kept]


def _own(found: Sequence[str], language: str) -> list[str]:
    left_out, tag = _LEFT_OUT[language], LANGUAGES[language] + "_"
    kept = [word for word in found if word not in left_out]
    stems = _stemmers[language].stemWords(kept)
    return [
        tag + (stem or word) if word.isalpha() and word[0] < _LATIN_END else _stem(word) for word, stem in zip(kept, stems, strict=True)
    ]


def _words(folded: str, of_run: Callable[[str], list[str]]) -> list[str]:
    return _ASCII_WORDS.findall(folded) if folded.isascii() else list(_words_of_any_script(folded, of_run))


def _words_of_any_script(folded: str, of_run: Callable[[str], list[str]]) -> Iterator[str]:
    for word in _WORDS.findall(folded):
        if word.isascii():
            yield word
            continue
        for at, part in enumerate(_UNSPACED_RUN.split(word)):  # odd parts are the runs
            if at % 2:
                yield from of_run(part)
            elif part:
                yield part


def _stem(word: str) -> str:
    algorithm = _LATIN if word.isascii() else _ALGORITHMS.get(ord(word[0]))
    return word if algorithm is None else _stemmers[algorithm].stemWord(word) or word


def _characters_and_pairs(run: str) -> list[str]:
    return [*run, *_pairs(run)]


def _pairs(characters: str) -> Iterator[str]:
    return map(add, characters, characters[1:])
