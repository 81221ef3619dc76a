"""A condition in, about how many rows it admits out, as PostgreSQL's planner expects; kept for half a minute."""

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
_LONGEST: Final = 1_000
"""Values of a condition that is remembered."""

HAS_INDEX: Final = (
    "EXISTS (SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam "
    "WHERE i.indrelid = to_regclass(%s::text) AND a.amname = 'hnsw' AND i.indisvalid)"
)
"""Its parameter is the table."""
_EXPECTED: Final = "EXPLAIN (FORMAT JSON) SELECT 1 FROM {table} WHERE {condition}"


@dataclass(slots=True)
class _Known:
    indexed: bool
    since: float = field(default_factory=time.monotonic)
    rows: dict[tuple[object, ...], int] = field(default_factory=dict)


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

    async def admitted(self, connection: Connection, names: Names, condition: Condition) -> int:
        """Rows, 1 at least."""
        known = self._known
        short = sum(len(value) for value in condition.parameters if isinstance(value, list)) <= _LONGEST
        key = (condition.sql, *(tuple(value) if isinstance(value, list) else value for value in condition.parameters)) if short else ()
        if known is not None and key in known.rows:
            return known.rows[key]
        statement = names.sql(_EXPECTED, condition=condition.sql)
        (((plan,),),) = await _all(connection, statement, condition.parameters)
        rows = max(1, int(plan["Plan"]["Plan Rows"]))
        if known is not None and short:
            if len(known.rows) >= _MOST:
                known.rows.clear()
            known.rows[key] = rows
        return rows


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
