"""A filter in, Pinecone's metadata filter out, true at least of every row that the filter admits.

Only positive memberships are said (`$in`, `$and`, `$or`): what `$ne` and `$nin` mean where a field is missing has changed in 2024, and on
lists they compare every element. `Not` is pushed down to the leaves; a negated leaf, a prefix that is no directory, and a pattern are left
out, which admits more rows. With no `Not` above the leaves, leaving one out never takes a row away. Retrieval looks at every hit again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from ragstore.filters import Always, And, AnyOf, Filter, Like, Never, Not, OneOf, Or, StartsWith, simplify
from ragstore.patterns import segments
from ragstore_pinecone.directories import nearest_directory
from ragstore_pinecone.strings import storable

Condition = Mapping[str, Any]

_VALUES_PER_IN: Final = 10_000
"""https://docs.pinecone.io/reference/api/database-limits: of `$in`. More are split over several, joined by `$or`."""
_LARGEST: Final = 1_000_000
"""Bytes of a filter as JSON. A request takes 2 MB, and nobody says how much of it a filter may be."""
_LEAVES: Final = (10**9, 10_000, 1_000, 100, 0)
"""Where a filter is larger, leaves with more values than this are left out, fewer each time until it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What is sent instead of a filter."""

    condition: Condition | None
    """None admits every row: no filter is sent, never an empty one."""
    exact: bool
    """Whether it admits no row but those that the filter admits."""


@lru_cache(maxsize=32)  # a principal asks more than once; it takes as long as everything else that is ours in a query
def translate(expression: Filter) -> Translation:
    """The smallest superset of the filter that Pinecone can say. `Never` is the caller's to answer: raises `ValueError`."""
    plain = simplify(expression)
    if isinstance(plain, Never):
        raise ValueError("a filter that admits nothing is not sent")  # noqa: TRY004 - its type is right
    for most in _LEAVES:
        found = _said(plain, wanted=True, most=most)
        if found.condition is None or len(json.dumps(found.condition, ensure_ascii=False).encode()) <= _LARGEST:
            return found
    return Translation(condition=None, exact=False)


def _said(expression: Filter, *, wanted: bool, most: int) -> Translation:
    """What is true at least wherever the expression is true (`wanted`) or false."""
    match expression:
        case Always():
            return Translation(condition=None, exact=wanted)
        case Not(part):
            return _said(part, wanted=not wanted, most=most)
        case And(parts) | Or(parts):
            said = [_said(part, wanted=wanted, most=most) for part in parts]
            return _both(said) if isinstance(expression, And) == wanted else _either(said)
        case OneOf(column, values) | AnyOf(column, values) if wanted and 0 < len(values) <= most:
            return _either([Translation(condition=one, exact=True) for one in _members(column, values)])
        case StartsWith("path", prefix) if wanted:
            return _below(prefix)
        case Like("path", pattern) if wanted:
            first = "".join(str(one) for one in takewhile(lambda one: one is not None, segments(pattern)[0]))
            return Translation(condition=_below(first).condition, exact=False)
    return Translation(condition=None, exact=False)


def _members(column: str, values: Iterable[str]) -> list[Condition]:
    stored = sorted(map(storable, values))
    return [{column: {"$in": stored[start : start + _VALUES_PER_IN]}} for start in range(0, len(stored), _VALUES_PER_IN)]


def _below(prefix: str) -> Translation:
    directory = nearest_directory(prefix)
    if directory is None:
        return Translation(condition=None, exact=False)
    return Translation(condition={"prefixes": {"$in": [storable(directory)]}}, exact=directory == prefix)


def _both(parts: Sequence[Translation]) -> Translation:
    kept = [part.condition for part in parts if part.condition is not None]
    exact = all(part.exact for part in parts)
    if len(kept) <= 1:
        return Translation(condition=kept[0] if kept else None, exact=exact)
    return Translation(condition={"$and": kept}, exact=exact)


def _either(parts: Sequence[Translation]) -> Translation:
    exact = all(part.exact for part in parts)
    kept: list[Condition] = []
    for part in parts:
        if part.condition is None:
            return Translation(condition=None, exact=exact)
        kept.append(part.condition)
    merged = _merged(kept)
    return Translation(condition=merged[0] if len(merged) == 1 else {"$or": merged}, exact=exact)


def _merged(alternatives: Sequence[Condition]) -> list[Condition]:
    """Alternatives of which those that ask for members of one column are one list, as far as a list may go."""
    values: dict[str, set[str]] = {}
    others: list[Condition] = []
    for one in alternatives:
        ((name, asked),) = one.items()
        if name.startswith("$"):
            others.append(one)
        else:
            values.setdefault(name, set()).update(asked["$in"])
    lists: list[Condition] = []
    for column, members in values.items():
        stored = sorted(members)
        lists += [{column: {"$in": stored[start : start + _VALUES_PER_IN]}} for start in range(0, len(stored), _VALUES_PER_IN)]
    return [*lists, *others]
