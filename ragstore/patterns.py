"""A text and a pattern in, whether the whole text matches out; in time that a hostile pattern cannot blow up.

- `StringLike`: `*` is any text, `/` and line ends included; `?` is exactly one character; `\\*`, `\\?` and `\\\\` stand for themselves,
  and any other backslash is literal (https://learn.microsoft.com/azure/role-based-access-control/conditions-format).
- Actions: `*` is any text, `/` included, and nothing else is special.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_ESCAPED: Final = frozenset("*?\\")

Segment = tuple[str | None, ...]
"""Characters to be found in a row; None is any one character."""


@lru_cache(maxsize=1024)
def segments(pattern: str) -> tuple[Segment, ...]:
    r"""What stands between the `*` of a `StringLike` pattern: at least one segment, the first of which starts the text.

    `'a\*b*c?'` gives `(('a', '*', 'b'), ('c', None))`.
    """
    found: list[list[str | None]] = [[]]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\" and pattern[position + 1 : position + 2] in _ESCAPED:
            position += 1
            found[-1].append(pattern[position])
        elif character == "*":
            found.append([])
        else:
            found[-1].append(None if character == "?" else character)
        position += 1
    return tuple(map(tuple, found))


def spelled(parts: Iterable[Segment]) -> str:
    """The inverse of `segments`: a pattern of these parts."""
    return "*".join("".join("?" if one is None else f"\\{one}" if one in _ESCAPED else one for one in part) for part in parts)


def without_case(parts: Iterable[Segment]) -> tuple[Segment, ...]:
    """Parts that match whatever these do but for case, and more: each character that may have a case becomes any one character.

    Case is a relation of single characters, so that nothing changes its length.
    """
    return tuple(tuple(None if one is None or _may_have_case(one) else one for one in part) for part in parts)


def _may_have_case(character: str) -> bool:
    return character != character.lower() or character != character.upper() or character != character.title()


def like(text: str, pattern: str) -> bool:
    """Whether the whole text matches a `StringLike` pattern; fold both for the operators that ignore case."""
    return _matches(text, segments(pattern))


@lru_cache(maxsize=4_096)  # few pairs are in use, and a condition asks for each blob
def matches_action(text: str, pattern: str) -> bool:
    """Whether the whole text matches a pattern of actions; fold both, because actions have no case."""
    return _matches(text, tuple(map(tuple, pattern.split("*"))))


def _matches(text: str, parts: tuple[Segment, ...]) -> bool:
    first, *middle = parts
    if not middle:
        return len(text) == len(first) and _stands_at(text, 0, first)
    last = middle.pop()
    if len(text) < len(first) + len(last) or not _stands_at(text, 0, first) or not _stands_at(text, len(text) - len(last), last):
        return False
    # The leftmost place for each segment leaves the most room for those after it, so nothing is ever tried twice.
    position, end = len(first), len(text) - len(last)
    for part in middle:
        found = _find(text, position, end, part)
        if found < 0:
            return False
        position = found + len(part)
    return True


def _find(text: str, start: int, end: int, part: Segment) -> int:
    """The leftmost place of the segment within `text[start:end]`, or -1."""
    if None not in part:
        return text.find("".join(map(str, part)), start, end)
    return next((place for place in range(start, end - len(part) + 1) if _stands_at(text, place, part)), -1)


def _stands_at(text: str, place: int, part: Segment) -> bool:
    return all(wanted is None or text[place + offset] == wanted for offset, wanted in enumerate(part))
