"""A Python string in, one that Arrow can store out, and back; equal and prefix-equal exactly where the originals are.

Arrow strings are UTF-8, which has no lone surrogates, but blob names and tags that went through a careless client may hold some. Each is
written as an escape; the escapes form a prefix code, so that equality and `starts_with` on stored strings mean what they mean in Python.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = "\U0010ffff"  # a noncharacter, which no text has reason to contain; doubled where one does
_TO_ESCAPE: Final = re.compile("[\ud800-\udfff\U0010ffff]")
ONE_CHARACTER: Final = r"(?:[^\x{10ffff}]|\x{10ffff}(?:\x{10ffff}|[0-9a-f]{4}))"
"""A regular expression, in the syntax of Rust, for one character of the original in the stored string."""
_ESCAPED: Final = re.compile(f"{_ESCAPE}({_ESCAPE}|[0-9a-f]{{4}})")


def storable(text: str) -> str:
    """The string as it is stored; the same one unless it holds a lone surrogate or the escape character."""
    if text.isascii() or _TO_ESCAPE.search(text) is None:
        return text
    return _TO_ESCAPE.sub(lambda found: _ESCAPE + (_ESCAPE if found[0] == _ESCAPE else f"{ord(found[0]):04x}"), text)


def original(text: str) -> str:
    """The inverse of `storable`."""
    if text.isascii() or _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: _ESCAPE if found[1] == _ESCAPE else chr(int(found[1], 16)), text)
