"""Rankings and judgements in, figures from 0 to 1 out; and of many figures a mean or a percentile with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragstore.models import Hit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH: Final = 10
"""Documents that nDCG and the reciprocal rank look at."""
CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 1000
_SEED: Final = 20_090_406
"""Any number: the same figures shall have the same interval."""


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval computes `ndcg_cut`; from 0 to 1."""
    gained = sum(max(0, grades.get(document, 0)) / math.log2(rank + 2) for rank, document in enumerate(ranking[:depth]))
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:depth]
    ideal = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(best))
    return gained / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """The share of the relevant documents that are among the first `depth`; from 0 to 1."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking[:depth])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """One divided by the rank of the first relevant document among the first `depth`, 0 where there is none; its mean is the MRR."""
    return next((1 / rank for rank, document in enumerate(ranking[:depth], start=1) if grades.get(document, 0) > 0), 0.0)


def rank_blobs(hits: Iterable[Hit]) -> list[str]:
    """Blobs in the order of their first hit: hits come best first."""
    return list(dict.fromkeys(hit.blob for hit in hits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure, and the bounds between which 95 of 100 sets of such questions would put it (percentile bootstrap, Efron 1979)."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Plain JSON values."""
        return {name: round(getattr(self, name), 4) for name in self.__slots__}


def mean(values: Sequence[float]) -> Interval:
    """The mean of figures of one question each. Raises `ValueError` for none."""
    return _bootstrap(values, lambda array: array.mean(axis=-1))


def percentile(values: Sequence[float], share: float) -> Interval:
    """The value that this share (0 to 1) of the values does not exceed, between two of them by their distance. `ValueError` for none."""
    import numpy as np

    return _bootstrap(values, lambda array: np.quantile(array, share, axis=-1))


def mean_difference(values: Sequence[float], others: Sequence[float]) -> Interval:
    """By how much the first are better than the second, of the same questions in the same order. Raises `ValueError` for none.

    What makes a question hard for one mostly makes it hard for the other: this tells configurations apart whose own intervals overlap.
    """
    return mean([value - other for value, other in zip(values, others, strict=True)])


def _bootstrap(values: Sequence[float], figure: Callable[[NDArray[np.float64]], Any]) -> Interval:
    """The figure of the values, and where 95 % of the same figure of as many values lie that are drawn from them with replacement."""
    import numpy as np

    if not values:
        raise ValueError("there is no interval of no values")
    array = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    drawn = [float(figure(array[random.integers(0, len(array), len(array))])) for _ in range(_RESAMPLES)]
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside])
    return Interval(value=float(figure(array)), low=float(low), high=float(high))
