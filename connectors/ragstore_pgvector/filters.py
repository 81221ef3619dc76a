"""A filter in, a condition of SQL and its parameters out; no value ever becomes part of the statement.

Negation is pushed down to the leaves. Columns are never null and lists hold no null, so `NOT` has no third value to lose rows to. Sets are
never empty here, because `x <> ALL('{}')` is true of every row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ragstore.errors import ConfigError
from ragstore.filters import (
    LIST_COLUMNS,
    SCALAR_COLUMNS,
    Always,
    And,
    AnyOf,
    Filter,
    Like,
    Never,
    Not,
    OneOf,
    Or,
    StartsWith,
    simplify,
)
from ragstore.patterns import Segment, segments
from ragstore_pgvector.strings import ESCAPE, ONE_CHARACTER, key, storable

START: Final = 200
"""So many characters of a path or container are in its index, which could not hold the longest ones."""
_INDEXED: Final = frozenset({"container", "path"})
_MANY: Final = 64
"""From so many values on, a list is looked up in a hash table of them, where no index finds the rows: `&&` compares each with each."""
_MOST_PARAMETERS: Final = 60_000
"""The protocol has 65,535."""
_WILD: Final = re.compile(r"[\\%_]")
_SPECIAL: Final = re.compile("[^0-9A-Za-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What stands behind WHERE, with `%s` for each of the parameters in their order."""

    sql: str
    parameters: tuple[object, ...]


EVERY_ROW: Final = Condition(sql="TRUE", parameters=())


def where(expression: Filter, *, by_index: bool = False) -> Condition:
    """The condition; `TRUE` for every row and `FALSE` for none. Raises `ConfigError` for more values than a statement can have.

    `by_index`: the same condition in words that an index of lists understands, however many values; row by row it takes far longer then.
    """
    parameters: list[object] = []
    sql = _sql(simplify(expression), parameters, wanted=True, by_index=by_index)
    if len(parameters) > _MOST_PARAMETERS:
        raise ConfigError(f"a filter has {len(parameters):,} parts, more than PostgreSQL takes; make the condition behind it simpler")
    return Condition(sql=sql, parameters=tuple(parameters))


def _sql(expression: Filter, parameters: list[object], *, wanted: bool, by_index: bool) -> str:
    """True of the rows of which the filter is `wanted`; its parameters are appended in their order."""
    match expression:
        case Always() | Never():
            return "TRUE" if isinstance(expression, Always) == wanted else "FALSE"
        case Not(part):
            return _sql(part, parameters, wanted=not wanted, by_index=by_index)
        case And(parts) | Or(parts):
            if not parts:
                return "TRUE" if isinstance(expression, And) == wanted else "FALSE"
            joint = " AND " if isinstance(expression, And) == wanted else " OR "
            return f"({joint.join(_sql(part, parameters, wanted=wanted, by_index=by_index) for part in parts)})"
        case _:
            leaf = _leaf(expression, parameters, indexed=wanted, by_index=wanted and by_index)
            return leaf if wanted else f"NOT {leaf}"


def _leaf(expression: OneOf | StartsWith | Like | AnyOf, parameters: list[object], *, indexed: bool, by_index: bool) -> str:
    column = expression.column
    if column not in SCALAR_COLUMNS | LIST_COLUMNS:
        raise ValueError(f"{column!r} is not a column to compare")
    indexed = indexed and column in _INDEXED
    match expression:
        case OneOf(_, values):
            stored = sorted(storable(value) for value in values)
            return _equal(column, stored, parameters, indexed=indexed)
        case StartsWith(_, prefix):
            return _starts(column, storable(prefix), parameters, indexed=indexed)
        case AnyOf(_, values):
            return _shares(column, sorted(key(value) for value in values), parameters, by_index=by_index)
        case Like(_, pattern):
            return _like(column, segments(pattern), parameters, indexed=indexed)


def _equal(column: str, stored: list[str], parameters: list[object], *, indexed: bool) -> str:
    if not stored:
        return "FALSE"
    start = ""
    if indexed:
        parameters.append(sorted({value[:START] for value in stored}))
        start = f"left({column}, {START}) = ANY(%s::text[]) AND "
    parameters.append(stored)
    return f"({start}{column} = ANY(%s::text[]))"


def _starts(column: str, stored: str, parameters: list[object], *, indexed: bool) -> str:
    start = ""
    if indexed and stored:
        parameters.append(stored[:START])
        start = f"left({column}, {START}) ^@ %s::text AND "
    parameters.append(stored)
    return f"({start}{column} ^@ %s::text)"


def _shares(column: str, stored: list[str], parameters: list[object], *, by_index: bool) -> str:
    if not stored:
        return "FALSE"
    parameters.append(stored)
    if by_index or len(stored) < _MANY:
        return f"({column} && %s::text[])"
    return f"(EXISTS (SELECT 1 FROM unnest({column}) AS one(value) WHERE one.value = ANY(%s::text[])))"


def _like(column: str, parts: tuple[Segment, ...], parameters: list[object], *, indexed: bool) -> str:
    """`LIKE` counts stored characters, of which an escape has several; so a row that holds one is matched by a regular expression."""
    start = ""
    fixed = storable("".join(_fixed(parts[0])))
    if indexed and fixed:
        start = _starts(column, fixed, parameters, indexed=True) + " AND "
    parameters += [ESCAPE, _expression(parts), _pattern(parts)]
    return f"({start}CASE WHEN strpos({column}, %s::text) > 0 THEN {column} ~ %s::text ELSE {column} LIKE %s::text END)"


def _fixed(part: Segment) -> list[str]:
    found: list[str] = []
    for one in part:
        if one is None:
            break
        found.append(one)
    return found


def _pattern(parts: tuple[Segment, ...]) -> str:
    return "%".join("".join("_" if one is None else _WILD.sub(r"\\\g<0>", storable(one)) for one in part) for part in parts)


def _expression(parts: tuple[Segment, ...]) -> str:
    """A regular expression over stored strings, in which `.` would match line ends but not a whole escape."""
    return f"^(?:{f'{ONE_CHARACTER}*'.join(map(_segment, parts))})$"


def _segment(part: Segment) -> str:
    return "".join(ONE_CHARACTER if one is None else _SPECIAL.sub(_code, storable(one)) for one in part)


def _code(found: re.Match[str]) -> str:
    return f"\\U{ord(found[0]):08x}"
