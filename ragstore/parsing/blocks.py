"""Normalised text and its marks in, blocks out: cut where the content says so, so that an edit does not move all later cuts."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar
from zlib import crc32

from ragstore.errors import PoisonError
from ragstore.models import Block, HeadingMark, PageMark
from ragstore.parsing.normalize import one_line

SMALLEST = 2**18
"""Characters in a block that is not the last."""
LARGEST = 2**20
"""Characters in any block."""
TEXT_LIMIT = 64 * 2**20
"""Characters of text that a format may hold which is not read as a stream."""

Mark = TypeVar("Mark", PageMark, HeadingMark)

# Paragraphs, lines, sentences, words.
_CUTS = (re.compile(r"\n\n+"), re.compile(r"\n"), re.compile(r"[。．.!?！？;；][ \t]*"), re.compile(r"\s+"))
_ANYWHERE = 2**16
"""Places that are looked at in a run without any of these."""
_CONTEXT = 24


def _cut_at(text: str) -> int:
    """Where to end a block: the best kind of end in reach, and among those the one with the smallest hash of its surroundings."""
    ends: Sequence[int] = ()
    for pattern in _CUTS:
        ends = [match.end() for match in pattern.finditer(text, SMALLEST, LARGEST)]
        if ends:
            break
    return min(ends or range(SMALLEST, SMALLEST + _ANYWHERE), key=lambda end: crc32(text[end - _CONTEXT : end + _CONTEXT].encode()))


def cut(pieces: Iterable[str]) -> Iterator[str]:
    """Texts of `SMALLEST` to `LARGEST` characters (the last may be shorter) that tile the pieces; memory holds a few of them."""
    buffer: list[str] = []
    held = 0
    for piece in pieces:
        buffer.append(piece)
        held += len(piece)
        if held < LARGEST + _CONTEXT:
            continue
        text = "".join(buffer)
        while len(text) >= LARGEST + _CONTEXT:
            end = _cut_at(text)
            yield text[:end]
            text = text[end:]
        buffer, held = [text], len(text)
    rest = "".join(buffer)
    while len(rest) > LARGEST:
        end = _cut_at(rest)
        yield rest[:end]
        rest = rest[end:]
    if rest:
        yield rest


class TextBuilder:
    """Collects normalised text with pages and headings as a parser reads it; `blocks` hands it over."""

    def __init__(self, limit: int = TEXT_LIMIT) -> None:
        self.length = 0
        self._limit = limit
        self._pieces: list[str] = []
        self._pages: list[PageMark] = []
        self._headings: list[HeadingMark] = []
        self._warnings: list[str] = []
        self._visible = False

    def add(self, text: str) -> None:
        """Append text that is normalised already. Raises `PoisonError("too_large", ...)` beyond the limit."""
        self.length += len(text)
        if self.length > self._limit:
            raise PoisonError("too_large", f"holds more than {self._limit} characters of text")
        self._pieces.append(text)
        self._visible = self._visible or bool(text and not text.isspace())

    def page(self, number: int) -> None:
        """A page begins here."""
        self._pages.append(PageMark(start=self.length, number=number))

    def heading(self, level: int, text: str, start: int | None = None) -> None:
        """A heading begins here, or at `start`; a blank one is none."""
        words = one_line(text)
        if words:
            self._headings.append(HeadingMark(start=self.length if start is None else start, level=min(max(level, 1), 6), text=words))

    def warn(self, warning: str) -> None:
        """Tell the reader; said once however often it happens, and at most a hundred different ones."""
        if warning not in self._warnings and len(self._warnings) < 100:  # noqa: PLR2004 - a file must not flood its report
            self._warnings.append(warning)

    def first_heading(self) -> str | None:
        """The first heading of level 1."""
        return next((mark.text for mark in self._headings if mark.level == 1), None)

    def blocks(self) -> tuple[Block, ...]:
        """All blocks. Raises `PoisonError("no_text", ...)` where there is nothing but white space."""
        if not self._visible:
            raise PoisonError("no_text", "the file was read, but there is no text in it; a scan needs OCR first")
        return tuple(assemble(cut(self._pieces), pages=self._pages, headings=self._headings, warnings=self._warnings))


def assemble(
    texts: Iterable[str], *, pages: Sequence[PageMark] = (), headings: Sequence[HeadingMark] = (), warnings: Sequence[str] = ()
) -> Iterator[Block]:
    """Blocks of these texts, each with the marks that stand in it; warnings go with the first."""
    start = 0
    headings = sorted(headings, key=lambda mark: mark.start)
    for text in texts:
        end = start + len(text)
        yield Block(
            text=text,
            start=start,
            pages=tuple(_between(pages, start, end)),
            headings=tuple(_between(headings, start, end)),
            warnings=tuple(warnings) if start == 0 else (),
        )
        start = end


def _between(marks: Sequence[Mark], start: int, end: int) -> Sequence[Mark]:
    return marks[bisect_left(marks, start, key=_start) : bisect_left(marks, end, key=_start)]


def _start(mark: PageMark | HeadingMark) -> int:
    return mark.start


def peek(texts: Iterator[str]) -> tuple[str, Iterator[str]]:
    """The first text, or "" where there is none, and an iterator that still begins with it."""
    first = next(texts, "")
    return first, chain((first,) if first else (), texts)
