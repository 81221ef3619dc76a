"""A table and a condition in, how many rows satisfy it out: counted once for each version of the table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ragstore_lancedb.maintenance import VECTOR_INDEX

if TYPE_CHECKING:
    from lancedb.table import AsyncTable

_MOST: Final = 1_000
"""Conditions whose count is kept; each is some kilobytes at most, but for principals with hundreds of assignments."""
_LATELY: Final = 1.0
"""Seconds for which a count need not be asked for again where a wrong one costs time and loses nothing."""


@dataclass(slots=True, kw_only=True)
class _Version:
    table: AsyncTable
    number: int
    approximate: bool | None = None
    rows: dict[str | None, int] = field(default_factory=dict)
    seen: float = 0.0
    """When it was the table's last version."""


class Counts:
    """To count costs a few tenths of a millisecond, a tenth of a search under a narrow filter; most versions are searched many times.

    What is counted while somebody commits may be that of the next version, and is not asked for again then.
    """

    def __init__(self) -> None:
        self._known: _Version | None = None

    async def admitted(self, table: AsyncTable, condition: str | None) -> int | None:
        """Rows that satisfy the condition; None where the table has no approximate index, so that nobody need know."""
        version = await self._version(table)
        if version.approximate is None:
            version.approximate = await table.index_stats(VECTOR_INDEX) is not None
        if not version.approximate:
            return None
        found = version.rows.get(condition)
        if found is None:
            found = await table.count_rows(condition)
            if len(version.rows) >= _MOST:
                version.rows.clear()
            version.rows[condition] = found
        return found

    def were_few(self, table: AsyncTable, condition: str | None, most: int) -> bool:
        """Whether the rows that satisfy the condition were so few a moment ago: even to ask for the version takes its time."""
        known = self._known
        if known is None or known.table is not table or time.monotonic() - known.seen > _LATELY:
            return False
        return known.rows.get(condition, most + 1) <= most

    async def _version(self, table: AsyncTable) -> _Version:
        number = await table.version()
        known = self._known
        if known is None or known.table is not table or known.number != number:
            known = self._known = _Version(table=table, number=number)
        known.seen = time.monotonic()
        return known
