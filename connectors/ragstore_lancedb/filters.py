"""A filter in, the SQL of a LanceDB `where` out; nothing of a value is ever read as SQL.

Negation is pushed down to the leaves and equal columns are merged first: LanceDB's parser gives up at 46 nested parentheses, and at 24
where each stands behind an operator; and it plans a thousand ORs slower than one list. So the deepest part comes first, and only an OR
within an AND has parentheses. Columns are never null, so `NOT` has no third value to lose rows to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    positive,
)
from ragstore.patterns import Segment, segments
from ragstore_lancedb.strings import ONE_CHARACTER, storable

_KEYS: Final = frozenset({"chunk_id", "document_id"})
_DEEPEST: Final = 40
_MOST_WILDCARDS: Final = 1_000
"""Each takes a few hundred bytes of the automaton that LanceDB builds, and half a millisecond; with 20,000 it gives up."""
_SPECIAL: Final = re.compile("[^0-9A-Za-z]")


def quoted(text: str) -> str:
    """The one place where a value becomes SQL: a single-quoted literal, quotes doubled; LanceDB knows no other escape."""
    return "'" + storable(text).replace("'", "''") + "'"


def one_of(column: str, values: Iterable[str]) -> str:
    """`column IN (values)`; of no values it is false, never the syntax error `IN ()`."""
    if column not in _KEYS | SCALAR_COLUMNS:
        raise ValueError(f"{column!r} is not a column to compare")
    literals = sorted(quoted(value) for value in values)
    if len(literals) == 1:
        return f"{column} = {literals[0]}"
    return f"{column} IN ({', '.join(literals)})" if literals else "false"


def where(expression: Filter) -> str | None:
    """The condition, or None where every row satisfies it. `Never` is `false`; whoever searches does not get that far.

    Raises `ConfigError` where conjunctions and disjunctions alternate more than 40 levels deep.
    """
    normal = positive(expression)
    return None if isinstance(normal, Always) else _sql(normal, 0)


def _sql(expression: Filter, depth: int) -> str:
    if depth > _DEEPEST:
        raise ConfigError(
            f"a filter is nested more than {2 * _DEEPEST} levels deep, which LanceDB cannot parse; make the condition behind it flatter"
        )
    match expression:
        case Always():
            return "true"
        case Never():
            return "false"
        case OneOf(column, values):
            return one_of(column, values)
        case AnyOf(column, values):
            if column not in LIST_COLUMNS:
                raise ValueError(f"{column!r} is not a list column")
            return f"array_has_any({column}, [{', '.join(sorted(quoted(value) for value in values))}])"
        case StartsWith(column, prefix):
            return f"starts_with({_scalar(column)}, {quoted(prefix)})"
        case Like(column, pattern):
            return f"regexp_like({_scalar(column)}, '{_expression(segments(pattern))}')"
        case And(parts):
            return " AND ".join(_grouped(part, depth) for part in _deepest_first(parts))
        case Or(parts):
            return " OR ".join(_sql(part, depth) for part in _deepest_first(parts))
        case Not(part):
            return f"NOT ({_sql(part, depth + 1)})"


def _grouped(part: Filter, depth: int) -> str:
    return f"({_sql(part, depth + 1)})" if isinstance(part, Or) else _sql(part, depth)


def _scalar(column: str) -> str:
    if column not in SCALAR_COLUMNS:
        raise ValueError(f"{column!r} is not a scalar column")
    return column


def _expression(parts: tuple[Segment, ...]) -> str:
    """A pattern as a regular expression over stored strings, in which one character may be stored as several; it holds no quote.

    Not `LIKE`, whose `_` is one stored character.
    """
    if len(parts) + sum(part.count(None) for part in parts) > _MOST_WILDCARDS:
        raise ConfigError(f"a pattern has more than {_MOST_WILDCARDS:,} wildcards, which LanceDB cannot search for; shorten it")
    return f"\\A{f'{ONE_CHARACTER}*'.join(map(_segment, parts))}\\z"


def _segment(part: Segment) -> str:
    return "".join(ONE_CHARACTER if one is None else _SPECIAL.sub(lambda found: f"\\x{{{ord(found[0]):x}}}", storable(one)) for one in part)


def _deepest_first(parts: tuple[Filter, ...]) -> list[Filter]:
    return sorted(parts, key=_depth, reverse=True)


def _depth(expression: Filter) -> int:
    return 1 + max(map(_depth, expression.parts), default=0) if isinstance(expression, And | Or) else 0
