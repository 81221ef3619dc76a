"""A user's filter as a tree in; whether it is true of a blob, and a store filter that misses no such blob, out.

The logic is strong Kleene: what is said of a missing attribute, or of text where a number is asked for, is neither true nor false, and
only what is true passes. So `tag.level != '3'` is not true of a blob without that tag, and neither is its negation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, cast

from ragstore.access.labels import fold_keys, label, label_key
from ragstore.filters import ALWAYS, NEVER, AnyOf, Filter, OneOf, ScalarColumn, StartsWith, all_of, any_of, negate, simplify
from ragstore.models import AccessAttributes

AttributeKind = Literal["account", "container", "path", "media_type", "tag", "metadata"]
Comparison = Literal["=", "<", "<=", ">", ">="]

DECIMAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""What counts as a number, in a filter and in an attribute: no exponent, no infinity, no spaces."""

_UNSTORABLE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """What is looked at; `key` names the tag or the metadata entry and is empty for the others, which every blob has."""

    kind: AttributeKind
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equals:
    """The attribute is one of these texts (ordinal, case-sensitive)."""

    attribute: Attribute
    values: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begins:
    """The attribute starts with this text (ordinal, case-sensitive)."""

    attribute: Attribute
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exists:
    """The attribute is there, even if it is empty. Never unknown."""

    attribute: Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric:
    """The attribute is a decimal number that compares so with this one; unknown where it is no number."""

    attribute: Attribute
    comparison: Comparison
    number: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """All parts are true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """At least one part is true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """The part is false: not true, and not unknown."""

    part: Expression


Expression = Equals | Begins | Exists | Numeric | Every | Either | Negation


def evaluate(expression: Expression, attributes: AccessAttributes, *, media_type: str) -> bool:
    """Whether the expression is true of a blob with these attributes; unknown counts as false here, and only here."""
    return _truth(expression, attributes, media_type) is True


def to_filter(expression: Expression) -> tuple[Filter, bool]:
    """A filter that is true of the columns of every blob of which the expression is true, and whether it is true of no other.

    Negations are pushed down to the leaves first; there "false" includes "present", and what the algebra cannot say (numbers, prefixes of
    tags) becomes "present" in either polarity. Above the leaves no negation is left, so a wider leaf only makes the whole wider.
    """
    found, exact = _filter(expression, wanted=True)
    return simplify(found), exact


def _truth(expression: Expression, attributes: AccessAttributes, media_type: str) -> bool | None:
    match expression:
        case Every(parts=parts):
            values = [_truth(part, attributes, media_type) for part in parts]
            return False if False in values else None if None in values else True
        case Either(parts=parts):
            values = [_truth(part, attributes, media_type) for part in parts]
            return True if True in values else None if None in values else False
        case Negation(part=part):
            value = _truth(part, attributes, media_type)
            return None if value is None else not value
        case _:
            return _leaf_truth(expression, _value(expression.attribute, attributes, media_type))


def _leaf_truth(leaf: Equals | Begins | Exists | Numeric, value: str | None) -> bool | None:
    if isinstance(leaf, Exists):
        return value is not None
    if value is None:
        return None
    match leaf:
        case Equals(values=values):
            return value in values
        case Begins(prefix=prefix):
            return value.startswith(prefix)
        case Numeric(comparison=comparison, number=number):
            return _compare(Decimal(value), comparison, number) if DECIMAL.fullmatch(value) else None


def _compare(value: Decimal, comparison: Comparison, number: Decimal) -> bool:
    match comparison:
        case "=":
            return value == number
        case "<":
            return value < number
        case "<=":
            return value <= number
        case ">":
            return value > number
        case ">=":
            return value >= number


def _value(attribute: Attribute, attributes: AccessAttributes, media_type: str) -> str | None:
    match attribute.kind:
        case "tag":
            return attributes.tags.get(attribute.key)
        case "metadata":
            return fold_keys(attributes.metadata).get(attribute.key.lower())
        case "media_type":
            return media_type
        case "account" | "container" | "path" as column:
            return cast("str", getattr(attributes, column))


def _filter(expression: Expression, *, wanted: bool) -> tuple[Filter, bool]:
    """The filter for "is true" (`wanted`) or for "is false", and whether it is exact."""
    match expression:
        case Negation(part=part):
            return _filter(part, wanted=not wanted)
        case Every(parts=parts):
            return _join(parts, wanted=wanted, conjunction=wanted)
        case Either(parts=parts):
            return _join(parts, wanted=wanted, conjunction=not wanted)
        case _ if expression.attribute.kind in {"tag", "metadata"}:
            return _label_filter(expression, wanted=wanted)
        case _:
            return _column_filter(expression, cast("ScalarColumn", expression.attribute.kind), wanted=wanted)


def _join(parts: Sequence[Expression], *, wanted: bool, conjunction: bool) -> tuple[Filter, bool]:
    found = [_filter(part, wanted=wanted) for part in parts]
    joined = all_of(part for part, _ in found) if conjunction else any_of(part for part, _ in found)
    return joined, all(exact for _, exact in found)


def _label_filter(leaf: Equals | Begins | Exists | Numeric, *, wanted: bool) -> tuple[Filter, bool]:
    kind = cast("Literal['tag', 'metadata']", leaf.attribute.kind)
    present = AnyOf("label_keys", frozenset({label_key(kind, leaf.attribute.key)}))
    if isinstance(leaf, Exists):
        return (present if wanted else negate(present)), True
    if not isinstance(leaf, Equals):
        return present, False
    equal = AnyOf("labels", frozenset(label(kind, leaf.attribute.key, value) for value in leaf.values))
    return (equal if wanted else all_of((present, negate(equal)))), True


def _column_filter(leaf: Equals | Begins | Exists | Numeric, column: ScalarColumn, *, wanted: bool) -> tuple[Filter, bool]:
    found: Filter
    match leaf:
        case Exists():
            found = ALWAYS
        case Numeric():
            return ALWAYS, False
        case Equals(values=values):
            if any(map(_UNSTORABLE.search, values)):
                return ALWAYS, False
            found = OneOf(column, values) if values else NEVER
        case Begins(prefix=prefix):
            if _UNSTORABLE.search(prefix):
                return ALWAYS, False
            found = StartsWith(column, prefix) if prefix else ALWAYS
    return (found if wanted else negate(found)), True
