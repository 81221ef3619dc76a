"""Permitted hits with what is known of their chunks in; the same hits with newer ones lifted, or with unlike ones first, out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ragstore.models import Hit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECONDS_PER_DAY: Final = 86_400.0
_BOOST: Final = 0.5
"""Share of a score that recency decides: a very old text keeps the other half, so that a good answer is not drowned by today's chatter."""


def boosted(hits: Sequence[Hit], modified: Mapping[str, datetime], *, half_life_days: float, now: datetime) -> list[Hit]:
    """The hits with new scores, best first: `score * (1 + 2 ** (-age / half life)) / 2`. What is of the future or of no known age is new.

    `modified` is when the blob of each chunk was modified, by chunk id, aware. A score below zero falls by as much as it would if positive.
    """

    def score(hit: Hit) -> float:
        age = max((now - modified.get(hit.chunk, now)).total_seconds(), 0.0) / _SECONDS_PER_DAY
        return hit.score - abs(hit.score) * _BOOST * (1 - math.exp2(-age / half_life_days))

    return sorted((replace(hit, score=score(hit)) for hit in hits), key=lambda hit: -hit.score)


def diverse(hits: Sequence[Hit], vectors: Mapping[str, NDArray[np.float32]], *, relevance: float, limit: int) -> list[Hit]:
    """Up to `limit` hits by maximal marginal relevance (Carbonell and Goldstein, 1998), whose lambda is `relevance`.

    - Next comes the hit with the highest `lambda * score / top score - (1 - lambda) * cosine to the nearest hit before it`.
    - `vectors`, shape (dimensions,) and L2-normalised, by chunk id; one that is missing is like no other.
    - Hits keep their scores, so those may rise again further down.
    """
    import numpy as np

    if not hits:
        return []
    width = next((len(vector) for vector in vectors.values()), 1)
    matrix = np.stack([vectors.get(hit.chunk, np.zeros(width, dtype=np.float32)) for hit in hits])
    scores = np.array([hit.score for hit in hits], dtype=np.float64)
    top = scores.max()
    merit = relevance * (scores / top if top > 0 else scores)
    nearest = np.zeros(len(hits))
    chosen: list[int] = []
    while len(chosen) < min(limit, len(hits)):
        value = merit - (1 - relevance) * nearest
        value[chosen] = -np.inf
        best = int(np.argmax(value))
        similar = (matrix @ matrix[best]).astype(np.float64)
        nearest = similar if not chosen else np.maximum(nearest, similar)
        chosen.append(best)
    return [hits[index] for index in chosen]
