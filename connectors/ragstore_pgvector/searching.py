"""A query vector and a condition in, the nearest rows out: exact wherever an approximate index would lose rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragstore.models import Match
from ragstore_pgvector.schema import vector_text
from ragstore_pgvector.strings import original

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.filters import Condition
    from ragstore_pgvector.names import Names

_CANDIDATES: Final = (100, 8)
"""At least so many, and so many times the limit, are taken from the index and sorted: it gives them in nearly their order."""
_BREADTH: Final = (200, 400)
"""`hnsw.ef_search` without a filter and with one. Measured at 100 thousand rows: under a filter that admits half of them, all of some
topics, 200 finds 0.97 of the ten nearest, and 400 0.99."""
_MOST: Final = 1_000
"""What `hnsw.ef_search` takes."""

HAS_INDEX: Final = (
    "EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
    "WHERE i.indrelid = to_regclass(%s::text) AND a.amname = 'hnsw' AND i.indisvalid)"
)
"""Its parameter is the table."""
# A vector of zeros has no cosine; it counts as 0, as a right angle does. No index gives this order, so that each row is compared.
_EXACT: Final = (
    f"WITH counted AS MATERIALIZED (SELECT CASE WHEN {HAS_INDEX} "
    "THEN (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT %s) AS seen) ELSE 0 END AS admitted) "
    "SELECT counted.admitted, near.* FROM counted LEFT JOIN LATERAL ("
    "SELECT chunk_id, document_id, text, coalesce(nullif(vector {cosine} %s::{vector}, 'NaN'), 1) AS distance FROM {table} "
    "WHERE {condition} AND (SELECT admitted FROM counted) <= %s ORDER BY distance, chunk_id LIMIT %s) AS near ON TRUE"
)
_SETTINGS: Final = (
    b"SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true), "
    b"set_config('hnsw.max_scan_tuples', '40000', true)"
)
_APPROXIMATE: Final = (
    "SELECT near.* FROM (SELECT chunk_id, document_id, text, vector {cosine} %s::{vector} AS distance FROM {table} "
    "WHERE {condition} ORDER BY vector {cosine} %s::{vector} LIMIT %s) AS near ORDER BY distance, chunk_id LIMIT %s"
)
_ALL: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A search for the nearest rows by cosine.

    The rule (design: filtered search): count the rows that the filter admits; search exactly where they are few; where they are many,
    search approximately, and exactly after all if that did not fill the limit.
    """

    vector: NDArray[np.float32]
    condition: Condition
    limit: int
    exact_below: int

    async def run(self, connection: Connection, names: Names) -> list[Match]:
        """The best `min(limit, rows admitted)` rows, best first. One trip to the server, or two where an index is asked."""
        few = max(self.exact_below, self.limit)
        counted, found = await self._exactly(connection, names, few)
        if counted <= few:
            return found
        found = await self._approximately(connection, names)
        if len(found) < self.limit:
            _, found = await self._exactly(connection, names, _ALL)
        return found

    async def _exactly(self, connection: Connection, names: Names, few: int) -> tuple[int, list[Match]]:
        """How many rows are admitted, counted up to `few` + 1 where there is an index, and the matches unless they are more."""
        statement = names.sql(_EXACT, condition=self.condition.sql)
        values = self.condition.parameters
        found = await _all(connection, statement, (names.table, *values, few + 1, vector_text(self.vector), *values, few, self.limit))
        return found[0][0], matches((row[1:] for row in found if row[1] is not None), by_distance=True)

    async def _approximately(self, connection: Connection, names: Names) -> list[Match]:
        least, times = _CANDIDATES
        candidates = max(least, times * self.limit)
        breadth = _BREADTH[self.condition.sql != "TRUE"]
        query, values = vector_text(self.vector), self.condition.parameters
        statement = names.sql(_APPROXIMATE, condition=self.condition.sql)
        async with connection.pipeline(), connection.transaction():
            await connection.execute(_SETTINGS, (str(min(max(breadth, candidates), _MOST)),))
            found = await _all(connection, statement, (query, *values, query, candidates, self.limit))
        return matches(found, by_distance=True)


def matches(found: Iterable[Sequence[Any]], *, by_distance: bool = False) -> list[Match]:
    """Matches from rows of chunk id, document id, text, and score or cosine distance."""
    return [
        Match(
            chunk_id=original(chunk_id),
            document_id=original(document_id),
            text=original(text),
            score=1.0 - value if by_distance else value,
        )
        for chunk_id, document_id, text, value in found
    ]


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
