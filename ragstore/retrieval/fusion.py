"""The ranked lists of the two legs in, one ranked list of chunk ids out: max-norm by default, reciprocal ranks on request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from ragstore.models import Match

Fusion = Literal["max-norm", "rrf"]

_RRF_K: Final = 60
"""Cormack, Clarke and Büttcher, 2009."""


def fuse(
    vector: Sequence[Match] | None, text: Sequence[Match] | None, *, fusion: Fusion, vector_complete: bool, vector_weight: float = 0.5
) -> list[tuple[str, float]]:
    """Chunk ids with their scores, best first, equal scores in the order of the ids.

    A leg that was not asked is None; the scores of the other are then left as they are. `vector_complete`: the vector list holds every
    row that satisfies the filter, so that whatever is missing from it is gone. `vector_weight` is the share of the vector leg, 0 to 1.
    Scores that are no numbers count as not found.
    """
    vectors, texts = _scores(vector), _scores(text)
    if vector is None or text is None:
        fused: Mapping[str, float] = texts if vector is None else vectors
    elif fusion == "rrf":
        fused = _reciprocal_ranks((vectors, 2 * vector_weight), (texts, 2 * (1 - vector_weight)))
    else:
        fused = _max_norm(vectors, texts, floor_missing=not vector_complete, weight=vector_weight)
    return sorted(fused.items(), key=lambda item: (-item[1], item[0]))


def _max_norm(vectors: Mapping[str, float], texts: Mapping[str, float], *, floor_missing: bool, weight: float) -> dict[str, float]:
    """Each leg divided by its top score; the vector leg counts by its weight, the words by the rest.

    A chunk that the text leg does not know shares no word with the query: 0. One that the vector leg does not know was cut off by its
    limit, so it is at best as near as the last that was not. Unlike rank fusion this survives a leg that is blind to a language: its
    scores are nearly equal, so the other leg decides.
    """
    near, words = _normalised(vectors), _normalised(texts)
    floor = min(near.values(), default=0.0) if floor_missing else 0.0
    return {chunk: weight * near.get(chunk, floor) + (1 - weight) * words.get(chunk, 0.0) for chunk in near.keys() | words.keys()}


def _normalised(scores: Mapping[str, float]) -> dict[str, float]:
    """Divided by the highest; where that is not positive the leg found nothing like the query, and dividing would turn it into praise."""
    top = max(scores.values(), default=0.0)
    return {chunk: score / top if top > 0 else score for chunk, score in scores.items()}


def _reciprocal_ranks(*legs: tuple[Mapping[str, float], float]) -> dict[str, float]:
    """Each leg with its weight: 1 is that of the formula as it was published."""
    fused: dict[str, float] = {}
    for leg, weight in legs:
        for rank, chunk in enumerate(sorted(leg, key=lambda chunk: (-leg[chunk], chunk)), start=1):
            fused[chunk] = fused.get(chunk, 0.0) + weight / (_RRF_K + rank)
    return fused


def _scores(matches: Iterable[Match] | None) -> dict[str, float]:
    """The best finite score of each chunk."""
    found: dict[str, float] = {}
    for match in matches or ():
        if math.isfinite(match.score) and match.score > found.get(match.chunk_id, -math.inf):
            found[match.chunk_id] = match.score
    return found
