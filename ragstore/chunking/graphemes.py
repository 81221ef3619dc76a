"""A run of text without any separator in, pieces out, cut where content says and never between a character and its marks."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

_JOINER: Final = "\u200d"
_HASHED: Final = 16
"""Characters on which the choice of a cut depends: few enough that an edit is soon forgotten."""


def joined(text: str, position: int, since: int = 0) -> bool:
    """Whether a cut at this position would part what belongs together.

    That is: CR and LF, the halves of a surrogate pair, a character and its combining marks, variation selectors, skin tones or
    joiners, and the two letters of a flag (after UAX #29, without the rules for Hangul and Indic conjuncts). Flags are told apart
    by counting back, at most to `since`, where no flag may be open.
    """
    if not 0 < position < len(text):
        return False
    before, after = text[position - 1], text[position]
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if _JOINER in (before, after) or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\udc00" <= after <= "\udfff":
        return "\ud800" <= before <= "\udbff"
    if _is_regional(after):
        return _regionals_before(text, position, since) % 2 == 1
    return unicodedata.category(after)[0] == "M"


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regionals_before(text: str, position: int, since: int) -> int:
    start = position
    while start > since and _is_regional(text[start - 1]):
        start -= 1
    return position - start


def slices(text: str, most: int, least: int) -> Iterator[str]:
    """Pieces of `least` to `most` characters that concatenate to the text; only the last may be shorter.

    Each cut is where a hash of the characters around it is smallest, so that an insertion moves the cuts with the text.
    A cluster of more than `most` characters is cut inside.
    """
    if len(text) <= most:
        yield text
        return
    scores = _scores(text)
    start = 0
    while len(text) - start > most:
        # Leave enough for a last piece of its own, where that is possible.
        furthest = max(start + least, min(start + most, len(text) - least))
        window = sorted(range(start + least, furthest + 1), key=scores.__getitem__)
        cut = next((position for position in window if not joined(text, position, start)), furthest)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _scores(text: str) -> list[int]:
    """For each position from 0 to the end, a hash of the `_HASHED` characters before it."""
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    mixed = codes * np.uint32(0x9E3779B1)
    mixed ^= mixed >> np.uint32(15)
    total = np.zeros(len(codes) + 1, dtype=np.uint32)
    for distance in range(min(_HASHED, len(codes))):
        factor = np.uint32((0x85EBCA77 * (2 * distance + 1)) & 0xFFFFFFFF)
        total[distance + 1 :] += mixed[: len(codes) - distance] * factor
    total ^= total >> np.uint32(13)
    scores: list[int] = (total * np.uint32(0xC2B2AE35)).tolist()
    return scores
