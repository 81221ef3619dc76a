"""A text and a condition in, the best rows by BM25 out: the words are ours, PostgreSQL finds them and knows how rare they are."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ragstore.terms import query_terms
from ragstore_pgvector.schema import lexeme
from ragstore_pgvector.searching import matches
from ragstore_pgvector.strings import key

if TYPE_CHECKING:
    from ragstore.models import Match
    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.filters import Condition
    from ragstore_pgvector.names import Names

_K1: Final = 1.2
_B: Final = 0.75
_QUERY_TERMS: Final = 256
"""A longer text query, such as a whole document, is cut: further terms cost time and hardly change the ranking."""
_COUNTED: Final = 20_000
"""Rows with a word, or rows at all, are counted up to here; beyond, the statistics of `ANALYZE` are near enough."""
_SAMPLE: Final = 2_000
_FRESH: Final = 30.0
"""Seconds for which the size of the table is taken for known: it only weighs words."""
_COMMON: Final = 20
"""A word in more than one of so many rows is not searched for where rarer ones, or the rarest one, fill the limit."""

_STATISTICS: Final = (
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT %s) AS seen), "
    "(SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s::text)), "
    "(SELECT avg(words)::float8 FROM (SELECT words FROM {table} LIMIT %s) AS seen), "
    "(SELECT json_object_agg(common.word, common.share) FROM pg_stats, "
    "unnest(most_common_elems::text::text[], most_common_elem_freqs) AS common(word, share) "
    "WHERE schemaname = %s AND tablename = %s AND attname = 'terms' AND common.word IS NOT NULL)"
)
_COUNTS: Final = (
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE terms @@ asked.query LIMIT %s) AS seen) "
    "FROM unnest(%s::text[]::tsquery[]) WITH ORDINALITY AS asked(query, place) ORDER BY place"
)
# `ts_rank` of one word that occurs n times is the sum of 1/i² for i up to n, over pi²/6, which `width_bucket` turns into n again. That is
# a few times faster than to unfold the words of every row. `setweight` unpacks them once for all words of the query.
_SEARCH: Final = (
    "SELECT best.chunk_id, best.document_id, best.text, best.score FROM (SELECT chunk_id, document_id, text, "
    f"(SELECT sum(asked.weight * {_K1 + 1} * asked.times / (asked.times + held.length)) FROM (SELECT weight, "
    "width_bucket(ts_rank(ARRAY[1,1,1,1]::float4[], held.lexemes, query)::float8, %s::float8[]) AS times "
    "FROM unnest(%s::text[]::tsquery[], %s::float8[]) AS word(query, weight)) AS asked) AS score "
    f"FROM (SELECT chunk_id, document_id, text, {_K1} * ({1 - _B} + {_B} * words / %s::float8) AS length, setweight(terms, 'D') AS lexemes "
    "FROM {table} AS stored JOIN {access} AS held ON held.id = stored.access_id WHERE terms @@ %s::tsquery AND {condition} OFFSET 0) "
    "AS held) AS best ORDER BY best.score DESC, best.chunk_id LIMIT %s"
)


def _steps(most: int) -> list[float]:
    """The least `ts_rank` of a word that occurs 1, 2, 3 ... times, less half of the last step."""
    total, found = 0.0, []
    for times in range(1, most + 1):
        found.append((total + 0.5 / times**2) / 1.64493406685)
        total += 1.0 / times**2
    return found


_STEPS: Final = _steps(200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What BM25 needs to know of all rows."""

    rows: int
    mean_length: float
    common: Mapping[str, float]
    """The share of rows that hold a word, for the most common ones, where the table is large and `ANALYZE` has seen it."""
    since: float = field(default_factory=time.monotonic)

    @property
    def fresh(self) -> bool:
        """Whether they may still be used."""
        return time.monotonic() - self.since < _FRESH

    @classmethod
    async def of(cls, connection: Connection, names: Names) -> Sizes:
        """As the table is now: counted where it is small, and as the statistics have it where it is large."""
        statement = names.sql(_STATISTICS)
        parameters = (_COUNTED + 1, names.table, _SAMPLE, names.schema, names.collection)
        ((counted, estimated, mean, common),) = await _all(connection, statement, parameters)
        large = counted > _COUNTED
        return cls(
            rows=max(counted, int(estimated)) if large else counted,
            mean_length=max(1.0, mean or 1.0),
            common=common or {} if large else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BestText:
    """A search for the best rows by BM25 (Robertson and Zaragoza, 2009). The text is data: no character of it is query syntax."""

    text: str
    condition: Condition
    limit: int

    async def run(self, connection: Connection, names: Names, sizes: Sizes) -> list[Match]:
        """At most `limit` rows that share a word with the text, best first.

        Rows that hold only common words are looked at where they could be among the best, and only there: no row scores more than the
        weights of its words together (MaxScore; Turtle and Flood, 1995).
        """
        words = list(dict.fromkeys(map(key, query_terms(self.text)[: 100 * _QUERY_TERMS])))[:_QUERY_TERMS]
        if not words:
            return []
        counts = await _counts(connection, names, words, sizes)
        total = max(sizes.rows, *counts.values())
        weights = {word: math.log(1 + (total - count + 0.5) / (count + 0.5)) for word, count in counts.items() if count}
        if not weights:
            return []
        rare = [word for word in weights if counts[word] * _COMMON <= total] or [min(weights, key=counts.__getitem__)]
        if len(rare) < len(weights):
            found = await self._search(connection, names, sizes, weights, rare)
            rest = sum(weights[word] * (_K1 + 1) for word in weights.keys() - set(rare))
            if len(found) == self.limit and found[-1].score >= rest:
                return found
        return await self._search(connection, names, sizes, weights, list(weights))

    async def _search(
        self, connection: Connection, names: Names, sizes: Sizes, weights: Mapping[str, float], wanted: Sequence[str]
    ) -> list[Match]:
        statement = names.sql(_SEARCH, condition=self.condition.sql)
        asked = [lexeme(word) for word in weights]
        any_of_them = " | ".join(lexeme(word) for word in wanted)
        parameters = (_STEPS, asked, list(weights.values()), sizes.mean_length, any_of_them, *self.condition.parameters, self.limit)
        return matches(await _all(connection, statement, parameters))


async def _counts(connection: Connection, names: Names, words: Sequence[str], sizes: Sizes) -> dict[str, int]:
    """In how many rows each word occurs."""
    unknown = [word for word in words if word not in sizes.common]
    found = await _all(connection, names.sql(_COUNTS), (_COUNTED + 1, [lexeme(word) for word in unknown])) if unknown else []
    known = {word: int(sizes.common[word] * sizes.rows) + 1 for word in words if word in sizes.common}
    return {**known, **{word: count for word, (count,) in zip(unknown, found, strict=True)}}


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
