"""Filters as OData, which the fake evaluates by the vendor's rules: they admit what `matches` says, or more where they say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.filters import ALWAYS, NEVER, And, AnyOf, Filter, Like, Not, OneOf, Or, StartsWith, matches
from ragstore.models import AccessColumns
from ragstore.testing.rows import access
from ragstore.testing.strategies import access_columns, filters, hostile_strings
from ragstore_azure.search.filters import Condition, where
from ragstore_azure.search.schema import access_fields, definition, to_key
from ragstore_azure.search.strings import LONGEST, chunk_of, comparable, key_of, original, prose, storable
from tests.fakes.azure_search_odata import ODataError, compiled

FIELDS = {field["name"]: field for field in definition("i", 8, None)["fields"]}
# Directories, delimiters, blanks, quotes, and what is too long for a field: where a translation may go wrong.
TRICKY = ("a/b/c", "a/b/d", "a/", "/", "a|b,c;d~e^f", " a", "a ", "é" * LONGEST, "é" * LONGEST + "x", "a/" * 70 + "b")
tricky = st.one_of(
    hostile_strings(),
    st.text(st.sampled_from("ab/|,;~^`! '\x1f\n日\ud800\U0010ffff"), max_size=8),
    st.integers(0, len(TRICKY) - 1).map(lambda number: TRICKY[number]),  # not `sampled_from`, which spells them all out
)


def admitted(condition: Condition, columns: AccessColumns) -> bool:
    if condition.odata is None:
        return True
    document: dict[str, Any] = access_fields(columns)
    return compiled(condition.odata, FIELDS)(document)


@given(filters(tricky), st.lists(access_columns(tricky), min_size=1, max_size=5))
def test_a_filter_admits_what_it_means_and_no_more_where_it_is_exact(expression: Filter, rows: list[AccessColumns]) -> None:
    condition = where(expression)
    for row in rows:
        meant, found = matches(expression, row), admitted(condition, row)
        assert found or not meant
        assert found == meant or not condition.exact


@given(st.lists(tricky, min_size=1, max_size=30), st.lists(tricky, min_size=1, max_size=5))
def test_sets_of_values_are_exact(values: list[str], rows: list[str]) -> None:
    wanted = frozenset(values)
    for text in (*rows, values[0]):
        columns = access(text, allowed=(text, "x"))
        leaves: list[Filter] = [OneOf("path", wanted), AnyOf("allowed", wanted)]
        for leaf in (*leaves, *map(Not, leaves)):
            condition = where(leaf)
            assert condition.exact
            assert admitted(condition, columns) == matches(leaf, columns)


@given(tricky, tricky)
def test_a_directory_is_exact_as_a_prefix_and_negated(directory: str, path: str) -> None:
    prefix = directory[:200] + "/"
    condition, negated = where(StartsWith("path", prefix)), where(Not(StartsWith("path", prefix)))
    for text in (path, prefix + path, prefix):
        columns = access(text)
        assert admitted(condition, columns) >= text.startswith(prefix)
        if prefix.count("/") <= 64:
            assert condition.exact
            assert negated.exact
            assert admitted(condition, columns) == text.startswith(prefix) != admitted(negated, columns)


@given(tricky, tricky)
def test_stored_strings_come_back_and_are_equal_where_the_originals_are(one: str, other: str) -> None:
    assert original(storable(one)) == original(prose(one)) == one
    assert (comparable(one) == comparable(other)) == (one == other)
    assert len(comparable(one).encode()) <= LONGEST
    assert not any(character < " " for character in storable(one))
    assert chunk_of(key_of(one)) == one


@given(access_columns(tricky))
def test_access_columns_come_back_from_the_fields_of_a_document(columns: AccessColumns) -> None:
    document = {"key": "ab", "document_id": "cd", "generation": 1, **access_fields(columns)}
    assert to_key(document).access == columns
    assert all(len(str(document[name]).encode()) <= LONGEST for name in ("account", "container", "path", "media_type"))


def test_a_prefix_counts_to_its_last_slash_and_a_pattern_to_its_first_wildcard() -> None:
    assert where(StartsWith("path", "a/b/")) == Condition(odata="prefixes/any(e: e eq 'path:a/b/')", exact=True)
    assert where(Not(StartsWith("path", "a/b/"))) == Condition(odata="not (prefixes/any(e: e eq 'path:a/b/'))", exact=True)
    assert where(StartsWith("path", "a/b/c")) == Condition(odata="prefixes/any(e: e eq 'path:a/b/')", exact=False)
    assert where(Like("path", "a/b?/*.md")) == Condition(odata="prefixes/any(e: e eq 'path:a/')", exact=False)
    assert where(Not(StartsWith("path", "a/b/c"))) == where(Like("path", "*.md")) == Condition(odata=None, exact=False)
    assert where(And((OneOf("path", frozenset({"x"})), Like("path", "*.md")))) == Condition(odata="path eq 'x'", exact=False)
    assert where(Or((OneOf("path", frozenset({"x"})), Like("path", "*.md")))) == Condition(odata=None, exact=False)


def test_always_is_no_condition_and_never_is_false() -> None:
    assert where(ALWAYS) == Condition(odata=None, exact=True)
    assert where(NEVER) == where(OneOf("path", frozenset())) == where(Not(And(()))) == Condition(odata="false", exact=True)


def test_a_principal_with_ten_thousand_groups_is_one_clause() -> None:
    groups = frozenset(f"{number:08x}-0000-0000-0000-000000000000" for number in range(10_000))
    condition = where(AnyOf("allowed", groups))
    assert condition.odata is not None
    assert condition.odata.count("search.in") == 1
    assert admitted(condition, access(allowed=(min(groups),)))
    assert not admitted(condition, access(allowed=("",)))


def test_a_delimiter_occurs_in_no_value_that_is_listed_behind_it() -> None:
    wanted = frozenset({"a|b", "c|d", "e,f", "g", "", " h", "it's"})
    condition = where(OneOf("path", wanted))
    for text in (*wanted, "a", "b", "e", "h", "it"):
        assert admitted(condition, access(text)) == (text in wanted)


def test_a_filter_that_would_be_too_large_says_less() -> None:
    scattered: list[Filter] = [And((OneOf("account", frozenset({f"{n}"})), OneOf("path", frozenset({f"{n}"})))) for n in range(2_000)]
    condition = where(And((OneOf("container", frozenset({"docs"})), Or(tuple(scattered)))))
    assert condition == Condition(odata="container eq 'docs'", exact=False)
    deep: Filter = OneOf("path", frozenset({"x"}))
    for number in range(200):
        leaf = AnyOf("allowed", frozenset({f"{number}"}))
        deep = And((deep, leaf)) if number % 2 else Or((deep, leaf))
    assert not where(deep).exact
    huge = frozenset(f"{number}" + "x" * 30_000 for number in range(600))
    assert where(OneOf("path", huge)) == Condition(odata=None, exact=False)


@pytest.mark.parametrize(
    ("odata", "said"),
    [
        ("path gt 'a'", "not defined for Edm.String"),
        ("text eq 'a'", "not a filterable field"),
        ("nothing eq 'a'", "Could not find a property"),
        ("allowed eq 'a'", "needs any or all"),
        ("path/any(p: p eq 'a')", "collection"),
        ("allowed/any(a: path eq 'a')", "free variable"),
        ("allowed/any(a: a ne 'a')", "not supported in 'any'"),
        ("allowed/all(a: a eq 'a')", "not supported in 'all'"),
        ("allowed/any(a: a eq 'a' and a eq 'b')", "'and' is not supported"),
        ("allowed/all(a: a ne 'a' or a ne 'b')", "'or' is not supported"),
        ("allowed/all(a: search.in(a, 'a'))", "not search.in"),
        ("not path eq 'a'", "binds before"),
        ("generation eq 'a'", "cannot be compared"),
        ("path eq 1", "cannot be compared"),
        ("path eq 'a", "Syntax error"),
        ("path eq 'a' or", "Syntax error"),
        ("startswith(path, 'a')", "Could not find"),
        (" or ".join(["path eq 'a'"] * 1_001), "too many clauses"),
        ("(" * 200 + "path eq 'a'" + ")" * 200, "Recursion depth"),
    ],
)
def test_the_fake_refuses_what_the_vendor_refuses(odata: str, said: str) -> None:
    with pytest.raises(ODataError, match=said):
        compiled(odata, FIELDS)


def test_the_fake_has_the_vendors_rules_for_null_and_for_collections() -> None:
    empty: dict[str, Any] = {"path": None, "generation": None, "allowed": []}
    held: dict[str, Any] = {"path": "a", "generation": 3, "allowed": ["x", "y"]}
    for odata, of_empty, of_held in (
        ("path eq 'a'", False, True),
        ("path ne 'a'", True, False),
        ("path ne 'b'", True, True),
        ("path eq null", True, False),
        ("generation lt 5", False, True),
        ("not (generation lt 5)", True, False),
        ("allowed/any()", False, True),
        ("not allowed/any()", True, False),
        ("allowed/any(a: search.in(a, 'w x'))", False, True),
        ("allowed/any(a: search.in(a, 'w x', '|'))", False, False),
        ("allowed/all(a: a ne 'x')", True, False),
        ("allowed/all(a: not search.in(a, 'w,z'))", True, True),
        ("path eq 'a' or generation eq 3 and generation eq 4", False, True),
        ("true and not false", True, True),
    ):
        assert compiled(odata, FIELDS)(empty) == of_empty, odata
        assert compiled(odata, FIELDS)(held) == of_held, odata
