"""Two values and an operator in, true, false or unknown out.

What the operators mean is in https://learn.microsoft.com/azure/role-based-access-control/conditions-format; where it is silent, a value of
the wrong type makes the comparison unknown, which never grants, negated or not.
"""

from __future__ import annotations

import operator as python
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Final, Literal

from ragstore import patterns
from ragstore.access.conditions.tree import Scalar, Truth

Family = Literal["String", "Numeric", "DateTime", "Bool", "Guid"]
Relation = Literal["Equals", "StartsWith", "Like", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator taken apart: `StringNotLikeIgnoreCase` is the negation of `Like` on strings without case."""

    name: str
    family: Family
    relation: Relation
    negated: bool = False
    ignore_case: bool = False

    @property
    def noun(self) -> str:
        """What its values are, for messages."""
        return _NOUNS[self.family]

    @property
    def takes_quantifier(self) -> bool:
        """Documented for strings, numbers and GUIDs only."""
        return self.family in {"String", "Numeric", "Guid"}


_NOUNS: Final[Mapping[Family, str]] = {
    "String": "text",
    "Numeric": "whole number of 64 bits",
    "DateTime": "instant (yyyy-mm-ddThh:mm:ss.fffffffZ)",
    "Bool": "boolean",
    "Guid": "GUID",
}
_SPELLED: Final[Mapping[Family, tuple[Relation, ...]]] = {
    "String": ("Equals", "StartsWith", "Like"),
    "Numeric": ("Equals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
    "DateTime": ("Equals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
    "Bool": ("Equals",),
    "Guid": ("Equals",),
}


def _operators() -> Iterable[Operator]:
    for family, relations in _SPELLED.items():
        for relation in relations:
            for negated in (False, True) if family == "String" or relation == "Equals" else (False,):
                for ignore_case in (False, True) if family == "String" else (False,):
                    name = f"{family}{'Not' if negated else ''}{relation}{'IgnoreCase' if ignore_case else ''}"
                    yield Operator(name=name, family=family, relation=relation, negated=negated, ignore_case=ignore_case)


OPERATORS: Final[Mapping[str, Operator]] = MappingProxyType({operator.name: operator for operator in _operators()})
"""Every operator under its documented name."""

_RELATIONS: Final[Mapping[Relation, Callable[[str | int | bool, str | int | bool], bool]]] = {
    "Equals": python.eq,
    "LessThan": python.lt,
    "LessThanEquals": python.le,
    "GreaterThan": python.gt,
    "GreaterThanEquals": python.ge,
    "StartsWith": lambda left, right: str(left).startswith(str(right)),
    "Like": lambda left, right: patterns.like(str(left), str(right)),
}

GUID: Final = re.compile("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_INTEGER: Final = re.compile("-?0*[0-9]{1,19}")
_INSTANT: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{0,7}))?Z")
_TICKS_PER_SECOND: Final = 10_000_000
_UNIX_EPOCH: Final = 621_355_968_000_000_000
"""1970-01-01 in ticks."""


def compare(operator: str, left: Scalar, right: Scalar) -> Truth:
    """`left operator right` for two values that are there; None where either is not of the operator's type.

    The right one is the pattern or the prefix. Raises `KeyError` for an operator that is not in `OPERATORS`.
    """
    meaning = OPERATORS[operator]
    one, other = typed(meaning, left), typed(meaning, right)
    if one is None or other is None:
        return None
    return _RELATIONS[meaning.relation](one, other) is not meaning.negated


def fold(text: str) -> str:
    """What the operators that ignore case compare: each character by its simple, one to one, upper case, as .NET's OrdinalIgnoreCase.

    Not `casefold`: "ß" is not "ss", and the Kelvin sign is not "k". "ı" and "ſ" stay as they are, as in .NET, so that no character outside
    ASCII is ever folded into it.
    """
    return text.upper() if text.isascii() else text.translate(_UPPER)


class _SimpleUpperCase(dict[int, str]):
    """Code point to the character's simple upper case, found out when first asked for."""

    def __missing__(self, key: int) -> str:
        character = chr(key)
        # Where the full upper case is several characters, the simple one is the title case ("ᾳ" gives "ᾼ") or there is none ("ß").
        forms = (form for form in (character.upper(), character.title()) if len(form) == 1)
        found = next(forms, character)
        self[key] = found if found.isascii() is character.isascii() else character
        return self[key]


_UPPER: Final = _SimpleUpperCase()


def ticks(text: str) -> int | None:
    """`yyyy-mm-ddThh:mm:ss.fffffffZ`, with 0 to 7 digits after the point, in 100 ns since the year 1; None where it is no instant."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004 - the clock
        return None
    try:
        days = date(year, month, day).toordinal() - 1
    except ValueError:
        return None
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * _TICKS_PER_SECOND + int((found[7] or "").ljust(7, "0"))


def ticks_at(unix_ns: int) -> int:
    """Nanoseconds since 1970, as `time.time_ns()` gives them, in ticks."""
    return _UNIX_EPOCH + unix_ns // 100


def instant(moment: int) -> str:
    """The inverse of `ticks`, with all seven digits."""
    seconds, fraction = divmod(moment, _TICKS_PER_SECOND)
    days, clock = divmod(seconds, 86_400)
    hour, rest = divmod(clock, 3_600)
    return f"{date.fromordinal(days + 1).isoformat()}T{hour:02}:{rest // 60:02}:{rest % 60:02}.{fraction:07}Z"


def conjunction(truths: Iterable[Truth]) -> Truth:
    """Kleene's AND: false where any is, else unknown where any is."""
    found: Truth = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            found = None
    return found


def disjunction(truths: Iterable[Truth]) -> Truth:
    """Kleene's OR: true where any is, else unknown where any is."""
    found: Truth = False
    for truth in truths:
        if truth is True:
            return True
        if truth is None:
            found = None
    return found


def negation(truth: Truth) -> Truth:
    """Kleene's NOT: unknown stays unknown."""
    return None if truth is None else not truth


def typed(operator: Operator, value: Scalar) -> str | int | bool | None:
    """The value as the operator compares it; None where it is of another type, which makes the comparison unknown."""
    match operator.family:
        case "Numeric":
            return integer(value)
        case "Bool":
            return value if isinstance(value, bool) else _boolean(value)
        case "DateTime":
            return ticks(value) if isinstance(value, str) else None
        case "Guid":
            return value.lower() if isinstance(value, str) and GUID.fullmatch(value) else None
        case "String":
            if not isinstance(value, str):
                return None
            return fold(value) if operator.ignore_case else value


def integer(value: Scalar) -> int | None:
    """A whole number of 64 bits, or its decimal text; None for anything else. `True` is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            return None
        value = int(value)
    return value if -(2**63) <= value < 2**63 else None


def _boolean(value: Scalar) -> bool | None:
    return {"TRUE": True, "FALSE": False}.get(fold(value)) if isinstance(value, str) else None
