"""The language of conditions: printed and parsed again, parsed by a second grammar, and evaluated with more and less known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ragstore import patterns
from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.printing import to_text
from ragstore.access.conditions.syntax import ConditionError, parse
from ragstore.access.conditions.tracing import trace
from ragstore.access.conditions.tree import And, AttributeValue, Comparison, Condition, Constant, Context, Exists, Not, Or
from ragstore.access.conditions.values import fold, instant, ticks
from ragstore.testing.conditions import conditions, contexts
from ragstore.testing.strategies import hostile_strings
from tests.support import condition_grammar

_PIECES = (
    *("AND", "OR", "NOT", "&&", "||", "!", "(", ")", "{", "}", ",", ":", "'", "''", "\\", "\\'", "*", " ", "\u00a0", "\n", "-", "1", "1.5"),
    *("Exists", "ActionMatches", "StringEquals", "ForAnyOfAnyValues:", "BoolEquals", "true", "FALSE", "@", "[", "]", "@Resource[a]"),
    *("<$key_case_sensitive$>", "&$keys$&", "<$>", "&&", '"', "’", "é", "\u017f", "\u212a", "aaaaaaaa-0000-0000-0000-000000000001"),
)


@given(conditions())
def test_a_condition_that_is_printed_and_parsed_is_the_same(condition: Condition) -> None:
    assert parse(to_text(condition)) == condition


@given(conditions())
def test_two_parsers_agree_on_conditions(condition: Condition) -> None:
    text = to_text(condition)
    assert condition_grammar.parse(text) == parse(text)


@given(conditions(max_leaves=3), st.data())
def test_two_parsers_agree_on_damaged_conditions(condition: Condition, data: st.DataObject) -> None:
    text = to_text(condition)
    for _ in range(data.draw(st.integers(1, 2))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 3)))
        text = text[:start] + data.draw(st.sampled_from(("", *_PIECES))) + text[end:]
    assert _ours(text) == _theirs(text)


@given(st.one_of(st.text(), hostile_strings(), st.lists(st.sampled_from(_PIECES)).map(" ".join)))
def test_whatever_the_text_it_is_a_condition_or_an_error_with_a_place(text: str) -> None:
    assert 0 <= _place_of_error(text) <= len(text)


@given(conditions(), contexts(), st.data())
def test_what_is_decided_stays_so_when_more_becomes_known(condition: Condition, context: Context, data: st.DataObject) -> None:
    """Whatever the missing values are: so nothing is granted here that a service that knows them would refuse."""
    condition = _without_exists(condition)
    poorer = replace(
        context,
        resource=_some(context.resource, data),
        tags=context.tags if data.draw(st.booleans()) else {},  # some tags fewer would be another list of keys, not less known
        request_tags=context.request_tags if data.draw(st.booleans()) else {},
        principal=_some(context.principal, data),
        environment=_some(context.environment, data),
    )
    known = evaluate(condition, poorer)
    if known is not None:
        assert evaluate(condition, context) is known


@given(conditions(), contexts())
def test_a_trace_comes_to_what_evaluation_does(condition: Condition, context: Context) -> None:
    assert trace(condition, context).truth is evaluate(condition, context)


@given(st.text("ab*?\\/\n", max_size=8), st.text("ab*?\\/\n", max_size=8))
def test_patterns_match_as_regular_expressions_do(text: str, pattern: str) -> None:
    expected = re.sub(r"\\([*?\\])|([*?])|(.)", _as_expression, pattern, flags=re.DOTALL)
    assert patterns.like(text, pattern) is (re.fullmatch(expected, text, re.DOTALL) is not None)


@given(st.text())
def test_folding_keeps_the_length_and_folds_once(text: str) -> None:
    assert len(fold(text)) == len(text)
    assert fold(fold(text)) == fold(text)


@given(st.integers(0, 3_155_378_975_999_999_999))
def test_an_instant_that_is_printed_is_the_same_tick(moment: int) -> None:
    assert ticks(instant(moment)) == moment


def _as_expression(match: re.Match[str]) -> str:
    if match[2]:
        return ".*" if match[2] == "*" else "."
    return re.escape(match[1] or match[3])


def _place_of_error(text: str) -> int:
    try:
        parse(text)
    except ConditionError as error:
        return error.position
    return 0


def _ours(text: str) -> Condition | None:
    try:
        return parse(text)
    except ConditionError:
        return None


def _theirs(text: str) -> Condition | None:
    try:
        return condition_grammar.parse(text)
    except condition_grammar.RefusedError:
        return None


def _some(mapping: Mapping[str, AttributeValue], data: st.DataObject) -> dict[str, AttributeValue]:
    """Without some names; two that differ in case go together, because one of them alone says something else."""
    gone = data.draw(st.sets(st.sampled_from(sorted({fold(name) for name in mapping}) or [""])))
    return {name: value for name, value in mapping.items() if fold(name) not in gone}


def _without_exists(condition: Condition) -> Condition:
    """`Exists` asks whether something is known, and so may change."""
    match condition:
        case And():
            return And(tuple(map(_without_exists, condition.parts)))
        case Or():
            return Or(tuple(map(_without_exists, condition.parts)))
        case Not():
            return Not(_without_exists(condition.part))
        case Exists():
            return Comparison(left=condition.attribute, operator="StringEquals", right=Constant("a"))
        case _:
            return condition
