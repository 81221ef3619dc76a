"""A Python string in, one that Pinecone can hold out, and back; equal and prefix-equal exactly where the originals are.

Metadata travels as JSON in UTF-8, which has no lone surrogates, and NUL ends strings in many a service. Each is written as an escape; the
escapes form a prefix code, so that equality of stored strings means what it means in Python, for whole values and for directories alike.
"""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = "\U0010ffff"  # a noncharacter, which no text has reason to contain; doubled where one does
_TO_ESCAPE: Final = re.compile("[\0\ud800-\udfff\U0010ffff]")
_ESCAPED: Final = re.compile(f"{_ESCAPE}({_ESCAPE}|[0-9a-f]{{4}})")
NOTHING: Final = _ESCAPE
"""What an empty list holds instead of nothing: no stored string is this one, because an escape is never alone.

Whether Pinecone keeps a list without elements is not documented, and an update cannot take a field away.
"""


def storable(text: str) -> str:
    """The string as it is stored; the same one unless it holds NUL, a lone surrogate or the escape character."""
    if _TO_ESCAPE.search(text) is None:
        return text
    return _TO_ESCAPE.sub(lambda found: _ESCAPE + (_ESCAPE if found[0] == _ESCAPE else f"{ord(found[0]):04x}"), text)


def original(text: str) -> str:
    """The inverse of `storable`."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: _ESCAPE if found[1] == _ESCAPE else chr(int(found[1], 16)), text)
