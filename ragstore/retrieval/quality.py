"""What an index is configured with, and what one query says besides, in; checked switches of the quality of retrieval out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict, get_args

from ragstore.errors import QueryError
from ragstore.retrieval.fusion import Fusion

MOST_NEIGHBOURS: Final = 10


class Switches(TypedDict, total=False):
    """What a query may say; what it leaves out is as configured. See `Quality`."""

    fusion: Fusion
    vector_weight: float
    near_duplicates: float
    mmr: float
    half_life_days: float
    neighbours: int
    rerank: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How hits are ranked, thinned out and widened. Every default leaves out what it stands for. Raises `QueryError` beyond a limit."""

    fusion: Fusion = "max-norm"
    vector_weight: float | None = None
    """Share of the vector leg in a fused score, 0 to 1; the words have the rest. None: as the evidence says (see `evidence`)."""
    near_duplicates: float = 1.0
    """From this likeness on (Jaccard's, of the sets of words, above 0) the later of two hits is left out; at 1 equal texts only."""
    mmr: float = 1.0
    """Lambda of maximal marginal relevance, 0 to 1: how much relevance counts against being unlike what came before; 1: alone."""
    half_life_days: float = 0.0
    """In so many days after a blob was modified, half of the boost is gone that recency gives; 0 gives none."""
    neighbours: int = 0
    """Chunks before and behind each hit that come with it."""
    rerank: bool | None = None
    """Whether a reranker orders the hits; None: where there is one. It is an error to ask for one that is not there."""

    def __post_init__(self) -> None:
        """Checks the limits; what is no number is outside them."""
        if self.fusion not in get_args(Fusion):
            raise QueryError(f"fusion must be one of {', '.join(get_args(Fusion))}, not {self.fusion!r}")
        for name, value in (("vector_weight", self.vector_weight), ("mmr", self.mmr)):
            if value is not None and not 0 <= value <= 1:
                raise QueryError(f"{name} must be between 0 and 1, not {value}")
        if not 0 < self.near_duplicates <= 1:
            raise QueryError(f"near_duplicates must be above 0 and at most 1, not {self.near_duplicates}")
        if not 0 <= self.half_life_days < float("inf"):
            raise QueryError(f"half_life_days must be a number of days, or 0 for no boost, not {self.half_life_days}")
        if not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise QueryError(f"neighbours must be between 0 and {MOST_NEIGHBOURS}, not {self.neighbours}")
        if self.rerank not in (None, True, False):
            raise QueryError(f"rerank must be true or false, not {self.rerank!r}")

    @property
    def reorders(self) -> bool:
        """Whether hits are put into another order than that of their scores, for which more of them are needed than will be shown."""
        return self.mmr < 1 or self.half_life_days > 0
