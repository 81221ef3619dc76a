"""A query vector and a condition in, the nearest rows out: exact wherever an approximate index would lose rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragstore.models import Match
from ragstore_pgvector.filters import EVERY_ROW, Condition
from ragstore_pgvector.schema import VectorParameter, vector_bytes
from ragstore_pgvector.strings import original

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.estimates import Estimates
    from ragstore_pgvector.names import Names

_BREADTH: Final = (200, 400)
"""`hnsw.ef_search` without a filter and with one, the least that is asked for."""
_CANDIDATES: Final = (100, 400)
"""As many of the nearest rows, and more, are taken from the index, without a filter and with one."""
_AMPLE: Final = 4
"""Times the limit: so many admitted rows should be among them."""
_ENOUGH: Final = 2
"""Times the limit: so few admitted rows among them are still enough. The index loses some of the last of its nearest, not of the first."""
_MOST: Final = 1_000
"""What `hnsw.ef_search` takes."""
_MOST_CANDIDATES: Final = 4_000
"""To have more of them from the index takes longer than to compare all the rows that the filter admits."""

# A vector of zeros has no cosine; it counts as 0, as a right angle does. No index gives this order, so that each row is compared.
_DISTANCE: Final = "coalesce(nullif(vector {cosine} %s::{vector}, 'NaN'), 1)"
_EXACT: Final = (
    "SELECT chunk_id, document_id, text, near.distance FROM "
    f"(SELECT id, access_id, {_DISTANCE} AS distance FROM {{vectors}} WHERE {{admitted}} ORDER BY distance, id LIMIT %s) AS near "
    "JOIN {table} AS stored ON stored.id = near.id JOIN {access} AS held ON held.id = near.access_id ORDER BY near.distance, near.id"
)
_ADMITTED: Final = "access_id IN (SELECT id FROM {access} WHERE {condition})"
_SETTINGS: Final = (
    b"SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true), "
    b"set_config('hnsw.max_scan_tuples', '40000', true), set_config('hnsw.scan_mem_multiplier', '4', true)"
)
# The filter is asked of the nearest rows, not the index for rows under the filter: then it is known how many of them it admits. What the
# index does not find is compared besides. `OFFSET 0`: the filter takes far longer than the planner thinks, so it is asked of these alone.
_APPROXIMATE: Final = (
    "SELECT chunk_id, best.document_id, text, best.distance, best.found FROM "
    "(SELECT near.id, document_id, near.distance, count(*) FILTER (WHERE near.by_index) OVER () AS found FROM "
    "(SELECT id, access_id, distance, TRUE AS by_index FROM "
    f"(SELECT id, access_id, {_DISTANCE} AS distance FROM {{vectors}} ORDER BY vector {{cosine}} %s::{{vector}} LIMIT %s) AS first "
    "WHERE id NOT IN (SELECT id FROM {strays}) UNION ALL "
    f"SELECT id, access_id, {_DISTANCE}, FALSE FROM {{strays}} JOIN {{vectors}} USING (id)) AS near "
    "CROSS JOIN LATERAL (SELECT document_id FROM {access} WHERE id = near.access_id AND {condition} OFFSET 0) AS held "
    "ORDER BY near.distance, near.id LIMIT %s) AS best JOIN {table} AS stored ON stored.id = best.id ORDER BY best.distance, best.id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A search for the nearest rows by cosine.

    The rule (design: filtered search): where the filter admits few rows, compare all of them. Where it seems to admit many, ask the index
    for the nearest rows of all, and how many of these are admitted; if those are few, because what is admitted lies elsewhere, compare all
    admitted rows after all. An index that is asked under such a filter gives up on the way, and what it has by then is not the nearest.
    """

    vector: NDArray[np.float32]
    condition: Condition
    by_index: Condition
    """The same one, as an index understands it."""
    limit: int
    exact_below: int
    estimates: Estimates

    async def run(self, connection: Connection, names: Names) -> list[Match]:
        """The best `min(limit, rows admitted)` rows, best first. One trip to the server for most, two where an index was of no help."""
        usable = await self.estimates.usable(connection, names)
        if not usable and self.by_index == self.condition:
            return await self._exactly(connection, names, self.condition)
        plan = await self.estimates.plan(connection, names, self.by_index)
        # Of what no index could find the planner only guesses how much there is.
        if usable and (plan.rows > max(self.exact_below, self.limit) or not plan.findable):
            rows = await self.estimates.rows(connection, names)
            candidates = max(_CANDIDATES[self._filtered], math.ceil(_AMPLE * self.limit * rows / plan.rows))
            found = await self._approximately(connection, names, candidates) if candidates <= _MOST_CANDIDATES else None
            if found is not None:
                return found
        return await self._exactly(connection, names, self.by_index if plan.by_index else self.condition)

    async def _exactly(self, connection: Connection, names: Names, condition: Condition) -> list[Match]:
        admitted = "TRUE" if condition == EVERY_ROW else names.sql(_ADMITTED, condition=condition.sql).decode()
        statement = names.sql(_EXACT, admitted=admitted)
        query = VectorParameter(vector_bytes(self.vector, names.precision))
        return matches(await _all(connection, statement, (query, *condition.parameters, self.limit)), by_distance=True)

    async def _approximately(self, connection: Connection, names: Names, candidates: int) -> list[Match] | None:
        """The matches; None where too few of the candidates are admitted to say that no other row is nearer."""
        query = VectorParameter(vector_bytes(self.vector, names.precision))
        statement = names.sql(_APPROXIMATE, condition=self.condition.sql)
        async with connection.pipeline(), connection.transaction():
            await connection.execute(_SETTINGS, (str(min(max(_BREADTH[self._filtered], candidates), _MOST)),))
            found = await _all(connection, statement, (query, query, candidates, query, *self.condition.parameters, self.limit))
        if not found or found[0][-1] < _ENOUGH * self.limit:
            return None
        return matches((row[:-1] for row in found), by_distance=True)

    @property
    def _filtered(self) -> bool:
        return self.condition != EVERY_ROW


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
