"""A reduced condition in, a filter over the columns of `labels.azure_columns` out, and whether it says all that the condition does.

A filter is true at least of every blob of which the condition is. In negation normal form nothing is negated but leaves, and a leaf is
false only where its attribute is there: an absent attribute satisfies neither a comparison nor its negation, whatever a store makes of
nulls. As there is no negation above, a leaf that the algebra cannot say may be widened to the presence of its attribute.
"""

from __future__ import annotations

from typing import Final

from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.fields import field_of
from ragstore.access.conditions.leaves import NOWHERE, Leaf, Translated, compared, every, some
from ragstore.access.conditions.tree import (
    ActionMatches,
    And,
    Attribute,
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
    Values,
)
from ragstore.filters import ALWAYS, NEVER, Filter, Never, all_of, negate, simplify

_DEEPEST: Final = 64
"""Conjunctions and disjunctions within each other; stores have limits, and what is deeper is widened to everything."""


def to_filter(condition: Condition, *, wanted: bool = True) -> tuple[Filter, bool]:
    """A filter that is true at least of every blob of which the condition is True, and whether only of those; False where that is wanted.

    Unknown is neither. Raises `ValueError` for a condition that `reduce` has not been applied to.
    """
    found, exact = _translated(condition, wanted=wanted, depth=0)
    said = simplify(found)
    return said, exact or isinstance(said, Never)


def _translated(condition: Condition, *, wanted: bool, depth: int) -> Translated:
    match condition:
        case Known(truth):
            return (ALWAYS if truth is wanted else NEVER), True
        case Not(part):
            return _translated(part, wanted=not wanted, depth=depth)
        case And(parts) | Or(parts):
            if depth >= _DEEPEST:
                return ALWAYS, False
            found = [_translated(part, wanted=wanted, depth=depth + 1) for part in parts]
            return every(found) if isinstance(condition, And) is wanted else some(found)
        case Exists(attribute):
            return _exists(attribute, wanted=wanted)
        case Comparison():
            return _comparison(condition, wanted=wanted)
        case ActionMatches() | SubOperationMatches():
            raise _unreduced(condition)


def _exists(attribute: Attribute, *, wanted: bool) -> Translated:
    field = field_of(_of_blob(attribute))
    present = NEVER if field is None else field.present
    return (present if wanted else negate(present)), True


def _comparison(comparison: Comparison, *, wanted: bool) -> Translated:
    left, right = comparison.left, comparison.right
    if isinstance(left, Missing) or isinstance(right, Missing):
        return NOWHERE
    fields = [field_of(_of_blob(operand)) for operand in (left, right) if isinstance(operand, Attribute)]
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return NOWHERE
    if not known:
        return (ALWAYS if evaluate(comparison, Context()) is wanted else NEVER), True
    if len(known) > 1:
        return all_of(field.present for field in known), False
    swapped = isinstance(right, Attribute)
    return compared(Leaf(comparison=comparison, literals=_literals(left if swapped else right), swapped=swapped, wanted=wanted), known[0])


def _literals(operand: Operand) -> tuple[Scalar, ...]:
    match operand:
        case Constant(value):
            return (value,)
        case Values(items):
            return tuple(item.value for item in items)
    raise _unreduced(operand)


def _of_blob(attribute: Attribute) -> Attribute:
    if attribute.source != "Resource":
        raise _unreduced(attribute)
    return attribute


def _unreduced(part: Condition | Operand) -> ValueError:
    return ValueError(f"{type(part).__name__} does not depend on the blob: apply reduction.reduce before translation.to_filter")
