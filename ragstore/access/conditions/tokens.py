"""The text of a condition in, its tokens out, each with its place.

- White space is space, tab, line end and U+00A0, which word processors put in.
- Text stands in single quotes; `''` and `\\'` are a quote within it, and any other backslash is literal. So none ends in a backslash.
- Words have no case, but are kept as written.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from typing_extensions import override

from ragstore.access.conditions.tree import Attribute, SourceName
from ragstore.access.conditions.values import GUID, integer
from ragstore.errors import ConfigError

Kind = Literal["attribute", "text", "number", "guid", "word", "sign", "end"]

_SPACE: Final = re.compile("[ \t\r\n\u00a0]*")
_WORD: Final = re.compile("[A-Za-z][A-Za-z0-9_]*")
_TEXT: Final = re.compile(r"'(?:\\'|''|[^'\\]|\\(?!'))*'(?!')", re.DOTALL)
_NUMBER: Final = re.compile("-?[0-9]+")
_SIGN: Final = re.compile(r"&&|\|\||[!(){},:]")
_SOURCE: Final = re.compile("@([A-Za-z]*)")
_QUOTED: Final = re.compile(r"\\'|''")
_NAME: Final = re.compile(r"[\w +\-.:=/]+")
"""The characters of tag keys, and those of attribute paths (letters of any script occur in metadata keys)."""

_CASE_SENSITIVE: Final = "<$key_case_sensitive$>"
_KEYS: Final = "&$keys$&"
_ENDING: Final = re.compile(f"(?:{re.escape(_CASE_SENSITIVE)}|{re.escape(_KEYS)})\\Z", re.IGNORECASE | re.ASCII)
_OTHER_QUOTES: Final = frozenset('"`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033\u00ab\u00bb\u00b4')
_SHELL: Final = "in bash write \\$ for $, in PowerShell `$, or keep the condition in a file"
_SHOWN_BEFORE: Final = 20
_SHOWN_AFTER: Final = 30


class ConditionError(ConfigError):
    """The text is no condition. `position` counts characters from 0; the message shows the place and says what to write instead."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        before, after = text[max(0, position - _SHOWN_BEFORE) : position], text[position : position + _SHOWN_AFTER]
        shown = ascii(before)[1:-1] + " >>> " + ascii(after)[1:-1] if text else "empty text"
        super().__init__(f"the condition does not parse at character {position + 1} ({shown.strip()}): {problem}")
        self.text = text
        self.position = position
        self.problem = problem

    @override
    def __reduce__(self) -> tuple[type[ConditionError], tuple[str, int, str]]:
        """Keep the place when the error crosses a process border."""
        return (ConditionError, (self.text, self.position, self.problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """`text[start:end]`, and what it stands for: an `Attribute`, the content of quotes, a number, a GUID or word as written, a sign."""

    kind: Kind
    value: Attribute | str | int
    start: int
    end: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens in their order, the last of which is the end. Raises `ConditionError` at the first character that begins none."""
    position = _skip_space(text, 0)
    while position < len(text):
        token = _token_at(text, position)
        yield token
        position = _skip_space(text, token.end)
    yield Token(kind="end", value="", start=len(text), end=len(text))


def _skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _token_at(text: str, at: int) -> Token:
    if text[at] == "@":
        return _attribute(text, at)
    if text[at] == "'":
        found = _TEXT.match(text, at)
        if found is None:
            raise ConditionError(text, at, r"this text has no closing quote; write '' for a quote within it (\' is one as well)")
        return Token(kind="text", value=_QUOTED.sub("'", found[0][1:-1]), start=at, end=found.end())
    if found := GUID.match(text, at):
        return _whole(text, Token(kind="guid", value=found[0], start=at, end=found.end()))
    if found := _NUMBER.match(text, at):
        number = integer(found[0])
        if number is None:
            raise ConditionError(text, at, "this number does not fit into 64 bits; write a smaller one")
        return _whole(text, Token(kind="number", value=number, start=at, end=found.end()))
    if found := _WORD.match(text, at):
        return Token(kind="word", value=found[0], start=at, end=found.end())
    if found := _SIGN.match(text, at):
        return Token(kind="sign", value=found[0], start=at, end=found.end())
    raise _refusal(text, at)


def _whole(text: str, token: Token) -> Token:
    """Raises `ConditionError` where a number or GUID goes on with what is neither."""
    following = text[token.end : token.end + 1]
    if following == ".":
        raise ConditionError(text, token.start, "numbers are whole; write one without a point")
    if following.isalnum() or following in {"_", "-"}:
        raise ConditionError(text, token.start, "this is neither a number nor a GUID; write text in single quotes")
    return token


def _refusal(text: str, at: int) -> ConditionError:
    character = text[at]
    if character in _OTHER_QUOTES:
        problem = f"{character!a} is no quote here; write text in single quotes: 'text'"
    elif character in "&|":
        problem = f"a single {character} means nothing; write {character * 2} or {'AND' if character == '&' else 'OR'}"
    elif character in "=<>":
        problem = f"{character} is no operator; write StringEquals, NumericLessThan or the like"
    elif character in "[]":
        problem = "brackets belong to an attribute; write @Resource[...], or @ and another source"
    else:
        problem = f"{character!a} (U+{ord(character):04X}) begins nothing; remove it, or write text in single quotes"
    return ConditionError(text, at, problem)


def _attribute(text: str, at: int) -> Token:
    """`@Source[name]`, without white space between its parts but within the brackets."""
    found = _SOURCE.match(text, at)
    written = found[1] if found else ""
    known = {source.upper(): source for source in get_args(SourceName)}
    source = known.get(written.upper())
    if source is None:
        near = difflib.get_close_matches(written.capitalize(), known.values(), n=1)
        hint = f"did you mean @{near[0]}?" if near else f"write one of @{', @'.join(known.values())}"
        raise ConditionError(text, at, f"{'@' + written!r} is no source of attributes; {hint}")
    opening = at + 1 + len(written)
    if text[opening : opening + 1] != "[":
        raise ConditionError(text, opening, f"the attribute's name is missing; write @{source}[name]")
    closing = text.find("]", opening)
    if closing < 0:
        raise ConditionError(text, at, "this attribute has no closing ]; add it after the name")
    start = _skip_space(text, opening + 1)
    name = text[start:closing].rstrip(" \t\r\n\u00a0")
    return Token(kind="attribute", value=_named(cast("SourceName", source), name, text, start), start=at, end=closing + 1)


def _named(source: SourceName, name: str, text: str, start: int) -> Attribute:
    """The attribute whose name stands at `text[start:]`."""
    plain, case_sensitive, keys = name, False, False
    if ending := _ENDING.search(name):
        plain = name[: ending.start()]
        keys = ending[0].startswith("&")
        case_sensitive = not keys
    found = _NAME.match(plain)
    good = found[0] if found else ""
    if good != plain:
        raise ConditionError(text, start + len(good), _odd_character(plain[len(good) :], good))
    path, colon, key = plain.partition(":")
    if not path:
        raise ConditionError(text, start, "the attribute's name is missing; write its path, such as UtcNow, within the brackets")
    if colon and (keys or not key):
        raise ConditionError(text, start + len(path), "the part after : is missing or out of place; write path:key, or path&$keys$&")
    if case_sensitive and not colon:
        raise ConditionError(text, start, f"{_CASE_SENSITIVE} follows the key of a tag; write path:key{_CASE_SENSITIVE}")
    return Attribute(source=source, path=path, key=key if colon else None, case_sensitive=case_sensitive, keys=keys)


def _odd_character(rest: str, before: str) -> str:
    """What is wrong with a name that goes on with these characters, which no name has."""
    if rest[0] == "<":
        return f"a shell has eaten the name between the dollar signs; write {_CASE_SENSITIVE} after the tag's key ({_SHELL})"
    if rest[0] == "&" and ":" not in before:
        return f"a shell has eaten the name between the dollar signs; write {_KEYS} after the path ({_SHELL})"
    return f"no attribute's name has {rest[0]!a} (U+{ord(rest[0]):04X}) in it; remove it, or close the name with ] before it"
