"""Many rows in, few statements out: SQLite gives up Python's lock for each statement, and gets it back late where other threads work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal

from sqlalchemy import Connection, Table

Conflict = Literal["fail", "ignore", "replace"]

_MOST_VALUES: Final = 16_000
"""In one statement; SQLite's own limit is 32,766 (https://sqlite.org/limits.html)."""


def insert_rows(connection: Connection, table: Table, rows: Iterable[Sequence[Any]], *, conflict: Conflict = "fail") -> None:
    """Insert rows of values in the order of the table's columns; `conflict` says what becomes of those that are there already."""
    quote = connection.dialect.identifier_preparer.quote
    columns = [quote(column.name) for column in table.columns]
    row = f"({', '.join('?' * len(columns))})"
    head = f"INSERT OR {conflict.upper()} INTO {quote(table.name)} ({', '.join(columns)}) VALUES "  # noqa: S608 - names of our own schema
    iterator = iter(rows)
    while some := list(islice(iterator, _MOST_VALUES // len(columns))):
        connection.exec_driver_sql(head + ", ".join([row] * len(some)), tuple(chain.from_iterable(some)))
