"""A condition in, about how many rows it admits and how they are found out, as PostgreSQL's planner expects; kept for half a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ragstore_pgvector.filters import EVERY_ROW

if TYPE_CHECKING:
    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.filters import Condition
    from ragstore_pgvector.names import Names

_FRESH: Final = 30.0
_MOST: Final = 1_000
"""Conditions that are remembered."""

INDEX: Final = (
    "(SELECT min(pg_relation_filenode(i.indexrelid)::bigint) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = to_regclass(%s::text) AND a.amname = 'hnsw' AND i.indisvalid)"
)
"""The file of the approximate index, or null. Its parameter is the table of vectors. Whoever makes the index anew makes a new file."""
_USABLE: Final = f"SELECT EXISTS (SELECT 1 FROM {{strays}} WHERE id = 0 AND file = {INDEX})"
_EXPECTED: Final = "EXPLAIN (FORMAT JSON) SELECT 1 FROM {access} WHERE {condition}"
_ALL: Final = "EXPLAIN (FORMAT JSON) SELECT 1 FROM {vectors}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner says of a condition."""

    rows: int
    """About so many are admitted, 1 at least."""
    by_index: bool
    """Whether an index finds them."""
    findable: bool
    """Whether one could, where it is quicker to read all documents: then it is known well how many there are."""


@dataclass(slots=True)
class _Known:
    usable: bool
    rows: int = 1
    per_record: float = 1.0
    since: float = field(default_factory=time.monotonic)
    plans: dict[int, Plan] = field(default_factory=dict)


class Estimates:
    """They only decide how a search begins, so nothing is lost where one is wrong or old: to count would take longer than to search."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def forget(self) -> None:
        """The table is not what it was."""
        self._known = None

    async def usable(self, connection: Connection, names: Names) -> bool:
        """Whether there is an approximate index of which it is known what it does not find."""
        return (await self._current(connection, names)).usable

    async def rows(self, connection: Connection, names: Names) -> int:
        """About how many rows there are."""
        return (await self._current(connection, names)).rows

    async def plan(self, connection: Connection, names: Names, condition: Condition) -> Plan:
        """What is expected of the condition."""
        # Of two conditions with one hash one is taken for the other, which does no harm either.
        key = hash((condition.sql, *(tuple(value) if isinstance(value, list) else value for value in condition.parameters)))
        known = await self._current(connection, names)
        if key not in known.plans:
            told = await _explained(connection, names.sql(_EXPECTED, condition=condition.sql), condition.parameters)
            by_index = findable = _by_index(told)
            if not by_index and condition != EVERY_ROW:
                async with connection.transaction():
                    await connection.execute(b"SET LOCAL enable_seqscan = off")
                    findable = _by_index(await _explained(connection, names.sql(_EXPECTED, condition=condition.sql), condition.parameters))
            if len(known.plans) >= _MOST:
                known.plans.clear()
            rows = max(1, round(told["Plan Rows"] * known.per_record))
            known.plans[key] = Plan(rows=rows, by_index=by_index, findable=findable)
        return known.plans[key]

    async def _current(self, connection: Connection, names: Names) -> _Known:
        known = self._known
        if known is None or time.monotonic() - known.since > _FRESH:
            ((usable,),) = await _all(connection, names.sql(_USABLE), (names.named("vectors"),))
            known = _Known(usable)
            if usable:
                records = (await _explained(connection, names.sql(_EXPECTED, condition=EVERY_ROW.sql), ()))["Plan Rows"]
                known.rows = max(1, int((await _explained(connection, names.sql(_ALL), ()))["Plan Rows"]))
                known.per_record = known.rows / max(1, records)
            self._known = known
        return known


def _by_index(plan: Mapping[str, Any]) -> bool:
    return all(node["Node Type"] != "Seq Scan" for node in _nodes(plan))


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


async def _explained(connection: Connection, statement: bytes, parameters: Sequence[object]) -> Mapping[str, Any]:
    (((told,),),) = await _all(connection, statement, parameters)
    plan: Mapping[str, Any] = told["Plan"]
    return plan


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters)).fetchall()
