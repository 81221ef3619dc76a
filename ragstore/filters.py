"""The one filter algebra: boolean expressions over row columns, with one meaning (`matches`) that every store must reproduce.

Columns are never null, so the logic has two values and `Not` is exact. Whoever needs "present and not equal" says so with
`AnyOf("label_keys", ...)` beside the negation; the source of that rule is the missing-attribute semantics of Azure ABAC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from ragstore import patterns
from ragstore.models import AccessColumns

ScalarColumn = Literal["account", "container", "path", "media_type"]
ListColumn = Literal["allowed", "labels", "label_keys"]

SCALAR_COLUMNS: Final = frozenset({"account", "container", "path", "media_type"})
LIST_COLUMNS: Final = frozenset({"allowed", "labels", "label_keys"})


@dataclass(frozen=True, slots=True)
class Always:
    """True for every row."""


@dataclass(frozen=True, slots=True)
class Never:
    """True for no row: nothing is asked of the store, and nothing comes back."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A scalar column equals one of the values (ordinal, case-sensitive)."""

    column: ScalarColumn
    values: frozenset[str]

    def __post_init__(self) -> None:
        _known(self.column, SCALAR_COLUMNS)


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A scalar column starts with the prefix (ordinal, case-sensitive)."""

    column: ScalarColumn
    prefix: str

    def __post_init__(self) -> None:
        _known(self.column, SCALAR_COLUMNS)


@dataclass(frozen=True, slots=True)
class Like:
    """A scalar column matches the pattern as a whole: `patterns.like`, with `*`, `?` and the backslash of Azure's `StringLike`.

    Characters are code points (a lone surrogate is one, too), case counts, and wildcards match line ends.
    """

    column: ScalarColumn
    pattern: str

    def __post_init__(self) -> None:
        _known(self.column, SCALAR_COLUMNS)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A list column shares at least one element with the values."""

    column: ListColumn
    values: frozenset[str]

    def __post_init__(self) -> None:
        _known(self.column, LIST_COLUMNS)


@dataclass(frozen=True, slots=True)
class And:
    """Every part is true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part is true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is not true."""

    part: Filter


Filter = Always | Never | OneOf | StartsWith | Like | AnyOf | And | Or | Not

ALWAYS: Final = Always()
NEVER: Final = Never()


def _known(column: str, columns: frozenset[str]) -> None:
    if column not in columns:
        raise ValueError(f"{column!r} is not one of the columns {sorted(columns)}")


def all_of(parts: Iterable[Filter]) -> Filter:
    """The conjunction, simplified: `NEVER` wins, `ALWAYS` drops out, nested conjunctions are flattened."""
    kept: list[Filter] = []
    for part in parts:
        if isinstance(part, Never):
            return NEVER
        if isinstance(part, And):
            kept.extend(part.parts)
        elif not isinstance(part, Always):
            kept.append(part)
    if not kept:
        return ALWAYS
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def any_of(parts: Iterable[Filter]) -> Filter:
    """The disjunction, simplified: `ALWAYS` wins, `NEVER` drops out; of nothing it is `NEVER`, so an empty list widens nothing."""
    kept: list[Filter] = []
    for part in parts:
        if isinstance(part, Always):
            return ALWAYS
        if isinstance(part, Or):
            kept.extend(part.parts)
        elif not isinstance(part, Never):
            kept.append(part)
    if not kept:
        return NEVER
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def negate(part: Filter) -> Filter:
    """The negation, simplified."""
    match part:
        case Always():
            return NEVER
        case Never():
            return ALWAYS
        case Not(inner):
            return inner
    return Not(part)


def simplify(expression: Filter) -> Filter:
    """An equal filter in which `Always` and `Never` stand at the top or nowhere, and no set of values is empty.

    A `Like` that says no more than equality or a prefix becomes that: stores do those faster, and some stores only those.
    """
    match expression:
        case OneOf(_, values) | AnyOf(_, values):
            return expression if values else NEVER
        case StartsWith(_, prefix):
            return expression if prefix else ALWAYS
        case Like(column, pattern):
            return _plainer(column, pattern)
        case And(parts):
            return all_of(simplify(part) for part in parts)
        case Or(parts):
            return any_of(simplify(part) for part in parts)
        case Not(part):
            return negate(simplify(part))
    return expression


def _plainer(column: ScalarColumn, pattern: str) -> Filter:
    first, *rest = patterns.segments(pattern)
    if None in first or any(rest):
        return Like(column, pattern)
    text = "".join(map(str, first))
    if not rest:
        return OneOf(column, frozenset({text}))
    return StartsWith(column, text) if text else ALWAYS


def positive(expression: Filter) -> Filter:
    """An equal filter with `Not` around leaves only, in which the leaves of one column are merged where that says the same.

    For stores whose parsers give up at deep nesting, that plan a thousand ORs slower than one list, or that cannot negate: with every
    negation at a leaf, a leaf that a store cannot say may count as true, and the whole only becomes wider.
    """
    return simplify(_positive(simplify(expression)))


def _positive(expression: Filter) -> Filter:
    match expression:
        case And(parts):
            return _merged(all_of(_positive(part) for part in parts))
        case Or(parts):
            return _merged(any_of(_positive(part) for part in parts))
        case Not(And(parts)):
            return _merged(any_of(_positive(negate(part)) for part in parts))
        case Not(Or(parts)):
            return _merged(all_of(_positive(negate(part)) for part in parts))
        case Not(Not(part)):
            return _positive(part)
    return expression


def _merged(expression: Filter) -> Filter:
    """An OR of `x in A`, `x in B` is `x in A + B`; an AND of their negations is the negation of that."""
    match expression:
        case Or(parts):
            return any_of(_union(parts))
        case And(parts):
            negated = [part.part for part in parts if isinstance(part, Not)]
            return all_of([*(part for part in parts if not isinstance(part, Not)), *(negate(part) for part in _union(negated))])
    return expression


def _union(parts: Iterable[Filter]) -> list[Filter]:
    values: defaultdict[tuple[type[Filter], str], set[str]] = defaultdict(set)
    kept: dict[object, Filter] = {}
    for position, part in enumerate(parts):
        if isinstance(part, OneOf | AnyOf):
            values[type(part), part.column] |= part.values
            kept.setdefault((type(part), part.column), part)
        else:
            kept[position] = part
    return [
        replace(part, values=frozenset(values[type(part), part.column])) if isinstance(part, OneOf | AnyOf) else part
        for part in kept.values()
    ]


def matches(expression: Filter, row: AccessColumns) -> bool:
    """Whether a row with these columns satisfies the filter: the meaning that every translation must reproduce."""
    match expression:
        case Always():
            return True
        case Never():
            return False
        case OneOf(column, values):
            return getattr(row, column) in values
        case StartsWith(column, prefix):
            return str(getattr(row, column)).startswith(prefix)
        case Like(column, pattern):
            return patterns.like(getattr(row, column), pattern)
        case AnyOf(column, values):
            return not values.isdisjoint(getattr(row, column))
        case And(parts):
            return all(matches(part, row) for part in parts)
        case Or(parts):
            return any(matches(part, row) for part in parts)
        case Not(part):
            return not matches(part, row)
