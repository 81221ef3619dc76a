"""Blocks of one document in, chunks out, none of them blank and none over the size, with the page and the headings they stand under."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ragstore.chunking.estimate import UNIT
from ragstore.chunking.fences import fences
from ragstore.chunking.graphemes import joined
from ragstore.chunking.measure import Measure
from ragstore.errors import ConfigError, PoisonError
from ragstore.models import Block, Chunk, HeadingMark, text_hash

if TYPE_CHECKING:
    from ragstore.chunking.separators import Separators
    from ragstore.chunking.splitter import Structure

CHUNKER_VERSION: Final = "1"
"""Part of the fingerprint: raise it when the same text would be cut in another way."""

SMALLEST_SIZE: Final = 16
"""Below this a single character could be over the size."""

_HEADING_JOIN: Final = " > "
_MARGIN: Final = 0.9
"""When a chunk turns out to have too many tokens, its parts aim at this much of the size."""

_LONGEST_CLUSTER: Final = 64
"""Characters that a base and its marks may have before they are cut inside."""

Span = tuple[int, int]


class Chunker:
    """Cuts documents into chunks of at most `size` tokens as `count_tokens` counts them.

    Where `scripts` names those that the embedder knows, letters of other alphabets count as little as a multilingual model would count
    them (`chunking.measure`), and the embedder gets longer texts, of which it reads the beginning.

    `min_ratio` is the part of the size that a chunk should have at least before it may end: smaller gives boundaries that survive
    more edits, and smaller chunks. Raises `ConfigError` for a size below 16 or a ratio outside 0 to 0.5.
    """

    fingerprint: str
    """Covers all that decides where this class cuts, except for the tokenizer."""

    def __init__(
        self,
        *,
        size: int = 254,
        count_tokens: Callable[[Sequence[str]], list[int]],
        min_ratio: float = 0.3,
        scripts: frozenset[str] | None = None,
    ) -> None:
        if size < SMALLEST_SIZE:
            raise ConfigError(f"chunk size {size} is too small; use {SMALLEST_SIZE} tokens or more")
        if not 0 < min_ratio <= 0.5:  # noqa: PLR2004 - above a half, two parts could not share what is over the size
            raise ConfigError(f"min_ratio {min_ratio} is out of range; use a number over 0 and up to 0.5")
        self._size = size
        self._measure = Measure(count_tokens, scripts=scripts)
        self._min_ratio = min_ratio
        self.fingerprint = f"stable-{CHUNKER_VERSION}:size={size}:min_ratio={min_ratio}{self._measure.fingerprint}"

    def document(self, media_type: str) -> DocumentChunker:
        """A chunker for the blocks of one document of this media type."""
        # The library takes most of a second to import: only who chunks pays for it.
        from ragstore.chunking.separators import separators

        return DocumentChunker(separators=separators(media_type), size=self._size, measure=self._measure, min_ratio=self._min_ratio)


class DocumentChunker:
    """Chunks the blocks of one document in their order; knows the page, headings and code fence that are open between blocks."""

    def __init__(self, *, separators: Separators, size: int, measure: Measure, min_ratio: float) -> None:
        self._separators = separators
        self._size = size
        self._measure = measure
        self._min_ratio = min_ratio
        self._page: int | None = None
        self._path: list[HeadingMark] = []
        self._fence: str | None = None

    def chunk(self, block: Block) -> list[Chunk]:
        """The chunks of this block, in order; together they hold every character of it that is not white space."""
        from ragstore.chunking.splitter import Structure

        spans, self._fence = fences(block.text, self._fence) if self._separators.structure is None else ([], None)
        structure = Structure(headings=((mark.start - block.start, mark) for mark in block.headings), fences=spans)
        parts = [part for page in _pages(block) for part in self._parts(block.text, structure, page, self._size * UNIT)]
        return list(self._placed(block, self._within_size(block.text, structure, parts)))

    def _parts(self, text: str, structure: Structure, span: Span, limit: int) -> list[Span]:
        """Parts of the span up to about `limit` hundredths of a token, trimmed, blank ones left out."""
        from ragstore.chunking.splitter import StableSplitter

        splitter = StableSplitter(separators=self._separators, measure=self._measure, limit=limit, min_ratio=self._min_ratio)
        parts = []
        start = span[0]
        for end in splitter.cuts(text, structure, *span):
            if trimmed := _trimmed(text, start, end):
                parts.append(trimmed)
            start = end
        return parts

    def _within_size(self, text: str, structure: Structure, spans: list[Span]) -> list[Span]:
        """The spans, those over the size replaced by their parts. How one is cut depends on its own text only."""
        counts = self._measure.count([text[start:end] for start, end in spans]) if spans else []
        finished: list[Span] = []
        over: list[Span] = []
        for span, count in zip(spans, counts, strict=True):
            if count <= self._size:
                finished.append(span)
            else:
                over.extend(self._smaller(text, structure, span, count))
        if not over:
            return finished
        return sorted(finished + self._within_size(text, structure, over))

    def _smaller(self, text: str, structure: Structure, span: Span, count: int) -> list[Span]:
        """At least two parts of a span that has `count` tokens."""
        start, end = span
        limit = int(self._measure.estimate(text[start:end]) * self._size * _MARGIN / count)
        parts = self._parts(text, structure, span, limit)
        if parts != [span]:
            return parts
        middle = _middle(text, start, end)
        halves = (_trimmed(text, start, middle), _trimmed(text, middle, end))
        return [half for half in halves if half]

    def _placed(self, block: Block, spans: list[Span]) -> Iterator[Chunk]:
        """Chunks with global offsets, pages and headings; moves the open page and headings on to the end of the block."""
        page_starts = [mark.start for mark in block.pages]
        headings = iter(block.headings)
        upcoming = next(headings, None)
        heading = self._heading()
        for start, end in spans:
            text = block.text[start:end]
            place = block.start + start
            moved = False
            while upcoming is not None and upcoming.start <= place:
                self._enter(upcoming)
                upcoming, moved = next(headings, None), True
            heading = self._heading() if moved else heading
            index = bisect_right(page_starts, place)
            page = block.pages[index - 1].number if index else self._page
            yield Chunk(text=text, start=place, end=block.start + end, page=page, heading=heading, text_hash=text_hash(text))
        for mark in (upcoming, *headings):
            if mark is not None:
                self._enter(mark)
        if block.pages:
            self._page = block.pages[-1].number

    def _enter(self, mark: HeadingMark) -> None:
        while self._path and self._path[-1].level >= mark.level:
            self._path.pop()
        self._path.append(mark)

    def _heading(self) -> str | None:
        return _HEADING_JOIN.join(mark.text for mark in self._path) or None


def _pages(block: Block) -> list[Span]:
    """The block's text page by page, in offsets of the block: no chunk stands on two pages, so that a citation names the right one."""
    starts = [mark.start - block.start for mark in block.pages if mark.start > block.start]
    return list(zip([0, *starts], [*starts, len(block.text)], strict=True))


def _trimmed(text: str, start: int, end: int) -> Span | None:
    """The span without white space at its ends, or None where nothing is left."""
    part = text[start:end]
    stripped = part.strip()
    if not stripped:
        return None
    start += len(part) - len(part.lstrip())
    return (start, start + len(stripped))


def _middle(text: str, start: int, end: int) -> int:
    """The offset near the middle where a cut parts nothing that belongs together, or the very middle where there is none.

    Raises `PoisonError` where the span is a single character, which nobody can make smaller.
    """
    if end - start < 2:  # noqa: PLR2004 - two characters can be parted
        raise PoisonError("embedding_refused", f"the tokenizer counts too many tokens for one character, {text[start:end]!r}")
    middle = (start + end) // 2
    nearby = range(max(start + 1, middle - _LONGEST_CLUSTER), min(end, middle + _LONGEST_CLUSTER))
    nearest = sorted(nearby, key=lambda offset: abs(offset - middle))
    return next((offset for offset in nearest if not joined(text, offset, start)), middle)
