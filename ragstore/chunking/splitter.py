"""A text and its structure in, the offsets of stable cuts out: langchain takes it to pieces, content decides which stay together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from zlib import crc32

import numpy as np
from langchain_text_splitters import RecursiveCharacterTextSplitter
from numpy.typing import NDArray
from typing_extensions import override

from ragstore.chunking.estimate import UNIT
from ragstore.chunking.graphemes import joined, slices
from ragstore.chunking.measure import Measure
from ragstore.chunking.separators import Separators
from ragstore.models import HeadingMark

# Ranks of boundaries; a heading's is its level, 1 to 6, and a smaller one is better.
_STRUCTURE, _PARAGRAPH, _SENTENCE_LINE, _LINE, _SENTENCE, _CLAUSE, _WORD = 8, 10, 12, 14, 16, 17, 18
_IN_FENCE = 20
_BELOW_HEADING = 50
_HEADING_MARKS = 8
"""Characters that a heading has beside its text: `#` signs, spaces and the blank line below."""
_PER_CHARACTER = 32
"""Hundredths of a token that a character of Markdown has on average."""
_CONTEXT = 64
"""Characters on either side of a boundary that break a tie between boundaries of one rank."""

_SENTENCE_ENDS = frozenset(".!?:;。！？；｡…”’\"')]」』）》|>।॥؟۔")
_CLAUSE_ENDS = frozenset(",，、：､،")


class Structure:
    """What is known of a text apart from its characters, in offsets of that text."""

    def __init__(self, *, headings: Iterable[tuple[int, HeadingMark]], fences: Sequence[tuple[int, int]]) -> None:
        self.headings = dict(headings)
        """By offset of the first character."""
        self.fences = fences
        """Spans of fenced code, in order, from the first character of the opening line to behind the closing one."""
        self._offsets = sorted(self.headings)

    def offsets(self, start: int, end: int) -> list[int]:
        """Where headings begin in `start <= offset < end`, in order."""
        return self._offsets[bisect_left(self._offsets, start) : bisect_left(self._offsets, end)]


class _PieceSplitter(RecursiveCharacterTextSplitter):
    """Takes a text to pieces at the strongest separator that makes each short enough, and leaves them apart.

    Merging from the left, as the library does, moves every boundary behind an edit; `StableSplitter` merges by content instead.
    """

    def __init__(self, *, patterns: Sequence[str], characters: int) -> None:
        super().__init__(
            separators=list(patterns),
            is_separator_regex=True,
            keep_separator="end",
            strip_whitespace=False,
            chunk_size=characters,
            chunk_overlap=0,
        )

    @override
    def _merge_splits(self, splits: Iterable[str], separator: str) -> list[str]:
        return list(splits)


class StableSplitter:
    """Cuts a text into parts of about `limit` hundredths of a token at most, at boundaries that depend on nearby text only.

    The best boundary between `min_ratio * limit` and `limit` ends a part: the highest heading, else a structural line of code, a
    paragraph, a line, a sentence, a word; among equals the one whose surroundings have the smallest CRC. Two versions of a text
    that differ in one place therefore agree again one or two parts behind it.
    """

    def __init__(self, *, separators: Separators, measure: Measure, limit: int, min_ratio: float) -> None:
        self._measure = measure
        self._code = separators.structure
        self._limit = max(1, limit)
        self._least = int(self._limit * min_ratio)
        # A part that has not reached the minimum still has room for any piece of this size.
        self._piece = max(1, self._limit - self._least)
        self._coarse = _PieceSplitter(patterns=separators.patterns, characters=max(1, self._piece // _PER_CHARACTER))
        self._fine = _PieceSplitter(patterns=separators.patterns, characters=max(1, self._piece // UNIT))

    def cuts(self, text: str, structure: Structure, start: int, end: int) -> list[int]:
        """Offsets at which the parts of `text[start:end]` end, in order; the last is `end`."""
        if start == end:
            return []
        sums = self._measure.running(text[start:end])
        if sums[-1] <= self._limit:
            return [end]
        offsets = self._take_to_pieces(text[start:end], sums, [mark - start for mark in structure.offsets(start, end)])
        totals = sums[offsets].tolist()
        return list(self._choose(text, structure, [start + offset for offset in offsets], totals))

    def _take_to_pieces(self, text: str, sums: NDArray[np.int64], headings: Sequence[int]) -> list[int]:
        """The offsets where pieces meet, 0 and the end included: no piece runs over a heading, none is much over the limit."""
        offsets = _meetings(text, self._coarse.split_text(text))
        if headings:
            offsets = sorted({*offsets, *headings})
        sizes = np.diff(sums[offsets])
        for index in np.flatnonzero(sizes > self._piece)[::-1].tolist():
            begin, stop = offsets[index : index + 2]
            large = text[begin:stop]
            runs = [large[left:right] for left, right in pairwise(_meetings(large, self._fine.split_text(large)))]
            pieces = [piece for run in runs for piece in self._slice(run)]
            offsets[index : index + 2] = accumulate(map(len, pieces), initial=begin)
        return offsets

    def _slice(self, run: str) -> Iterator[str]:
        """A run without separators, cut by characters: about two make a token in ASCII, one elsewhere."""
        most = max(1, self._piece * (2 if run.isascii() else 1) // UNIT)
        return slices(run, most, max(1, most // 3))

    def _choose(self, text: str, structure: Structure, offsets: Sequence[int], totals: Sequence[int]) -> Iterator[int]:
        """The offsets among these where a part ends; `totals` has the size of all before each."""
        first, last, whole = 0, len(offsets) - 1, totals[-1]
        while whole - totals[first] > self._limit and first + 1 < last:
            low = min(bisect_left(totals, totals[first] + self._least, first + 1), last - 1)
            high = min(max(bisect_right(totals, totals[first] + self._limit, low), low + 1), last)
            # Leave enough for a last part of its own, where that is possible.
            roomy = bisect_right(totals, whole - self._least, low, high)
            first = self._best(text, structure, offsets, range(low, roomy if roomy > low else high))
            yield offsets[first]
        yield offsets[last]

    def _best(self, text: str, structure: Structure, offsets: Sequence[int], window: range) -> int:
        """The index in the window of the offset where a cut does least harm."""
        # A heading outranks all else: where there is one, the others need not be looked at.
        ranks = self._headings(structure, offsets, window) or {index: self._rank(text, structure, offsets, index) for index in window}
        best = min(ranks.values())
        equals = [index for index, rank in ranks.items() if rank == best]
        return equals[0] if len(equals) == 1 else min(equals, key=lambda index: _surroundings(text, offsets[index]))

    def _headings(self, structure: Structure, offsets: Sequence[int], window: range) -> dict[int, int]:
        """The ranks of the offsets in the window where a heading begins, without those that would strand the heading above."""
        ranks = {}
        for heading in structure.offsets(offsets[window[0]], offsets[window[-1]] + 1):
            index = bisect_left(offsets, heading, window.start, window.stop)
            if not _below_heading(structure, offsets, index):
                ranks[index] = structure.headings[heading].level + (_IN_FENCE if _inside(structure.fences, heading) else 0)
        return ranks

    def _rank(self, text: str, structure: Structure, offsets: Sequence[int], index: int) -> int:
        """How good a cut at this offset is; smaller is better."""
        begin, stop = offsets[index - 1], offsets[index]
        heading = structure.headings.get(stop)
        rank = self._rank_of_separator(text, begin, stop) if heading is None else heading.level
        if structure.fences and _inside(structure.fences, stop):
            rank += _IN_FENCE
        return rank + _BELOW_HEADING if _below_heading(structure, offsets, index) else rank

    def _rank_of_separator(self, text: str, begin: int, stop: int) -> int:
        last = text[stop - 1]
        if last == "\n":
            if self._code is not None and self._code.match(text, stop):
                return _STRUCTURE
            line = text[begin : stop - 1].rstrip(" \t\r")
            last = line[-1:]
            if last in ("", "\n"):
                return _PARAGRAPH if self._code is None else _PARAGRAPH - 1 + _depth(text, stop)
            return _SENTENCE_LINE if last in _SENTENCE_ENDS else _LINE
        if last == "\f":
            return _PARAGRAPH
        if last.isspace():
            last = text[begin:stop].rstrip()[-1:]
        if last in _SENTENCE_ENDS:
            return _SENTENCE
        return _CLAUSE if last in _CLAUSE_ENDS else _WORD


def _meetings(text: str, pieces: Iterable[str]) -> list[int]:
    """The offsets where the pieces of a text meet, without those that would part a character and its marks."""
    offsets = list(accumulate(map(len, pieces), initial=0))
    return offsets if text.isascii() else [offset for offset in offsets if not joined(text, offset)]


def _depth(text: str, offset: int) -> int:
    """How deep in a block of code the line at this offset is: 0 at the margin, 1 one level in, 2 deeper."""
    if not text[offset : offset + 1].isspace():
        return 0
    line = text[offset : offset + _CONTEXT].expandtabs(4)
    return 1 if len(line) - len(line.lstrip()) <= 4 else 2  # noqa: PLR2004 - four columns make a level


def _below_heading(structure: Structure, offsets: Sequence[int], index: int) -> bool:
    """Whether the piece before this offset is a heading alone (at most as long as its text underlined), which a cut would strand."""
    above = structure.headings.get(offsets[index - 1])
    return above is not None and offsets[index] - offsets[index - 1] < 2 * len(above.text) + _HEADING_MARKS


def _inside(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether the offset is between the ends of one of the spans, which are in order and do not overlap."""
    index = bisect_left(spans, (offset, -1)) - 1
    return index >= 0 and spans[index][0] < offset < spans[index][1]


def _surroundings(text: str, offset: int) -> int:
    """A hash of the text on both sides of a boundary."""
    around = text[max(0, offset - _CONTEXT) : offset + _CONTEXT]
    return crc32(around.encode("utf-8", "surrogatepass"))
