"""A query for blobs and a prefix of paths in, one that an index can answer out; `%` and `_` are letters like others."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Text, func, text, type_coerce

from ragstore.ledger.schema import PATH_START, blobs
from ragstore.ledger.texts import escape

_LAST: Final = "\U0010ffff"
_BEFORE_SURROGATES: Final = "\ud7ff"
_AFTER_SURROGATES: Final = "\ue000"
_PLAIN: Final[ColumnElement[str]] = type_coerce(blobs.c.path, Text())
"""The path as it is stored, for comparing it with what is escaped already."""


def paths_under(connection: Connection, query: Select[Any], prefix: str) -> Select[Any]:
    """The query for those blobs whose path starts with the prefix. Texts are compared by code points, which is the order of UTF-8."""
    if connection.dialect.name != "postgresql":
        return query.where(*_between(blobs.c.path, prefix))
    stored = escape(prefix)
    start = func.left(_PLAIN, text(str(PATH_START)))
    return query.where(*_between(start, stored[:PATH_START]), *_between(_PLAIN, stored))


def _between(column: ColumnElement[str], prefix: str) -> list[ColumnElement[bool]]:
    if not prefix:
        return []
    end = successor(prefix)
    return [column >= prefix] if end is None else [column >= prefix, column < end]


def successor(prefix: str) -> str | None:
    """The least text, by code points, that is after all texts with this prefix; None where there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
