"""The text hashes of one document in, which time each of them came out."""

from __future__ import annotations

from array import array

_FIRST_SLOTS = 64


class Occurrences:
    """Counts how often each text came, in about 20 bytes for each instead of the 90 of a set: a text of 256 MB has some 400 thousand.

    A hash table of the first 64 bits. Two texts that have them in common count as one (among 400 thousand texts, in one of two hundred
    million documents), which is harmless: each of the two hashes gets every number at most once, so both together still name one chunk.
    """

    __slots__ = ("_again", "_slots", "_used")

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))  # 0 is free; as many as a power of two
        self._used = 0
        self._again: dict[int, int] = {}

    def next(self, text_hash: str) -> int:
        """How often this text, by a hash of at least 16 hex digits, came before."""
        key = int(text_hash[:16], 16) or 1
        if self._is_new(key):
            return 0
        self._again[key] = self._again.get(key, 0) + 1
        return self._again[key]

    def _is_new(self, key: int) -> bool:
        slots = self._slots
        last = len(slots) - 1
        place = key & last
        while held := slots[place]:
            if held == key:
                return False
            place = (place + 1) & last
        slots[place] = key
        self._used += 1
        if self._used * 3 > len(slots) * 2:
            self._grow()
        return True

    def _grow(self) -> None:
        old, self._slots, self._used = self._slots, array("Q", bytes(16 * len(self._slots))), 0
        for key in old:
            if key:
                self._is_new(key)
