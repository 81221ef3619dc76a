"""Filters and strings on their way into PostgreSQL keep their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ragstore.filters import AnyOf, Filter, Like, matches
from ragstore.models import AccessColumns
from ragstore.terms import row_terms
from ragstore.testing.strategies import access_columns, filters, hostile_strings, patterns
from ragstore_pgvector.filters import where
from ragstore_pgvector.schema import ACCESS, LISTS, access_values, lexeme, text_vector
from ragstore_pgvector.strings import key, original, storable

if TYPE_CHECKING:
    import psycopg

_SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large])
_COLUMNS = ", ".join(f'%s::text{"[]" if name in {*LISTS, "long_values"} else ""} COLLATE "C" AS {name}' for name in ACCESS)


@pytest.fixture(scope="module")
def connection(postgres_server: str) -> Iterator[psycopg.Connection[Any]]:
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True, prepare_threshold=None) as connection:
        yield connection


def admitted(connection: psycopg.Connection[Any], condition: Filter, columns: AccessColumns) -> bool:
    """What PostgreSQL makes of the condition for a row with these columns."""
    made = where(condition)
    statement = f"SELECT count(*) FROM (SELECT {_COLUMNS} OFFSET 0) AS row_ WHERE {made.sql}".encode()
    found = connection.execute(statement, [*access_values(columns), *made.parameters]).fetchone()
    return found == (1,)


@_SHARED
@given(condition=filters(), columns=access_columns())
def test_a_condition_means_what_the_filter_says(connection: psycopg.Connection[Any], condition: Filter, columns: AccessColumns) -> None:
    assert admitted(connection, condition, columns) == matches(condition, columns)


@_SHARED
@given(text=hostile_strings(), pattern=patterns())
@example(text="\x1a", pattern="*0")
@example(text="\0", pattern="?")
@example(text="\ud800", pattern="?????")
@example(text="a\n", pattern="a")
def test_a_pattern_means_what_it_says_whatever_has_to_be_escaped(connection: psycopg.Connection[Any], text: str, pattern: str) -> None:
    columns = AccessColumns(account="", container="", path=text)
    condition = Like("path", pattern)
    assert admitted(connection, condition, columns) == matches(condition, columns)


@_SHARED
@given(values=st.lists(hostile_strings(), max_size=3), asked=hostile_strings())
def test_many_values_mean_what_few_do(connection: psycopg.Connection[Any], values: list[str], asked: str) -> None:
    columns = AccessColumns(account="", container="", path="", allowed=tuple(values))
    condition = AnyOf("allowed", frozenset({asked, *(f"other {number}" for number in range(100))}))
    assert admitted(connection, condition, columns) == (asked in values)


@given(one=hostile_strings(), other=hostile_strings())
def test_stored_strings_are_equal_and_begin_alike_exactly_where_the_originals_do(one: str, other: str) -> None:
    assert original(storable(one)) == one
    assert "\0" not in storable(one)
    storable(one).encode()  # is valid Unicode
    assert (storable(one) == storable(other)) == (one == other)
    assert (key(one) == key(other)) == (one == other)
    assert storable(one).startswith(storable(other)) == one.startswith(other)


@_SHARED
@given(text=st.text(max_size=60), other=hostile_strings())
@example(text="'", other="\\")
def test_a_text_is_found_by_each_of_its_words_as_often_as_it_holds_them(connection: psycopg.Connection[Any], text: str, other: str) -> None:
    whole = f"{text} {other} {text}"
    terms = row_terms(whole)
    vector, words = text_vector(whole)
    assert words == len(terms)
    found = connection.execute(
        'SELECT lexeme, cardinality(positions) FROM unnest(%s::tsvector) ORDER BY lexeme COLLATE "C"', (vector,)
    ).fetchall()
    assert found == sorted((key(term), min(terms.count(term), 200)) for term in set(terms))
    if terms:
        query = " | ".join(lexeme(key(term)) for term in terms)
        assert connection.execute("SELECT %s::tsvector @@ %s::tsquery", (vector, query)).fetchone() == (True,)
