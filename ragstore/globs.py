"""A glob, or lists of globs to include and exclude, in; whether a blob's path matches out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ragstore.errors import ConfigError

# Matching is linear in practice whatever the pattern: each piece between two stars has a fixed length, so its leftmost occurrence is
# always a right one, and an atomic group `(?>...)` may forget all others. Without that, `*a*a*a*b` takes minutes on a hostile name.


@dataclass(frozen=True, slots=True, kw_only=True)
class Globs:
    """Which paths are wanted: those that match one of `include` (none given: all), unless they match one of `exclude`.

    The syntax is that of `compile_glob`, which also says what raises `ConfigError`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    _included: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _excluded: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _pruned: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        below = [pattern.removesuffix("/**") for pattern in self.exclude if pattern.endswith("/**")]
        object.__setattr__(self, "_included", _any_of(self.include))
        object.__setattr__(self, "_excluded", _any_of(self.exclude))
        object.__setattr__(self, "_pruned", _any_of(below))

    def admits(self, path: str) -> bool:
        """Whether the path is wanted. `path` is relative to the container or folder, with `/` between its segments."""
        if self._included is not None and self._included.fullmatch(path) is None:
            return False
        return self._excluded is None or self._excluded.fullmatch(path) is None

    def prunes(self, folder: str) -> bool:
        """Whether an exclude leaves out everything below this folder, so that nobody need look into it. `folder` has no `/` at its end."""
        return self._pruned is not None and self._pruned.fullmatch(folder) is not None


def compile_glob(pattern: str) -> re.Pattern[str]:
    """The glob as a regular expression, to be used with `fullmatch` on a path relative to the container or folder.

    - `*` is any run of characters within one segment, `?` one character, `[a-z]` one of a class, `[!a-z]` one outside it; none matches `/`.
    - `**` as a whole segment is any number of segments, none included: `docs/**` is all below `docs`, `**/*.md` every `.md` at any depth.
    - A pattern is anchored at both ends: `*.md` is the `.md` blobs of the top level only.
    - Case and Unicode form matter. A backslash is an ordinary character; `[*]` is a literal star.

    Raises `ConfigError` for an empty pattern, one with `/` at its start or end, and for a class that is not closed or out of order: what
    can never match what its author meant would silently leave a blob out, or worse, let one in.
    """
    return re.compile(_expression(pattern), re.DOTALL)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    alternatives = [_expression(pattern) for pattern in patterns]
    return re.compile("|".join(f"(?:{one})" for one in alternatives), re.DOTALL) if alternatives else None


def _expression(pattern: str) -> str:
    if not pattern:
        raise ConfigError("an empty glob matches nothing; leave it out, or write '**' for everything")
    if pattern.startswith("/"):
        raise ConfigError(
            f"the glob {pattern!r} begins with '/': globs are relative to the container or folder; write {pattern.lstrip('/')!r}"
        )
    if pattern.endswith("/"):
        raise ConfigError(f"the glob {pattern!r} ends with '/': write {pattern + '**'!r} for everything below that folder")
    *anchored, last = _groups(pattern)
    if not anchored:
        return "/".join(last)
    first, *middle = anchored
    parts = ["".join(f"{segment}/" for segment in first)]
    parts += [rf"(?>(?:[^/]*/)*?{''.join(f'{segment}/' for segment in group)})" for group in middle if group]
    parts.append(rf"(?:[^/]*/)*?{'/'.join(last)}" if last else ".*")
    return "".join(parts)


def _groups(pattern: str) -> list[list[str]]:
    """The segments as expressions, in runs that `**` separates: `a/**/b/c` is [[a], [b, c]], and `**` alone is [[], []]."""
    groups: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            groups.append([])
        else:
            groups[-1].append(_segment(segment, pattern))
    return groups


def _segment(segment: str, pattern: str) -> str:
    """One segment as an expression that matches no `/`."""
    pieces = [""]
    at = 0
    while at < len(segment):
        match segment[at]:
            case "*":
                pieces.append("")
            case "?":
                pieces[-1] += "[^/]"
            case "[":
                expression, at = _character_class(segment, at, pattern)
                pieces[-1] += expression
                continue
            case character:
                pieces[-1] += re.escape(character)
        at += 1
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def _character_class(segment: str, start: int, pattern: str) -> tuple[str, int]:
    """The class that opens at `start` as an expression, and where the text after it begins."""
    at = start + 1
    negated = segment[at : at + 1] in {"!", "^"}
    at += negated
    end = segment.find("]", at + 1)  # a `]` that comes first is a member
    if end < 0:
        raise ConfigError(f"the glob {pattern!r} has a '[' without its ']' in one segment; write '[[]' for the character itself")
    members = ""
    while at < end:
        low, high = segment[at], segment[at]
        at += 1
        if segment[at : at + 1] == "-" and at + 1 < end:
            high = segment[at + 1]
            at += 2
        if high < low:
            raise ConfigError(f"the glob {pattern!r} has the range '{low}-{high}', which is out of order")
        members += re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
    return f"(?!/)[{'^' if negated else ''}{members}]", end + 1
