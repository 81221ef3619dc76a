"""A text and its structure in, the offsets of stable cuts out: langchain takes it to pieces, content decides which stay together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from langchain_text_splitters import RecursiveCharacterTextSplitter
from typing_extensions import override

from ragstore.chunking.estimate import UNIT, estimate
from ragstore.chunking.graphemes import slices
from ragstore.chunking.separators import Separators
from ragstore.models import HeadingMark

_PARAGRAPH, _SENTENCE_LINE, _LINE, _SENTENCE, _WORD = 10, 12, 14, 16, 18
_STRUCTURE = 8
_IN_FENCE = 20
_BELOW_HEADING = 50
_CONTEXT = 64
"""Characters on either side of a boundary that break a tie between boundaries of one rank."""

_SENTENCE_ENDS = ".!?:;。！？；…”\"'）)|>।؟"


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What is known of a text apart from its characters, in offsets of that text."""

    headings: Mapping[int, HeadingMark]
    """By offset of the first character."""
    fences: Sequence[tuple[int, int]]
    """Spans of fenced code, in order, from the first character of the opening line to behind the closing one."""


class _PieceSplitter(RecursiveCharacterTextSplitter):
    """Takes a text to pieces at the strongest separator that makes each small enough, and leaves them apart.

    Merging from the left, as the library does, moves every boundary behind an edit; `cuts` merges by content instead.
    """

    def __init__(self, *, patterns: Sequence[str], limit: int) -> None:
        super().__init__(
            separators=list(patterns),
            is_separator_regex=True,
            keep_separator="end",
            strip_whitespace=False,
            chunk_size=limit,
            chunk_overlap=0,
            length_function=estimate,
        )

    @override
    def _merge_splits(self, splits: Iterable[str], separator: str) -> list[str]:
        return list(splits)


class StableSplitter:
    """Cuts a text into parts of about `limit` tokens at most, at boundaries that depend on nearby text only.

    The best boundary between `min_ratio * limit` and `limit` ends a part: the highest heading, else a structural line of code, a
    paragraph, a line, a sentence, a word; among equals the one whose surroundings have the smallest CRC. Two versions of a text
    that differ in one place therefore agree again one or two parts behind it.
    """

    def __init__(self, *, separators: Separators, limit: int, min_ratio: float) -> None:
        self._structure = separators.structure
        self._limit = max(1, limit)
        self._least = int(self._limit * min_ratio)
        # A part that has not reached the minimum still has room for any piece of this size.
        self._piece = max(1, self._limit - self._least)
        self._pieces = _PieceSplitter(patterns=separators.patterns, limit=self._piece)

    def cuts(self, text: str, structure: Structure, start: int, end: int) -> list[int]:
        """Offsets at which the parts of `text[start:end]` end, in order; the last is `end`."""
        ends: list[int] = []
        keys: list[int] = []
        totals: list[int] = []
        total, begin = 0, start
        for piece in self._take_to_pieces(text, structure, start, end):
            total += estimate(piece)
            stop = begin + len(piece)
            totals.append(total)
            ends.append(stop)
            keys.append(self._key(text, structure, begin, stop) if stop < end else 0)
            begin = stop
        return [ends[index] for index in self._choose(totals, keys)]

    def _take_to_pieces(self, text: str, structure: Structure, start: int, end: int) -> Iterator[str]:
        """Pieces that tile the span: no piece runs over a heading, none is much over the limit."""
        borders = sorted(offset for offset in structure.headings if start < offset < end)
        for begin, stop in zip([start, *borders], [*borders, end], strict=True):
            for piece in self._pieces.split_text(text[begin:stop]):
                if len(piece) > 1 and estimate(piece) > self._piece:
                    yield from self._slice(piece)
                else:
                    yield piece

    def _slice(self, run: str) -> Iterator[str]:
        """A run without separators, cut by characters: about two make a token in ASCII, one elsewhere."""
        most = max(1, self._piece * (2 if run.isascii() else 1) // UNIT)
        return slices(run, most, max(1, most // 3))

    def _choose(self, totals: Sequence[int], keys: Sequence[int]) -> Iterator[int]:
        """Indexes of the pieces that end a part."""
        last = len(totals) - 1
        first, before = 0, 0
        while first <= last and totals[last] - before > self._limit:
            low = max(bisect_left(totals, before + self._least, first), first)
            high = max(bisect_right(totals, before + self._limit, first), low + 1)
            # Leave enough for a last part of its own, where that is possible.
            roomy = bisect_right(totals, totals[last] - self._least, low, high)
            window = keys[low : roomy if roomy > low else high]
            cut = min(low + window.index(min(window)), last)
            yield cut
            first, before = cut + 1, totals[cut]
        if first <= last:
            yield last

    def _key(self, text: str, structure: Structure, begin: int, stop: int) -> int:
        """How good a cut at `stop` is, behind the piece that began at `begin`; smaller is better."""
        around = text[stop : stop + _CONTEXT] + text[max(0, stop - _CONTEXT) : stop]
        return self._rank(text, structure, begin, stop) << 32 | crc32(around.encode("utf-8", "surrogatepass"))

    def _rank(self, text: str, structure: Structure, begin: int, stop: int) -> int:
        heading = structure.headings.get(stop)
        if heading is not None:
            return heading.level
        rank = self._rank_of_separator(text, begin, stop)
        if structure.fences and _inside(structure.fences, stop):
            rank += _IN_FENCE
        above = structure.headings.get(begin)
        if above is not None and stop - begin < 2 * len(above.text) + 2 * above.level:
            rank += _BELOW_HEADING
        return rank

    def _rank_of_separator(self, text: str, begin: int, stop: int) -> int:
        last = text[stop - 1]
        if last == "\f":
            return _PARAGRAPH
        if last != "\n":
            if last.isspace():
                last = text[begin:stop].rstrip()[-1:]
            return _SENTENCE if last in _SENTENCE_ENDS else _WORD
        if self._structure is not None and self._structure.match(text, stop):
            return _STRUCTURE
        line = text[begin : stop - 1].rstrip(" \t\r")
        if line.endswith("\n") or not line:
            return _PARAGRAPH
        return _SENTENCE_LINE if line[-1] in _SENTENCE_ENDS else _LINE


def _inside(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether the offset is between the ends of one of the spans, which are in order and do not overlap."""
    index = bisect_left(spans, (offset, -1)) - 1
    return index >= 0 and spans[index][0] < offset < spans[index][1]
