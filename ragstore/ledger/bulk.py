"""Many rows in, few statements out, in the words of either database.

SQLite gives up Python's lock for each statement, and gets it back late where other threads work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")

Conflict = Literal["fail", "ignore", "replace"]

_MOST_VALUES: Final = 16_000
"""In one statement; SQLite's own limit is 32,766 (https://sqlite.org/limits.html)."""


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size` items: the parameters of a statement are limited."""
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


def dialect_insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert to which `on_conflict_do_update` or `on_conflict_do_nothing` can be added."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def upsert(connection: Connection, table: Table, key: Sequence[str], changed: Mapping[str, Any]) -> Insert:
    """An insert that, where a row with this key is there, sets these columns of it."""
    return dialect_insert(connection, table).on_conflict_do_update(index_elements=list(key), set_=changed)


def insert_rows(connection: Connection, table: Table, rows: Iterable[Sequence[Any]], *, conflict: Conflict = "fail") -> None:
    """Insert rows of values in the order of the table's columns; `conflict` says what becomes of those that are there already."""
    quote = connection.dialect.identifier_preparer.quote
    columns = [quote(column.name) for column in table.columns]
    row = f"({', '.join('?' * len(columns))})"
    head = f"INSERT OR {conflict.upper()} INTO {quote(table.name)} ({', '.join(columns)}) VALUES "  # noqa: S608 - names of our own schema
    for some in batches(rows, _MOST_VALUES // len(columns)):
        connection.exec_driver_sql(head + ", ".join([row] * len(some)), tuple(chain.from_iterable(some)))
