"""Texts in, BM25 scores for a query out, computed over all texts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from ragstore.terms import query_terms, row_terms

_K1: Final = 1.2
_B: Final = 0.75


class BM25:
    """An inverted index over a fixed list of texts (Robertson and Zaragoza, 2009)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._lengths: list[int] = []
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for position, text in enumerate(texts):
            counts = Counter(row_terms(text))
            self._lengths.append(sum(counts.values()))
            for term, count in counts.items():
                self._postings[term].append((position, count))
        self._mean_length = max(1.0, sum(self._lengths) / max(1, len(texts)))

    def scores(self, query: str) -> dict[int, float]:
        """The score of every text that shares a term with the query, by its position."""
        scores: defaultdict[int, float] = defaultdict(float)
        for term in query_terms(query):
            postings = self._postings.get(term, [])
            weight = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for position, count in postings:
                norm = _K1 * (1 - _B + _B * self._lengths[position] / self._mean_length)
                scores[position] += weight * count * (_K1 + 1) / (count + norm)
        return dict(scores)
