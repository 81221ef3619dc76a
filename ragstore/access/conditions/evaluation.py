"""A condition and a context in, true, false or unknown out: Kleene's logic, in which only what is known to be true grants.

Where Azure's documentation does not say what a missing attribute does, unknown is the safe answer: whatever is true with some comparisons
unknown is true whichever way they would turn out, so that nothing is granted here that Azure would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from ragstore import patterns
from ragstore.access.conditions.tree import (
    TAGS,
    ActionMatches,
    And,
    Attribute,
    AttributeValue,
    Comparison,
    Condition,
    Constant,
    Context,
    Exists,
    Known,
    Missing,
    Not,
    Operand,
    Or,
    Scalar,
    SubOperationMatches,
    Truth,
    Values,
)
from ragstore.access.conditions.values import compare, conjunction, disjunction, fold, negation

_SUBOPERATION: Final = fold("subOperation")
_TAGS: Final = fold(TAGS)


_CONTRADICTION: Final = ()
"""The value of an attribute that is there under several names: a list of no values. See `value_of`."""


class Caseless(dict[str, AttributeValue]):
    """Attributes that many conditions look up, with an index: without one, each look-up takes time by their number."""

    def __init__(self, attributes: Mapping[str, AttributeValue]) -> None:
        super().__init__(attributes)
        self.folded: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            folded = fold(name)
            self.folded[folded] = _CONTRADICTION if folded in self.folded else value


def evaluate(condition: Condition, context: Context) -> Truth:
    """The truth of the condition; None is unknown."""
    match condition:
        case And():
            return conjunction(evaluate(part, context) for part in condition.parts)
        case Or():
            return disjunction(evaluate(part, context) for part in condition.parts)
        case Not():
            return negation(evaluate(condition.part, context))
        case Comparison():
            return compared(condition, values_of(condition.left, context), values_of(condition.right, context))
        case Exists():
            return value_of(condition.attribute, context) is not None
        case ActionMatches():
            return action_matches(condition, context.action)
        case SubOperationMatches():
            return suboperation_matches(condition, context.suboperations)
        case Known():
            return condition.truth


def compared(comparison: Comparison, left: tuple[Scalar, ...] | None, right: tuple[Scalar, ...] | None) -> Truth:
    """The truth of a comparison whose sides have these values; None for a side stands for one that is missing.

    Unknown where a side is missing or holds no value, where any pair of values is of the wrong type, and where an operator without a
    quantifier meets a list of several.
    """
    if not left or not right:
        return None
    if comparison.quantifier is None:
        return compare(comparison.operator, left[0], right[0]) if len(left) == len(right) == 1 else None
    over_left, over_right = _QUANTIFIERS[comparison.quantifier]
    rows = [[compare(comparison.operator, one, other) for other in right] for one in left]
    if any(truth is None for row in rows for truth in row):
        return None
    return over_left(over_right(row) for row in rows)


_QUANTIFIERS: Final[Mapping[str, tuple[Callable[[Iterable[Truth]], Truth], Callable[[Iterable[Truth]], Truth]]]] = {
    "ForAnyOfAnyValues": (disjunction, disjunction),
    "ForAllOfAnyValues": (conjunction, disjunction),
    "ForAnyOfAllValues": (disjunction, conjunction),
    "ForAllOfAllValues": (conjunction, conjunction),
}


def values_of(operand: Operand, context: Context) -> tuple[Scalar, ...] | None:
    """All values of one side of a comparison; None where it is a missing attribute."""
    match operand:
        case Attribute():
            found = value_of(operand, context)
            return found if found is None or isinstance(found, tuple) else (found,)
        case Constant():
            return (operand.value,)
        case Values():
            return tuple(item.value for item in operand.items)
        case Missing():
            return None


def value_of(attribute: Attribute, context: Context) -> AttributeValue | None:
    """What the context holds of this attribute; None where it is missing.

    Two entries whose names differ only in case contradict each other: the attribute is there, as a list of no values, so that every
    comparison is unknown and `NOT Exists` does not grant.
    """
    match attribute.source:
        case "Resource":
            return _tagged(attribute, context.tags, context.resource)
        case "Request":
            if _name(attribute) == _SUBOPERATION:
                return _suboperations(attribute, context)
            return _tagged(attribute, context.request_tags, context.request)
        case "Principal":
            return _looked_up(attribute, context.principal)
        case "Environment":
            return _looked_up(attribute, context.environment)


def action_matches(condition: ActionMatches, action: str) -> bool:
    """Whether the action matches the pattern, without case; `*` crosses `/`."""
    return patterns.matches_action(fold(action), fold(condition.pattern))


def suboperation_matches(condition: SubOperationMatches, suboperations: Iterable[str]) -> bool:
    """Whether one of the sub-operations matches the pattern, without case."""
    pattern = fold(condition.pattern)
    return any(patterns.matches_action(fold(suboperation), pattern) for suboperation in suboperations)


def _tagged(attribute: Attribute, tags: Mapping[str, str], others: Mapping[str, AttributeValue]) -> AttributeValue | None:
    if fold(attribute.path) != _TAGS:
        return _looked_up(attribute, others)
    if attribute.keys:
        return tuple(sorted(tags)) or None
    return None if attribute.key is None else tags.get(attribute.key)


def _looked_up(attribute: Attribute, mapping: Mapping[str, AttributeValue]) -> AttributeValue | None:
    wanted = _name(attribute)
    if isinstance(mapping, Caseless):
        return mapping.folded.get(wanted)
    found = [value for name, value in mapping.items() if _folded(name) == wanted]
    if len(found) > 1:
        return _CONTRADICTION
    return found[0] if found else None


def _suboperations(attribute: Attribute, context: Context) -> AttributeValue | None:
    """Of the request, in the form of the preview of 2021, whose conditions still stand in tenants and must still bind."""
    given = _looked_up(attribute, context.request)
    named = () if given is None else given if isinstance(given, tuple) else (given,)
    return (*sorted(context.suboperations), *named) or None


def _name(attribute: Attribute) -> str:
    """How the attribute is looked up: without `<$key_case_sensitive$>`, and without case."""
    if attribute.keys or attribute.key is None:
        return _folded(attribute.name)
    return _folded(f"{attribute.path}:{attribute.key}")


@lru_cache(maxsize=1024)
def _folded(name: str) -> str:
    return fold(name)
