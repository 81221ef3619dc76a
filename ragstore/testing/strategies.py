"""Hypothesis strategies for what stores are given: hostile strings, access columns, and filters over the same few values."""

from __future__ import annotations

from typing import Final, get_args

from hypothesis import strategies as st

from ragstore.filters import ALWAYS, NEVER, And, AnyOf, Filter, Like, ListColumn, Not, OneOf, Or, ScalarColumn, StartsWith
from ragstore.models import AccessColumns

HOSTILE: Final = (
    "",
    " ",
    "'",
    "''",
    "' OR '1'='1",
    "'; DROP TABLE chunks; --",
    "') OR true OR path IN ('",
    '"',
    '"path"',
    "`",
    "\\",
    "\\'",
    "%",
    "_",
    "a%",
    "a_b",
    "*",
    "?",
    "[a]",
    "{a}",
    "$1",
    ":x",
    "NULL",
    "null",
    "true",
    "a",
    "A",
    "ab",
    "a//b",
    "/a",
    "a\nb",
    "a\tb",
    "a\0b",
    "\0",
    "a\x1fb",
    "é",
    "e\u0301",
    "É",
    "ß",
    "ﬁ",
    "日本",
    "日本語.md",
    "العربية",
    "\u202eabc",
    "\u200b",
    "😀",
    "👩\u200d👩\u200d👧",
    "\ufffd",
    "\ud800",
    "a\udfff",
    "\ud83d\ude00",
    "\U0010ffff",
    "\U0010ffffd800",
    "x" * 10_000,
)
"""Values that have broken filters: quotes, wildcards, escapes, control characters, look-alikes, lone surrogates, length."""


def hostile_strings() -> st.SearchStrategy[str]:
    """Mostly the known ones, so that a filter and a row often hold the same; also any code points whatever."""
    anything = st.text(st.characters(), max_size=20)
    # Not `sampled_from`, which spells out all of them, long ones too, wherever Hypothesis describes a strategy.
    known = st.integers(0, len(HOSTILE) - 1).map(lambda number: HOSTILE[number])
    return st.one_of(known, known, anything)


def access_columns(values: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[AccessColumns]:
    """Columns that hold such values."""
    scalars = hostile_strings() if values is None else values
    lists = st.lists(scalars, max_size=3).map(tuple)
    return st.builds(
        AccessColumns,
        account=scalars,
        container=scalars,
        path=scalars,
        media_type=scalars,
        allowed=lists,
        labels=lists,
        label_keys=lists,
    )


def filters(values: st.SearchStrategy[str] | None = None, *, max_leaves: int = 12) -> st.SearchStrategy[Filter]:
    """Filters of every node, nested, with values from the same source, empty sets and prefixes included."""
    strings = hostile_strings() if values is None else values
    sets = st.frozensets(strings, max_size=4)
    leaves: st.SearchStrategy[Filter] = st.one_of(
        st.sampled_from([ALWAYS, NEVER]),
        st.builds(OneOf, st.sampled_from(get_args(ScalarColumn)), sets),
        st.builds(AnyOf, st.sampled_from(get_args(ListColumn)), sets),
        st.builds(StartsWith, st.sampled_from(get_args(ScalarColumn)), strings.map(lambda text: text[:3])),
        st.builds(Like, st.sampled_from(get_args(ScalarColumn)), patterns(strings)),
    )
    return st.recursive(leaves, _nested, max_leaves=max_leaves)


def patterns(values: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[str]:
    """Patterns for `Like`: such values as they stand, cut and put together with wildcards and backslashes."""
    strings = hostile_strings() if values is None else values
    pieces = st.one_of(st.sampled_from(["*", "?", "**", "\\*", "\\?", "\\\\", "\\"]), strings.map(lambda text: text[:3]))
    return st.one_of(strings.map(lambda text: text[:100]), st.lists(pieces, max_size=6).map("".join))


def _nested(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    parts = st.lists(inner, max_size=4).map(tuple)
    return st.one_of(st.builds(And, parts), st.builds(Or, parts), st.builds(Not, inner))
