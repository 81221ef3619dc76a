"""A metadata filter and a record's metadata in, whether it matches out, as Pinecone documents it; what it would refuse raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.fakes.pinecone_errors import Refused

_MOST_VALUES: Final = 10_000
_NUMBERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}


def check(expression: object) -> None:
    """Raises `Refused` for what is no filter. An empty one is refused too: nobody who filters means everything."""
    if not isinstance(expression, dict) or not expression:
        raise Refused("filter must be an object that is not empty")
    for name, value in expression.items():
        if name in {"$and", "$or"}:
            if not isinstance(value, list) or not value:
                raise Refused(f"{name} expects a list of filters that is not empty")
            for part in value:
                check(part)
        elif name.startswith("$"):
            raise Refused(f"{name} is not a valid operator here")
        elif isinstance(value, dict):
            _check_operators(name, value)
        elif not isinstance(value, str | int | float | bool):
            raise Refused(f"the value of {name} must be a string, a number or a boolean")


def matches(expression: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a record with this metadata is admitted. The filter was checked."""
    for name, value in expression.items():
        if name == "$and":
            admitted = all(matches(part, metadata) for part in value)
        elif name == "$or":
            admitted = any(matches(part, metadata) for part in value)
        else:
            operators = value if isinstance(value, dict) else {"$eq": value}
            admitted = all(_holds(operator, metadata.get(name), operand) for operator, operand in operators.items())
        if not admitted:
            return False
    return True


def _check_operators(name: str, operators: Mapping[str, Any]) -> None:
    if not operators:
        raise Refused(f"{name} has no operator")
    for operator, operand in operators.items():
        if operator in {"$in", "$nin"}:
            if not isinstance(operand, list) or not operand or not all(_same_kind(one) for one in operand):
                raise Refused(f"{operator} expects a list of strings or numbers that is not empty")
            if len(operand) > _MOST_VALUES:
                raise Refused(f"{operator} takes at most {_MOST_VALUES} values")
        elif operator in {"$eq", "$ne"}:
            if not isinstance(operand, str | int | float | bool):
                raise Refused(f"{operator} expects a string, a number or a boolean")
        elif operator in _NUMBERS:
            if isinstance(operand, bool) or not isinstance(operand, int | float):
                raise Refused(f"{operator} expects a number")
        elif operator != "$exists" or not isinstance(operand, bool):
            raise Refused(f"{operator} is not a valid operator")


def _same_kind(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _holds(operator: str, value: Any, operand: Any) -> bool:
    """A list matches `$eq` and `$in` by any of its elements, and `$ne` and `$nin` by all; a missing field matches neither."""
    if operator == "$exists":
        return (value is not None) == bool(operand)
    if value is None:
        return False
    elements = value if isinstance(value, list) else [value]
    wanted = operand if isinstance(operand, list) else [operand]
    if operator in {"$eq", "$in"}:
        return any(_equal(one, other) for one in elements for other in _candidates(one, wanted))
    if operator in {"$ne", "$nin"}:
        return not any(_equal(one, other) for one in elements for other in _candidates(one, wanted))
    return any(isinstance(one, int | float) and _NUMBERS[operator](one, operand) for one in elements)


def _candidates(element: object, wanted: list[Any]) -> list[Any]:
    if len(wanted) < 50:
        return wanted
    known = _SETS.get(id(wanted))
    if known is None or known[0] is not wanted:  # once for a filter, not for each record
        if len(_SETS) > 100:
            _SETS.clear()
        known = _SETS[id(wanted)] = (wanted, frozenset(wanted))
    return [element] if element in known[1] else []


_SETS: dict[int, tuple[list[Any], frozenset[Any]]] = {}


def _equal(one: object, other: object) -> bool:
    return isinstance(one, str) == isinstance(other, str) and isinstance(one, bool) == isinstance(other, bool) and one == other
