"""Samples of text in, what an embedder cannot read of it, as a share or as a warning, out."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import islice

_SAMPLE = 100
"""Letters per block: enough to tell a script, and too few to be felt."""
_NOTEWORTHY = 0.1
_LEAST = 50


class Scripts:
    """Counts letters by script, as the first word of their Unicode names says it (`LATIN`, `CJK`, `ARABIC` ...)."""

    def __init__(self, known: frozenset[str] | None) -> None:
        """`known` are the scripts of the embedder; None counts nothing."""
        self._known = known
        self._letters: Counter[str] = Counter()

    def see(self, text: str) -> None:
        """Count the first letters of a text."""
        if self._known is not None:
            self._letters.update(_scripts(text))

    def warnings(self, embedder: str) -> list[str]:
        """What a person should know before trusting the vectors."""
        total = self._letters.total()
        unknown = {script: count for script, count in self._letters.most_common() if script not in (self._known or ())}
        share = sum(unknown.values()) / total if total else 0.0
        if self._known is None or share < _NOTEWORTHY or sum(unknown.values()) < _LEAST:
            return []
        return [
            (
                f"about {share:.0%} of the text that was read is in a script that the embedder {embedder!r} does not know "
                f"({', '.join(islice(unknown, 3))}): search by meaning will be poor there, search by words works. "
                "Choose a multilingual embedder in [embedder]"
            )
        ]


def unread(text: str, known: frozenset[str] | None) -> float:
    """The share of the text's first letters, 0 to 1, that are of scripts which an embedder that knows these does not know."""
    if known is None or text.isascii():
        return 0.0
    found = list(_scripts(text))
    return sum(script not in known for script in found) / len(found) if found else 0.0


def _scripts(text: str) -> Iterator[str]:
    letters = islice((char for char in islice(text, 4 * _SAMPLE) if char.isalpha()), _SAMPLE)
    return ("LATIN" if char.isascii() else unicodedata.name(char, "?").partition(" ")[0] for char in letters)
