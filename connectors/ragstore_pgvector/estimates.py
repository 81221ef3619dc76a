"""A condition in, about how many rows it admits and how they are found out, as PostgreSQL's planner expects; kept for half a minute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.filters import Condition
    from ragstore_pgvector.names import Names

_FRESH: Final = 30.0
_MOST: Final = 1_000
"""Conditions that are remembered."""

HAS_INDEX: Final = (
    "EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
    "WHERE i.indrelid = to_regclass(%s::text) AND a.amname = 'hnsw' AND i.indisvalid)"
)
"""Its parameter is the table."""
_EXPECTED: Final = "EXPLAIN (FORMAT JSON) SELECT vector FROM {table} WHERE {condition}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner says of a condition."""

    rows: int
    """About so many are admitted, 1 at least."""
    by_index: bool
    """Whether an index finds them."""


@dataclass(slots=True)
class _Known:
    indexed: bool
    since: float = field(default_factory=time.monotonic)
    plans: dict[int, Plan] = field(default_factory=dict)


class Estimates:
    """They only decide how a search begins, so nothing is lost where one is wrong or old: to count would take longer than to search."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def forget(self) -> None:
        """The table is not what it was."""
        self._known = None

    async def indexed(self, connection: Connection, names: Names) -> bool:
        """Whether there is an approximate index."""
        known = self._known
        if known is None or time.monotonic() - known.since > _FRESH:
            ((indexed,),) = await _all(connection, names.sql(f"SELECT {HAS_INDEX}"), (names.table,))
            known = self._known = _Known(indexed)
        return known.indexed

    async def plan(self, connection: Connection, names: Names, condition: Condition) -> Plan:
        """What is expected of the condition."""
        # Of two conditions with one hash one is taken for the other, which does no harm either.
        key = hash((condition.sql, *(tuple(value) if isinstance(value, list) else value for value in condition.parameters)))
        known = self._known
        if known is not None and key in known.plans:
            return known.plans[key]
        (((told,),),) = await _all(connection, names.sql(_EXPECTED, condition=condition.sql), condition.parameters)
        plan = Plan(rows=max(1, int(told["Plan"]["Plan Rows"])), by_index="Seq Scan" not in told["Plan"]["Node Type"])
        if known is not None:
            if len(known.plans) >= _MOST:
                known.plans.clear()
            known.plans[key] = plan
        return plan


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
