"""Many rows in, few statements out, in the words of either database.

SQLite gives up Python's lock for each statement, and gets it back late where other threads work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import Connection, Float, Insert, Integer, LargeBinary, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from ragstore.ledger.texts import FreeText, escape

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
    insert = _insert_arrays if connection.dialect.name == "postgresql" else _insert_values
    insert(connection, table, rows, conflict)


def _insert_values(connection: Connection, table: Table, rows: Iterable[Sequence[Any]], conflict: Conflict) -> None:
    """For SQLite: one statement that has all values of some thousand rows."""
    quote = connection.dialect.identifier_preparer.quote
    columns = [quote(column.name) for column in table.columns]
    row = f"({', '.join('?' * len(columns))})"
    head = f"INSERT OR {conflict.upper()} INTO {quote(table.name)} ({', '.join(columns)}) VALUES "  # noqa: S608 - names of our own schema
    for some in batches(rows, _MOST_VALUES // len(columns)):
        connection.exec_driver_sql(head + ", ".join([row] * len(some)), tuple(chain.from_iterable(some)))


def _insert_arrays(connection: Connection, table: Table, rows: Iterable[Sequence[Any]], conflict: Conflict) -> None:
    """For PostgreSQL: one statement that has an array for each column."""
    quote = connection.dialect.identifier_preparer.quote
    columns = [quote(column.name) for column in table.columns]
    arrays = ", ".join(f"%s::{_array_type(column.type)}[]" for column in table.columns)
    key = [quote(column.name) for column in table.primary_key]
    others = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns if name not in key)
    tail = {
        "fail": "",
        "ignore": " ON CONFLICT DO NOTHING",
        "replace": f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}",
    }[conflict]
    statement = f"INSERT INTO {quote(table.name)} ({', '.join(columns)}) SELECT * FROM unnest({arrays}){tail}"  # noqa: S608 - as above
    free = [number for number, column in enumerate(table.columns) if isinstance(column.type, FreeText)]
    for some in batches(rows, _MOST_VALUES // len(columns)):
        values = [list(column) for column in zip(*some, strict=True)]
        for number in free:
            values[number] = [None if text is None else escape(text) for text in values[number]]
        connection.exec_driver_sql(statement, tuple(values))


def _array_type(kind: TypeEngine[Any]) -> str:
    for python, name in ((LargeBinary, "bytea"), (Integer, "int8"), (Float, "float8")):
        if isinstance(kind, python):
            return name
    return "text"
