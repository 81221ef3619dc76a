"""A condition and who asks for what in; what is left to ask of each blob out, and until when that holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ragstore.access.conditions.evaluation import evaluate, values_of
from ragstore.access.conditions.tree import (
    TIME,
    ActionMatches,
    And,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Context,
    Exists,
    Known,
    Not,
    Operand,
    Or,
    SourceName,
    SubOperationMatches,
    Values,
)
from ragstore.access.conditions.values import OPERATORS, fold, instant, negation, ticks

_TIME: Final = fold(TIME)
_LEFT: Final = frozenset[SourceName]({"Resource"})
"""Sources of the attributes that `reduce` leaves where they are."""
_LEFT_BY_PREPARE: Final = _LEFT | frozenset[SourceName]({"Principal", "Environment"})


def prepare(condition: Condition, context: Context) -> Condition:
    """What `reduce` would do by the action, the sub-operations and the request alone, which are the same for every principal.

    To reduce the rest for a principal gives what reducing the whole would give, in less time.
    """
    return _reduced(condition, context, _LEFT_BY_PREPARE)


def reduce(condition: Condition, context: Context, *, now: int | None) -> Condition:
    """The condition with everything folded that does not depend on the resource: its truth for a blob stays the same.

    Action, sub-operations, request, principal and environment are those of the context, whose resource and tags are not looked at. `now`,
    in ticks, stands for the environment's `UtcNow`; None leaves it to the environment.

    - What is known becomes `Known`, unknown included: within an OR it may still be outvoted.
    - An attribute beside one of the resource becomes its `Constant` or its `Values`; the comparison is unknown where it is missing, holds
      no value, or several without a quantifier.
    - A conjunction with a false part is false, a disjunction with a true one is true, and parts that decide nothing are gone.
    """
    if now is not None:
        timeless = {name: value for name, value in context.environment.items() if fold(name) != _TIME}
        context = replace(context, environment={**timeless, TIME: instant(now)})
    return _reduced(condition, context, _LEFT)


def next_change(condition: Condition, now: int) -> int | None:
    """The first instant after `now`, in ticks, at which `reduce` may give another result only because time has passed; None for never.

    A comparison with `UtcNow` may change at the instant that it names, and a tick later. Where the other side is no literal, or the
    operator not one of dates, that is the next tick.
    """
    return min((moment for moment in _changes(condition, now) if moment > now), default=None)


def _reduced(condition: Condition, context: Context, left: frozenset[SourceName]) -> Condition:
    match condition:
        case And(parts):
            return _joined(And, (_reduced(part, context, left) for part in parts), decisive=False)
        case Or(parts):
            return _joined(Or, (_reduced(part, context, left) for part in parts), decisive=True)
        case Not(part):
            inner = _reduced(part, context, left)
            match inner:
                case Known(truth):
                    return Known(negation(truth))
                case Not(again):
                    return again
            return Not(inner)
        case Comparison():
            return _compared(condition, context, left)
        case Exists(attribute):
            return condition if attribute.source in left else Known(evaluate(condition, context))
        case ActionMatches() | SubOperationMatches():
            return Known(evaluate(condition, context))
        case Known():
            return condition


def _joined(kind: type[And | Or], parts: Iterable[Condition], *, decisive: bool) -> Condition:
    """Kleene's AND (`decisive` is false) or OR (it is true); the truth that decides nothing drops out, unknown stays, once."""
    kept: list[Condition] = []
    unknown = False
    for part in parts:
        if isinstance(part, Known):
            if part.truth is decisive:
                return part
            unknown = unknown or part.truth is None
        elif isinstance(part, kind):
            # It may hold an unknown of its own, which must not stand there twice.
            unknown = unknown or Known(None) in part.parts
            kept.extend(inner for inner in part.parts if inner != Known(None))
        else:
            kept.append(part)
    if unknown:
        kept.append(Known(None))
    if not kept:
        return Known(not decisive)
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def _compared(comparison: Comparison, context: Context, left: frozenset[SourceName]) -> Condition:
    sides = (comparison.left, comparison.right)
    if not any(_stays(side, left) for side in sides):
        return Known(evaluate(comparison, context))
    folded = [side if _stays(side, left) else _folded(side, context) for side in sides]
    one, other = folded
    if one is None or other is None:
        return Known(None)
    if comparison.quantifier is None and (_is_several(one) or _is_several(other)):
        return Known(None)
    return comparison if one is sides[0] and other is sides[1] else replace(comparison, left=one, right=other)


def _folded(operand: Operand, context: Context) -> Operand | None:
    """The operand with its values in place of an attribute; None where it has none."""
    if isinstance(operand, Constant):
        return operand
    found = values_of(operand, context)
    if not found:
        return None
    constants = tuple(map(Constant, found))
    return constants[0] if len(constants) == 1 else Values(constants)


def _stays(operand: Operand, left: frozenset[SourceName]) -> bool:
    return isinstance(operand, Attribute) and operand.source in left


def _is_several(operand: Operand) -> bool:
    return isinstance(operand, Values) and len(operand.items) > 1


def _changes(condition: Condition, now: int) -> Iterator[int]:
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _changes(part, now)
        case Not(part):
            yield from _changes(part, now)
        case Comparison(left=left, right=right):
            for one, other in ((left, right), (right, left)):
                if _is_time(one):
                    yield from _moments(condition, other, now)


def _moments(comparison: Comparison, other: Operand, now: int) -> Iterator[int]:
    match other:
        case Constant():
            constants: tuple[Constant, ...] = (other,)
        case Values(items):
            constants = items
        case _:
            yield now + 1
            return
    if OPERATORS[comparison.operator].family != "DateTime":
        yield now + 1
        return
    for constant in constants:
        moment = ticks(constant.value) if isinstance(constant.value, str) else None
        if moment is not None:
            yield from (moment, moment + 1)


def _is_time(operand: Operand) -> bool:
    return isinstance(operand, Attribute) and operand.source == "Environment" and fold(operand.name) == _TIME
