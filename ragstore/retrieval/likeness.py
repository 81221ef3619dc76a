"""Texts in, the first of them that a new one is nearly equal to out: by the words that they share."""

from __future__ import annotations

import math
from typing import Final

from ragstore.terms import words

_ROUNDING: Final = 1e-9


class Likeness:
    """Remembers texts under a number each, and finds one whose set of words is as like another's (Jaccard) as the threshold says, or more.

    Two sets that are so alike share one of the first few words of each in any common order (the prefix filter of Bayardo, Ma and Srikant,
    2007): only texts that do are compared. The longest words come first in ours, because few texts share them.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._words: dict[int, frozenset[str]] = {}
        self._by_word: dict[str, list[int]] = {}

    def remember(self, number: int, text: str) -> None:
        """Find this text from now on; the number may have stood for another one before."""
        found = frozenset(words(text))
        self._words[number] = found
        for word in self._first(found):
            self._by_word.setdefault(word, []).append(number)

    def find(self, text: str) -> int | None:
        """The lowest number of a text that is like this one; None where there is none, and for a text without words."""
        found = frozenset(words(text))
        near = {number for word in self._first(found) for number in self._by_word.get(word, ())}
        return min((number for number in near if self._alike(found, self._words[number])), default=None)

    def _alike(self, first: frozenset[str], second: frozenset[str]) -> bool:
        shared = len(first & second)
        return shared >= self._threshold * (len(first) + len(second) - shared) - _ROUNDING

    def _first(self, found: frozenset[str]) -> list[str]:
        ordered = sorted(found, key=lambda word: (-len(word), word))
        return ordered[: len(ordered) - math.ceil(self._threshold * len(ordered) - _ROUNDING) + 1]
