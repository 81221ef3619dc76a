"""A query and a condition in, the best rows out: exact wherever an approximate index would lose rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragstore.models import Match
from ragstore.terms import query_terms
from ragstore_lancedb.counts import Counts
from ragstore_lancedb.strings import original

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from lancedb.query import AsyncVectorQuery, FullTextQuery
    from lancedb.table import AsyncTable
    from numpy.typing import NDArray

_PROBES: Final = 50
"""Partitions of the approximate index that are always searched; measured, recall@10 is 1.0 at 100 thousand and at a million rows."""
_CANDIDATES: Final = 1_000
"""So many candidates are ranked by their full vectors even where the limit is small: one bit per dimension ranks coarsely."""
_QUERY_TERMS: Final = 1_024
"""A longer text query, such as a whole document, is cut: further terms cost time and hardly change the ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A search for the nearest rows by cosine.

    The rule (design: filtered search): count the rows that the filter admits; search exactly where they are few; where they are many,
    search approximately, and exactly after all if that did not fill the limit.
    """

    vector: NDArray[np.float32]
    condition: str | None
    limit: int
    exact_below: int
    refine: int
    counts: Counts

    async def run(self, table: AsyncTable) -> list[Match]:
        """The best `min(limit, rows admitted)` rows, best first."""
        # To compare all rows that are admitted misses none, also where more have come since they were few.
        if not self.counts.were_few(table, self.condition, self.exact_below):
            admitted = await self.counts.admitted(table, self.condition)
            if admitted is not None and admitted > self.exact_below:
                found = await self._approximately(self._query(table)).to_arrow()
                if len(found) == min(self.limit, admitted):
                    return _ranked(found)
        return _ranked(await self._query(table).bypass_vector_index().to_arrow())

    def _approximately(self, query: AsyncVectorQuery) -> AsyncVectorQuery:
        query = query.refine_factor(max(self.refine, _CANDIDATES // self.limit))
        if self.condition is None:
            return query.nprobes(_PROBES)
        # The nearest partitions may hold few admitted rows, so go on until there are enough; 0 stands for all partitions.
        return query.maximum_nprobes(0).minimum_nprobes(_PROBES)

    def _query(self, table: AsyncTable) -> AsyncVectorQuery:
        query = table.query().nearest_to(self.vector).distance_type("cosine")
        query = query.select(["chunk_id", "document_id", "text", "_distance"]).limit(self.limit)
        return query if self.condition is None else query.where(self.condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestText:
    """A search for the best rows by BM25. The text is data: no character of it is query syntax."""

    text: str
    condition: str | None
    limit: int

    async def run(self, table: AsyncTable) -> list[Match]:
        """At most `limit` rows that share a word with the text, best first."""
        terms = " ".join(query_terms(self.text)[:_QUERY_TERMS])
        if not terms:
            return []
        query = table.query().nearest_to_text(_match(terms)).select(["chunk_id", "document_id", "text", "_score"])
        if self.condition is not None:
            query = query.where(self.condition)
        return _ranked(await query.limit(self.limit).to_arrow())


def _match(terms: str) -> FullTextQuery:
    from lancedb.query import FullTextOperator, MatchQuery

    return MatchQuery(
        terms, "terms", boost=1.0, fuzziness=0, max_expansions=50, operator=FullTextOperator.OR, prefix_length=0, document_granularity=None
    )


def _ranked(found: pa.Table) -> list[Match]:
    return sorted(_matches(found), key=lambda match: (-match.score, match.chunk_id))


def _matches(found: pa.Table) -> Iterator[Match]:
    by_distance = "_distance" in found.column_names
    scores = found.column("_distance" if by_distance else "_score").to_pylist()
    columns = [found.column(name).to_pylist() for name in ("chunk_id", "document_id", "text")]
    for chunk_id, document_id, text, score in zip(*columns, scores, strict=True):
        yield Match(
            chunk_id=original(chunk_id),
            document_id=original(document_id),
            text=original(text),
            score=1.0 - score if by_distance else score,
        )
