"""A Python string in, one that AI Search can store and compare out, and back; equal exactly where the originals are.

JSON and OData have no lone surrogates, and nobody promises anything of control characters in a filter, yet our labels hold some on purpose.
Each is written as an escape, as `ragstore_lancedb.strings` does. A string that is too long for a filterable field is stored as its digest,
in filters too, so that equality keeps its meaning; the original then stands in a field that nobody filters by.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

_ESCAPE: Final = "\U0010ffff"  # a noncharacter, which no text has reason to contain; doubled where one does
_TO_ESCAPE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\U0010ffff]")
_IN_PROSE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff\U0010ffff]")
_ESCAPED: Final = re.compile(f"{_ESCAPE}({_ESCAPE}|[0-9a-f]{{4}})")
_DIGEST: Final = f"{_ESCAPE}h"
LONGEST: Final = 32_766
"""Bytes of UTF-8 in a filterable string (https://learn.microsoft.com/azure/search/search-limits-quotas-capacity)."""
_PLAIN_KEY: Final = re.compile("[0-9a-f]+")


def storable(text: str) -> str:
    """The string as a field holds it; the same one unless it holds a control character, a lone surrogate or the escape character."""
    return _escaped(_TO_ESCAPE, text)


def prose(text: str) -> str:
    """As `storable`, with line ends and tabs left alone: for texts, which are read and never compared."""
    return _escaped(_IN_PROSE, text)


def original(text: str) -> str:
    """The inverse of `storable` and of `prose`."""
    if text.isascii() or _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: _ESCAPE if found[1] == _ESCAPE else chr(int(found[1], 16)), text)


def comparable(text: str) -> str:
    """The string as a filterable field holds it: storable, and of one that is too long its digest, which no other string is stored as."""
    stored = storable(text)
    if len(stored) * 4 <= LONGEST or len(stored.encode()) <= LONGEST:
        return stored
    return _DIGEST + hashlib.blake2b(stored.encode(), digest_size=32).hexdigest()


def is_digest(stored: str) -> bool:
    """Whether this is what became of a string that was too long."""
    return stored.startswith(_DIGEST)


def key_of(chunk_id: str) -> str:
    """The document key of a chunk: itself where it is hexadecimal, as chunk ids are, else in the letters that a key may have.

    No two chunks share one: what begins with `x` is no hexadecimal.
    """
    if _PLAIN_KEY.fullmatch(chunk_id):
        return chunk_id
    return "x" + base64.urlsafe_b64encode(chunk_id.encode("utf-8", "surrogatepass")).decode()


def chunk_of(key: str) -> str:
    """The inverse of `key_of`."""
    return base64.urlsafe_b64decode(key[1:]).decode("utf-8", "surrogatepass") if key.startswith("x") else key


def _escaped(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: _ESCAPE + (_ESCAPE if found[0] == _ESCAPE else f"{ord(found[0]):04x}"), text)
