"""A text column and a prefix in, a condition out that an index can answer and in which `%` and `_` are letters like others."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select

_LAST: Final = "\U0010ffff"
_BEFORE_SURROGATES: Final = "\ud7ff"
_AFTER_SURROGATES: Final = "\ue000"


def starting_with(query: Select[Any], column: ColumnElement[str], prefix: str) -> Select[Any]:
    """The query for those rows whose column starts with the prefix. Texts are compared by code points, which is the order of UTF-8."""
    if not prefix:
        return query
    query = query.where(column >= prefix)
    end = successor(prefix)
    return query if end is None else query.where(column < end)


def successor(prefix: str) -> str | None:
    """The least text, by code points, that is after all texts with this prefix; None where there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
