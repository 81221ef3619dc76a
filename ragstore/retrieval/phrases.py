"""A query and the matches of its words in, the same matches with more for those in which its words stand side by side, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ragstore.models import Match
from ragstore.terms import query_chains, row_terms

_LOOKED_AT: Final = 12
"""What stands further behind seldom comes to the front by this, and each costs a tenth of a millisecond."""
_MOST: Final = 48
"""Where the twelfth is one of many that score alike, as lines of a log do: which of them stood first would decide."""
_LENGTH: Final = 4_000
"""Characters of each."""
_GAIN: Final = 0.4

Pair = tuple[str, str]


def lifted(query: str, matches: Sequence[Match]) -> list[Match]:
    """The matches; the best get on top the share, times .4, of the query's neighbouring terms that are neighbours in the text too.

    BM25 does not know whether `soy` and `sauce` stand together. That the order of words should count for a small part is from Metzler and
    Croft, "A Markov Random Field Model for Term Dependencies" (2005); how much is set by hand: between .2 and .5 it makes no difference.
    """
    chains = [chain for chain in (frozenset(pairwise(chain)) for chain in query_chains(query)) if chain]
    if not chains:
        return list(matches)
    wanted = frozenset[Pair]().union(*chains)
    number = _looked_at(matches)
    first = [replace(match, score=match.score * (1 + _GAIN * _share(chains, wanted, match.text))) for match in matches[:number]]
    return [*first, *matches[number:]]


def _looked_at(matches: Sequence[Match]) -> int:
    number = min(_LOOKED_AT, len(matches))
    while 0 < number < min(_MOST, len(matches)) and matches[number].score == matches[number - 1].score:
        number += 1
    return number


def _share(chains: Sequence[frozenset[Pair]], wanted: frozenset[Pair], text: str) -> float:
    """The share of the pairs of that chain of which most are in the text, 0 to 1."""
    there = wanted.intersection(pairwise(row_terms(text[:_LENGTH])))
    return max(len(pairs & there) / len(pairs) for pairs in chains) if there else 0.0
