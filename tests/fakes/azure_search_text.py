"""A query in the simple syntax of Azure AI Search and documents in; BM25 scores out.

Syntax: https://learn.microsoft.com/azure/search/query-simple-syntax: `+` and, `|` or, `-` not, `"` phrase, `*` suffix, parentheses, and a
backslash before any of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_K1: Final = 1.2
_B: Final = 0.75
_LONGEST_TOKEN: Final = 255
_PIECE: Final = re.compile(r'([+|-]?)(?:"((?:\\.|[^"\\])*)"|((?:\\.|[^\s"+|()\\])+))', re.DOTALL)


@dataclass(frozen=True)
class _Clause:
    words: str
    prefix: bool = False
    negated: bool = False
    required: bool = False


@dataclass(frozen=True)
class Query:
    """Clauses, of which one or every one must be true."""

    parts: tuple[_Clause, ...]

    @property
    def clauses(self) -> int:
        """How many there are."""
        return len(self.parts)


def parsed(text: str, *, every: bool) -> Query:
    """The clauses of a query; what cannot be understood is left out, as the simple parser does."""
    found = []
    for sign, phrase, word in _PIECE.findall(text):
        prefix = word.endswith("*") and not word.endswith("\\*")
        words = re.sub(r"\\(.)", r"\1", phrase or (word[:-1] if prefix else word))
        found.append(_Clause(words, prefix=prefix, negated=sign == "-", required=every or sign == "+"))
    return Query(tuple(found))


def analysed(text: str, analyzer: str | None) -> list[str]:
    """The tokens: `whitespace` splits and cuts, and nothing else; the default one folds case and drops signs."""
    words = text.split() if analyzer == "whitespace" else re.findall(r"\w+", text.lower())
    return [word[at : at + _LONGEST_TOKEN] for word in words for at in range(0, len(word), _LONGEST_TOKEN)]


def scores(documents: Mapping[str, Mapping[str, Any]], fields: Mapping[str, str | None], query: Query) -> dict[str, float]:
    """The score of each document that the query finds, by key."""
    found: dict[str, float] = {}
    excluded: set[str] = set()
    for field, analyzer in fields.items():
        tokens = {key: analysed(str(document.get(field) or ""), analyzer) for key, document in documents.items()}
        mean = max(1.0, sum(map(len, tokens.values())) / max(1, len(tokens)))
        for clause in query.parts:
            wanted = analysed(clause.words, analyzer)
            counts = {key: count for key, words in tokens.items() if (count := _count(words, wanted, prefix=clause.prefix))}
            if clause.negated:
                excluded |= set(counts)
                continue
            weight = math.log(1 + (len(tokens) - len(counts) + 0.5) / (len(counts) + 0.5))
            for key, count in counts.items():
                norm = _K1 * (1 - _B + _B * len(tokens[key]) / mean)
                found[key] = found.get(key, 0.0) + weight * count * (_K1 + 1) / (count + norm)
            if clause.required:
                excluded |= set(tokens) - set(counts)
    return {key: score for key, score in found.items() if key not in excluded}


def _count(words: list[str], wanted: list[str], *, prefix: bool) -> int:
    if not wanted:
        return 0
    if prefix:
        return sum(word.startswith(wanted[0]) for word in words)
    if len(wanted) == 1:
        return Counter(words)[wanted[0]]
    return sum(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))
