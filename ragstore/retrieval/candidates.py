"""A query and one filter in, the matches of both legs fused out; how many are asked for, and which count, is up to the caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ragstore import tracing
from ragstore.contracts import Embedder, Store, TextQuery, VectorQuery
from ragstore.embedding.scripts import unread
from ragstore.errors import PoisonError, QueryError, TransientError
from ragstore.filters import Filter
from ragstore.models import Match
from ragstore.retrieval.evidence import EVEN, RANK, vector_share
from ragstore.retrieval.fusion import Fusion, fuse
from ragstore.retrieval.phrases import lifted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Legs = Literal["both", "vector", "text"]
Result = TypeVar("Result")
Sieve = Callable[[Sequence[Match]], Awaitable[list[Match]]]
"""Matches in, those of them that may be shown, in the same order, out."""

_log = logging.getLogger("ragstore.retrieval")

_SPECIAL_TOKENS: Final = 16
"""Room for what `count_tokens` leaves out: special tokens and the model's query prefix."""
_TEXT_LENGTH: Final = 10_000
"""Characters of a query that the full-text leg sees."""
_FIRST: Final = 100
"""The least that a store is asked for."""
_MANY: Final = 12_800
"""From here on the number grows faster: a filter that is not exact admits much more than may be read."""

_HALF: Final = 0.5
_BLIND: Final = 0.2
"""What is left of the vector leg's weight where the embedder cannot read most of the query: it is then little more than noise, which took
.005 to .01 of nDCG@10 from the words (Arabic, Chinese). Where no word is found, it still gives an order."""
_FASTEST: Final = 16
"""Times what was asked for before: the nearest may be of a kind of which few may be read, and the rest not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leg:
    matches: Sequence[Match]
    complete: bool
    """There are no others."""


def larger(number: int) -> int:
    """How many to ask for next, where so many were not enough."""
    return number * (2 if number < _MANY else 8)


def _enough(asked: int, *, kept: int, wanted: int) -> int:
    """How many to ask for to keep so many, if as many of a hundred are kept as before, and half of that more; within limits."""
    return min(asked * _FASTEST, 3 * asked * wanted // (2 * max(kept, 1)))


@dataclass(slots=True, kw_only=True)
class Candidates:
    """The search of one query, repeated with a higher number until enough is found. The query is embedded once.

    Where the query cannot be embedded and the full-text leg is asked as well, that leg answers alone; the log has the event
    `retrieval.vector_leg_failed`, and `degraded` is set.
    """

    store: Store
    embedder: Embedder
    query: str
    filter: Filter
    legs: Legs
    fusion: Fusion
    vector_weight: float | None = None
    """Share of the vector leg; None: as the evidence of both legs says (see `evidence`), and one half for reciprocal ranks."""
    sieve: Sieve | None = None
    """What it drops is as if it were not there: no score, no rank and no number depends on it. Without it, all matches are ranked."""
    degraded: bool = False
    exhausted: bool = False
    """The last `best` saw every row that the filter admits and a leg can find, or all of them that the sieve lets through."""
    matches: dict[str, Match] = field(default_factory=dict)
    """Every match seen so far, by chunk id."""
    measures: Sequence[Match] = ()
    """Those of the last `best` by whose scores all others are measured."""
    _vector: NDArray[np.float32] | None = None
    _asked: dict[type[VectorQuery | TextQuery], int] = field(default_factory=dict)

    @property
    def one_leg(self) -> bool:
        """Whether there is nothing to fuse."""
        return self.legs != "both" or not self.store.capabilities.full_text

    async def best(self, number: int) -> list[tuple[str, float]]:
        """Chunk ids with their scores, best first, of the best `number` of each leg, under the same filter."""
        if self.one_leg:
            vector, text = await self._by_vector(number), await self._by_text(number)
        else:
            vector, text = await _both(self._by_vector(number), self._by_text(number))
        for leg in (vector, text):
            for match in leg.matches if leg else ():
                self.matches.setdefault(match.chunk_id, match)
        vector_complete = vector is not None and vector.complete
        # Whatever shares a word with the query is also somewhere in a complete list of neighbours.
        self.exhausted = vector_complete or (vector is None and (text is None or text.complete))
        if vector is None or text is None:
            alone = [leg.matches if leg else None for leg in (vector, text)]
            return fuse(*alone, fusion=self.fusion, vector_complete=vector_complete)
        self.measures = (*vector.matches[:1], *vector.matches[-1:], *text.matches[:RANK])
        share = self._vector_share(vector.matches, text.matches)
        words = lifted(self.query[:_TEXT_LENGTH], text.matches)
        return fuse(vector.matches, words, fusion=self.fusion, vector_complete=vector_complete, vector_weight=share)

    def _vector_share(self, vector: Sequence[Match], text: Sequence[Match]) -> float:
        share = self.vector_weight
        if share is None:
            share = EVEN if self.fusion == "rrf" else vector_share(vector, text, unrelated=self.embedder.unrelated_cosine)
        return share * _BLIND if share < 1 and unread(self.query, self.embedder.scripts) > _HALF else share

    async def _by_text(self, number: int) -> _Leg | None:
        if self.legs == "vector" or not self.store.capabilities.full_text:
            return None
        return await self._leg(TextQuery(text=self.query[:_TEXT_LENGTH]), number)

    async def _by_vector(self, number: int) -> _Leg | None:
        if self.legs == "text" or self.degraded:
            return None
        if self._vector is None:
            try:
                with tracing.step("embed"):
                    self._vector = await embed_query(self.embedder, self.query)
            except (TransientError, PoisonError) as error:
                if self.legs == "vector" or not self.store.capabilities.full_text:
                    raise
                self.degraded = True
                _log.warning("retrieval.vector_leg_failed", extra={"error": type(error).__name__})
                return None
        return await self._leg(VectorQuery(vector=self._vector), number)

    async def _leg(self, query: VectorQuery | TextQuery, number: int) -> _Leg:
        """The best `number` that the sieve lets through, or all."""
        if self.sieve is None:
            found = await self._proposed(query, number)
            return _Leg(matches=found, complete=len(found) < number)
        asked = max(number, _FIRST, self._asked.get(type(query), 0))
        while True:
            self._asked[type(query)] = asked
            found = await self._proposed(query, asked)
            kept = await self.sieve(found)
            everything = len(found) < asked
            if everything or len(kept) >= number:
                return _Leg(matches=kept[:number], complete=everything and len(kept) < number)
            asked = max(larger(asked), _enough(asked, kept=len(kept), wanted=number))

    async def _proposed(self, query: VectorQuery | TextQuery, number: int) -> list[Match]:
        with tracing.step("store.search", leg="text" if isinstance(query, TextQuery) else "vector", asked=number):
            return await self.store.search(query, filter=self.filter, limit=number)


async def embed_query(embedder: Embedder, query: str) -> NDArray[np.float32]:
    """The vector of the query, shape (dimensions,); what is beyond the model's limit is left out."""
    budget = max(1, embedder.max_tokens - _SPECIAL_TOKENS)
    if len(query.encode()) > budget:  # no token is less than a byte, so a short query need not be counted
        query = await asyncio.to_thread(_shorten, embedder, query, budget)
    vectors = await embedder.embed([query], purpose="query")
    vector: NDArray[np.float32] = vectors[0]
    return vector


def check_legs(legs: Legs, store: Store) -> None:
    """Raises `QueryError` for legs that are unknown or that this store does not have."""
    if legs not in {"both", "vector", "text"}:
        raise QueryError(f"legs must be 'both', 'vector' or 'text', not {legs!r}")
    if legs == "text" and not store.capabilities.full_text:
        raise QueryError("this store has no full-text search: use legs = 'vector', or a store that has it")


def _shorten(embedder: Embedder, query: str, budget: int) -> str:
    """The longest beginning that fits, to within a few words."""
    kept = query[: budget * 64]  # no tokenizer makes more of a word than that, and none need count a megabyte
    while len(kept) > 1 and (tokens := embedder.count_tokens([kept])[0]) > budget:
        kept = kept[: max(1, int(len(kept) * budget / tokens * 0.95))]
    return kept if kept.strip() else query.strip()[:1]


async def _both(first: Coroutine[Any, Any, Result], second: Coroutine[Any, Any, Result]) -> tuple[Result, Result]:
    """Both at once; where one fails the other is ended too, so that nothing goes on in the background."""
    task = asyncio.create_task(first)
    try:
        result = await second
    except BaseException:
        task.cancel()
        await asyncio.wait([task])
        raise
    return await task, result
