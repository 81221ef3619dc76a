"""A Python string in, one that PostgreSQL can store out, and back; equal and prefix-equal exactly where the originals are.

PostgreSQL has no NUL in a text, and UTF-8 no lone surrogates, but blob names and tags that went through a careless client may hold either.
Each is written as an escape; the escapes form a prefix code, so that equality and prefixes of stored strings mean what they mean in Python.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_ESCAPE: Final = "\x1a"
_UNSAFE: Final = re.compile("[\0\x1a\ud800-\udfff]")
_ESCAPED: Final = re.compile("\x1a(0|1|d[89a-f][0-9a-f]{2})")
_NAMED: Final = {_ESCAPE: _ESCAPE + "0", "\0": _ESCAPE + "1"}
_NAMES: Final = {"0": _ESCAPE, "1": "\0"}
_SHORTENED: Final = _ESCAPE + "#"

ESCAPE: Final = _ESCAPE
"""The character that a stored string holds where, and only where, a character of the original could not be stored."""
ONE_CHARACTER: Final = r"(?:[^\x1a]|\x1a(?:[01]|d[89a-f][0-9a-f]{2}))"
"""A regular expression, in PostgreSQL's syntax, for one character of the original in the stored string."""
LONGEST_KEY: Final = 1_800
"""Bytes. An entry of a GIN index holds about 2,700, a word of a `tsvector` 2,046."""


def storable(text: str) -> str:
    """The string as it is stored; the same one unless it holds a NUL, a lone surrogate or the escape character."""
    if (text.isascii() and "\0" not in text and _ESCAPE not in text) or _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda found: _NAMED.get(found[0]) or f"{_ESCAPE}{ord(found[0]):x}", text)


def original(text: str) -> str:
    """The inverse of `storable`."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: _NAMES.get(found[1]) or chr(int(found[1], 16)), text)


def key(text: str) -> str:
    """The string as an index holds it: as it is stored, or a digest where that is longer than an index takes. Equal where texts are."""
    stored = storable(text)
    if len(stored) * 4 <= LONGEST_KEY or len(stored.encode()) <= LONGEST_KEY:
        return stored
    return _SHORTENED + hashlib.blake2b(stored.encode(), digest_size=32).hexdigest()


def is_shortened(stored: str) -> bool:
    """Whether a key is a digest; no stored string looks like one."""
    return stored.startswith(_SHORTENED)
