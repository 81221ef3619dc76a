"""A filter in, the OData of a `$filter` out: true at least of every row that satisfies it, and whether of no other.

AI Search compares strings for equality only, so a prefix is asked of the directories that a row's `prefixes` name: exact where it ends
with `/`, else true of all that lies in the same directory. What cannot be said, negated or not, is true of every row. Columns are never
null, so the vendor's third value (`ne` is true of null) never comes up; negation stands at leaves only.
Rules: https://learn.microsoft.com/azure/search/search-query-odata-filter and `search-query-odata-collection-operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

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
from ragstore.models import AccessColumns
from ragstore.patterns import segments
from ragstore_azure.search.strings import comparable

_DELIMITERS: Final = "|,;~^`!#$%&+=<>{}[]§¶¦¬†‡•"
"""Of `search.in`; each value is listed behind one that it does not hold."""
_MOST_EQUALITIES: Final = 100
"""Comparisons in one leaf, of values that hold every delimiter; more risk the size limit of a filter, so the leaf goes unsaid."""
_MOST_CLAUSES: Final = 400
"""The vendor warns of "hundreds" and names no number; `search.in` is one, whatever it lists."""
_LARGEST: Final = 12_000_000
"""Bytes; a request may have 16 MB, vector and all, and JSON escapes what is not ASCII."""
_DEPTHS: Final = (40, 12, 6, 3, 1)
"""A part below the depth goes unsaid; less depth is tried where a filter would be too large."""
MOST_DIRECTORIES: Final = 64
"""Levels of directories that `prefixes` names of one column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A `$filter`."""

    odata: str | None
    """None where every row is admitted."""
    exact: bool
    """No row is admitted that does not satisfy the filter."""


def where(expression: Filter) -> Condition:
    """The condition. Of `Never` it is `false`; whoever searches does not get that far."""
    normal = positive(expression)
    if isinstance(normal, Always):
        return Condition(odata=None, exact=True)
    for depth in _DEPTHS:
        said = _say(normal, depth)
        if said.clauses <= _MOST_CLAUSES and (said.odata is None or _size(said.odata) <= _LARGEST):
            return Condition(odata=said.odata, exact=said.exact)
    return Condition(odata=None, exact=False)


def one_of(field: str, values: Iterable[str]) -> str:
    """`field` equals one of the values, which are storable already; of no values it is `false`."""
    return " or ".join(_equalities(field, values)) or "false"


def directories(access: AccessColumns) -> list[str]:
    """What the field `prefixes` holds: the directories that each scalar column lies in, the topmost first, each with its column."""
    found = []
    for column in sorted(SCALAR_COLUMNS):
        text = getattr(access, column)
        at = -1
        for _ in range(MOST_DIRECTORIES):
            at = text.find("/", at + 1)
            if at < 0:
                break
            found.append(_directory(column, text[: at + 1]))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    odata: str | None
    exact: bool = True
    clauses: int = 1


_UNSAID: Final = _Said(odata=None, exact=False, clauses=0)


def _say(expression: Filter, depth: int) -> _Said:
    match expression:
        case Never():
            return _Said(odata="false")
        case OneOf() | AnyOf() | StartsWith() | Like():
            return _leaf(expression)
        case Not(OneOf() | AnyOf() | StartsWith() | Like() as part):
            said = _leaf(part)
            # More than what the part admits, negated, is less than what its negation admits.
            return _Said(odata=f"not ({said.odata})", clauses=said.clauses) if said.exact and said.odata is not None else _UNSAID
        case And(parts) if depth > 0:
            said_parts = [_say(part, depth - 1) for part in parts]
            kept = [part for part in said_parts if part.odata is not None]
            return _joined(" and ", kept, exact=all(part.exact for part in said_parts)) if kept else _UNSAID
        case Or(parts) if depth > 0:
            said_parts = [_say(part, depth - 1) for part in parts]
            if any(part.odata is None for part in said_parts):
                return _UNSAID
            return _joined(" or ", said_parts, exact=all(part.exact for part in said_parts))
    return _UNSAID


def _joined(word: str, parts: list[_Said], *, exact: bool) -> _Said:
    odata = word.join(f"({part.odata})" for part in parts) if len(parts) > 1 else parts[0].odata
    return _Said(odata=odata, exact=exact, clauses=sum(part.clauses for part in parts))


def _leaf(leaf: OneOf | AnyOf | StartsWith | Like) -> _Said:
    match leaf:
        case OneOf(column, values):
            return _any(_known(column, SCALAR_COLUMNS), values)
        case AnyOf(column, values):
            said = _any("e", values)
            return said if said.odata is None else _Said(odata=f"{_known(column, LIST_COLUMNS)}/any(e: {said.odata})", clauses=said.clauses)
        case StartsWith(column, prefix):
            return _below(column, prefix)
        case Like(column, pattern):
            first = segments(pattern)[0]
            fixed = first[: first.index(None)] if None in first else first
            said = _below(column, "".join(map(str, fixed)))
            return _Said(odata=said.odata, exact=False, clauses=said.clauses)


def _any(variable: str, values: Iterable[str]) -> _Said:
    clauses = list(_equalities(variable, map(comparable, values)))
    if sum(clause.startswith(f"{variable} eq ") for clause in clauses) > _MOST_EQUALITIES:
        return _UNSAID
    return _Said(odata=" or ".join(clauses) or "false", clauses=max(1, len(clauses)))


def _below(column: str, prefix: str) -> _Said:
    """What starts with the prefix lies in its directory, which is all of it where the prefix ends there."""
    parts = prefix.split("/")[:-1]
    if not parts:
        return _UNSAID
    directory = "".join(f"{part}/" for part in parts[:MOST_DIRECTORIES])
    wanted = quoted(_directory(_known(column, SCALAR_COLUMNS), directory))
    return _Said(odata=f"prefixes/any(e: e eq {wanted})", exact=directory == prefix)


def _directory(column: str, path: str) -> str:
    return comparable(f"{column}:{path}")


def _equalities(variable: str, values: Iterable[str]) -> Iterator[str]:
    """Alternatives that together say: the variable is one of these. Of blank values nobody knows what `search.in` makes."""
    left = sorted(set(values))
    for value in left:
        if value != value.strip() or not value:
            yield f"{variable} eq {quoted(value)}"
    left = [value for value in left if value and value == value.strip()]
    for delimiter in _DELIMITERS:
        listed = [value for value in left if delimiter not in value]
        if len(listed) > 1:
            yield f"search.in({variable}, {quoted(delimiter.join(listed))}, {quoted(delimiter)})"
            left = [value for value in left if delimiter in value]
    for value in left:
        yield f"{variable} eq {quoted(value)}"


def quoted(text: str) -> str:
    """The one place where a value becomes OData: a single-quoted literal, quotes doubled; there is no other escape."""
    return "'" + text.replace("'", "''") + "'"


def _known(column: str, columns: frozenset[str]) -> str:
    if column not in columns:
        raise ValueError(f"{column!r} is not one of the columns {sorted(columns)}")
    return column


def _size(odata: str) -> int:
    """Bytes as JSON, in which what is not ASCII takes six for each UTF-16 unit."""
    return len(odata) if odata.isascii() else 3 * len(odata.encode("utf-16-le"))
