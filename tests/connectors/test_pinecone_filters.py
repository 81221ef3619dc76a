"""Filters on their way into Pinecone, evaluated by the vendor's rules: never less than was asked for, and no more where that is claimed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.filters import ALWAYS, NEVER, And, AnyOf, Filter, Like, Not, OneOf, Or, StartsWith, matches
from ragstore.models import AccessColumns
from ragstore.testing.rows import access
from ragstore.testing.strategies import access_columns, filters, hostile_strings
from ragstore_pinecone.directories import directories, nearest_directory
from ragstore_pinecone.filters import translate
from ragstore_pinecone.records import Columns
from ragstore_pinecone.strings import NOTHING, original, storable
from tests.fakes import pinecone_filter

strings = st.one_of(hostile_strings(), st.text(st.characters()), st.text(st.sampled_from("a0d8\0\ud800\udfff\U0010ffff"), max_size=8))
_FEW = st.one_of(st.sampled_from(["", "a", "a/", "a/b", "a/b/", "a/b/c", "b", "\0", "\ud800", "/", "//", "A/"]), st.text(max_size=3))


def admitted(expression: Filter, row: AccessColumns) -> bool:
    """Whether the fake, which refuses what Pinecone would refuse, admits the row."""
    condition = translate(expression).condition
    if condition is None:
        return True
    pinecone_filter.check(condition)
    return pinecone_filter.matches(condition, json.loads(json.dumps(Columns.of(row).metadata)))


@given(strings)
def test_a_stored_string_comes_back_and_is_valid_utf8(text: str) -> None:
    assert original(storable(text)) == text
    assert "\0" not in storable(text)
    storable(text).encode()
    assert storable(text) != NOTHING


@given(strings, strings)
def test_stored_strings_are_equal_where_the_originals_are(one: str, other: str) -> None:
    assert (storable(one) == storable(other)) == (one == other)


@given(filters(_FEW), st.lists(access_columns(_FEW), min_size=1, max_size=6))
def test_a_filter_admits_at_least_what_it_means_and_no_more_where_it_says_so(expression: Filter, rows: list[AccessColumns]) -> None:
    try:
        exact = translate(expression).exact
    except ValueError:
        assert not any(matches(expression, row) for row in rows)
        return
    for row in rows:
        if exact:
            assert admitted(expression, row) == matches(expression, row)
        else:
            assert admitted(expression, row) or not matches(expression, row)


@given(filters(), st.lists(access_columns(hostile_strings().map(lambda text: text[:2_000])), min_size=1, max_size=3))
def test_hostile_values_take_no_row_away(expression: Filter, rows: list[AccessColumns]) -> None:
    for row in rows:
        if matches(expression, row):
            assert admitted(expression, row)


@pytest.mark.parametrize(
    ("expression", "condition", "exact"),
    [
        (ALWAYS, None, True),
        (OneOf("path", frozenset({"b", "a"})), {"path": {"$in": ["a", "b"]}}, True),
        (AnyOf("allowed", frozenset({"g"})), {"allowed": {"$in": ["g"]}}, True),
        (StartsWith("path", "a/b/"), {"prefixes": {"$in": ["a/b/"]}}, True),
        (StartsWith("path", "a/b/c"), {"prefixes": {"$in": ["a/b/"]}}, False),
        (StartsWith("path", "a"), None, False),
        (StartsWith("container", "a/"), None, False),
        (Like("path", "a/*.md"), {"prefixes": {"$in": ["a/"]}}, False),
        (Like("path", "a\\*/?"), {"prefixes": {"$in": ["a*/"]}}, False),
        (Like("path", "?/*"), None, False),
        (Like("path", "a/*"), {"prefixes": {"$in": ["a/"]}}, True),
        (Not(OneOf("path", frozenset({"a"}))), None, False),
        (Not(Not(OneOf("path", frozenset({"a"})))), {"path": {"$in": ["a"]}}, True),
        (
            And((OneOf("path", frozenset({"a"})), Not(AnyOf("labels", frozenset({"x"}))))),
            {"path": {"$in": ["a"]}},
            False,
        ),
        (
            Not(Or((Not(OneOf("path", frozenset({"a"}))), Not(AnyOf("labels", frozenset({"x"})))))),
            {"$and": [{"path": {"$in": ["a"]}}, {"labels": {"$in": ["x"]}}]},
            True,
        ),
        (Or((OneOf("path", frozenset({"a"})), Not(AnyOf("labels", frozenset({"x"}))))), None, False),
        (Or((OneOf("path", frozenset({"a"})), OneOf("path", frozenset({"b"})))), {"path": {"$in": ["a", "b"]}}, True),
    ],
)
def test_what_a_filter_becomes(expression: Filter, condition: object, exact: bool) -> None:  # noqa: FBT001 - a parameter of the test
    found = translate(expression)
    assert (found.condition, found.exact) == (condition, exact)


def test_a_filter_that_admits_nothing_is_never_sent() -> None:
    for nothing in (NEVER, OneOf("path", frozenset()), And((ALWAYS, Not(ALWAYS)))):
        with pytest.raises(ValueError, match="not sent"):
            translate(nothing)


def test_more_values_than_one_list_takes_are_several_lists() -> None:
    groups = frozenset(f"group {number}" for number in range(25_000))
    found = translate(AnyOf("allowed", groups))
    assert found.exact
    assert found.condition is not None
    assert [len(one["allowed"]["$in"]) for one in found.condition["$or"]] == [10_000, 10_000, 5_000]
    assert admitted(AnyOf("allowed", groups), access(allowed=("group 24999",)))
    assert not admitted(AnyOf("allowed", groups), access(allowed=("stranger",)))


def test_the_groups_of_a_principal_in_ten_thousand_fit_as_they_are() -> None:
    groups = frozenset(f"{number:08x}-0000-0000-0000-000000000000" for number in range(10_000))
    assert translate(AnyOf("allowed", groups)).exact


def test_of_a_filter_that_is_too_large_the_largest_lists_are_left_out() -> None:
    groups = AnyOf("allowed", frozenset(f"{number:08x}-0000-0000-0000-000000000000" for number in range(60_000)))
    inside = OneOf("container", frozenset({"docs"}))
    found = translate(And((groups, inside)))
    assert (found.condition, found.exact) == ({"container": {"$in": ["docs"]}}, False)
    assert translate(Or((groups, inside))).condition is None


def test_a_prefix_longer_than_any_kept_directory_falls_back_to_the_longest_that_is() -> None:
    deep = "/".join("d" * 20 for _ in range(40)) + "/"
    long = "x" * 300 + "/y/"
    assert nearest_directory(deep) in directories(deep + "file.md")
    assert not translate(StartsWith("path", deep)).exact
    assert admitted(StartsWith("path", deep), access(deep + "file.md"))
    assert (directories(long + "z"), nearest_directory(long)) == ([], None)
    assert sum(len(one) for one in directories("a/" * 10_000)) < 5_000


@given(st.text(st.sampled_from("ab/\0é"), max_size=30), st.text(st.sampled_from("ab/\0é"), max_size=10))
def test_a_directory_is_kept_for_every_path_below_it_or_for_none(prefix: str, rest: str) -> None:
    nearest = nearest_directory(prefix)
    assert nearest is None or nearest in directories(prefix + rest)
