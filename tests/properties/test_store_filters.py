"""Filters and strings on their way into LanceDB keep their meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, NEVER, And, AnyOf, Filter, Like, Not, OneOf, Or, StartsWith, matches, positive, simplify
from ragstore.models import AccessColumns
from ragstore.testing.rows import access
from ragstore.testing.strategies import access_columns, filters, hostile_strings, patterns
from ragstore_lancedb.filters import one_of, quoted, where
from ragstore_lancedb.strings import original, storable

strings = st.one_of(hostile_strings(), st.text(st.characters()), st.text(st.sampled_from("a0d8\ud800\udfff\U0010ffff"), max_size=8))


@given(strings)
def test_a_stored_string_comes_back(text: str) -> None:
    assert original(storable(text)) == text
    storable(text).encode()


@given(strings, strings)
def test_stored_strings_are_equal_where_the_originals_are(one: str, other: str) -> None:
    assert (storable(one) == storable(other)) == (one == other)


@given(strings, strings)
def test_stored_strings_start_with_each_other_where_the_originals_do(text: str, prefix: str) -> None:
    assert storable(text).startswith(storable(prefix)) == text.startswith(prefix)
    assert storable(text + prefix).startswith(storable(text))


@given(strings)
def test_a_quoted_value_ends_where_it_should(text: str) -> None:
    literal = quoted(text)
    assert literal[0] == literal[-1] == "'"
    inside = literal[1:-1]
    assert "'" not in inside.replace("''", "")
    assert inside.replace("''", "'") == storable(text)


@given(filters(), st.lists(access_columns(), min_size=1, max_size=5))
def test_pushing_negation_down_keeps_the_meaning(expression: Filter, rows: list[AccessColumns]) -> None:
    pushed = positive(expression)
    assert [matches(pushed, one) for one in rows] == [matches(expression, one) for one in rows]


@given(filters())
def test_negation_stands_at_leaves_only(expression: Filter) -> None:
    def check(part: Filter) -> None:
        match part:
            case And(parts) | Or(parts):
                for inner in parts:
                    check(inner)
            case Not(inner):
                assert isinstance(inner, OneOf | AnyOf | StartsWith | Like)

    pushed = positive(expression)
    check(pushed)


def test_always_is_no_condition_and_never_is_false() -> None:
    assert where(ALWAYS) is None
    assert where(NEVER) == "false"
    assert where(Not(And(()))) == "false"
    assert where(Not(Or((OneOf("path", frozenset()), NEVER)))) is None


def test_alternatives_of_one_column_become_one_list() -> None:
    many: list[Filter] = [OneOf("path", frozenset({f"{number:04}"})) for number in range(2_000)]
    many += [AnyOf("allowed", frozenset({f"{number}"})) for number in range(2_000)]
    condition = where(Or(tuple(many)))
    assert condition is not None
    assert condition.count("OR") == 1
    negated = where(Not(Or(tuple(many))))
    assert negated is not None
    assert negated.count("NOT") == 2


def test_an_empty_list_is_never_sent() -> None:
    assert one_of("document_id", []) == "false"
    assert where(OneOf("path", frozenset())) == "false"
    assert where(AnyOf("allowed", frozenset())) == "false"


def test_only_known_columns_are_compared() -> None:
    with pytest.raises(ValueError, match="column"):
        one_of("path = path OR path", ["x"])


def test_alternating_conditions_beyond_the_parsers_depth_are_refused() -> None:
    deep: Filter = OneOf("path", frozenset({"x"}))
    for number in range(100):
        leaf = StartsWith("path", f"{number}")
        deep = And((deep, leaf)) if number % 2 else Or((deep, leaf))
    with pytest.raises(ConfigError, match="nested"):
        where(deep)


@given(st.lists(access_columns(), min_size=1, max_size=5), st.data())
def test_a_pattern_that_says_no_more_is_an_equality_or_a_prefix(rows: list[AccessColumns], data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    plainer = simplify(Like("path", pattern))
    assert [matches(plainer, one) for one in rows] == [matches(Like("path", pattern), one) for one in rows]
    assert simplify(Like("path", "a\\*b")) == OneOf("path", frozenset({"a*b"}))
    assert simplify(Like("path", "a/**")) == StartsWith("path", "a/")
    assert simplify(Like("path", "**")) == ALWAYS


def test_a_pattern_with_too_many_wildcards_is_refused() -> None:
    with pytest.raises(ConfigError, match="wildcards"):
        where(Like("path", "?" * 2_000))


def test_a_deep_chain_of_negations_is_no_depth() -> None:
    chain: Filter = OneOf("path", frozenset({"a.md"}))
    for _ in range(101):
        chain = Not(chain)
    assert where(chain) == "NOT (path = 'a.md')"
    assert not matches(chain, access("a.md"))
