"""Hits in; the chunks beside them that pass the same door, each behind the hit that it stands beside or joined to it, out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragstore.models import Hit

Around = Callable[[Sequence[str], int], Mapping[str, Sequence[tuple[int, str]]]]
"""Chunk ids and a number in; for each the chunks of its document up to so many places away, with that distance (negative: before it), out:
nearest first. Called in a worker thread; whatever it raises denies."""
Permitted = Callable[[Sequence[str]], Awaitable[Mapping[str, Hit]]]
"""Chunk ids in, hits with score 0 for those that may be shown out."""

_WIDEST: Final = 16
"""Characters between two chunks that are still joined: chunking leaves out the white space at a cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Widened:
    """A hit and what came with it."""

    hit: Hit
    beside: tuple[Hit, ...]
    """Nearest first, with the score of the hit."""

    def joined(self) -> Hit:
        """One hit over the span of all that adjoin without a break: its text has as many characters as its span.

        The white space of each cut is given back as blank or newlines. Page and heading are those of the hit.
        """
        if not self.beside:
            return self.hit
        parts = sorted((self.hit, *self.beside), key=lambda part: part.start)
        middle = parts.index(self.hit)
        first = last = middle
        while first > 0 and _adjoin(parts[first - 1], parts[first]):
            first -= 1
        while last + 1 < len(parts) and _adjoin(parts[last], parts[last + 1]):
            last += 1
        text = parts[first].text
        for before, part in zip(parts[first:last], parts[first + 1 : last + 1], strict=True):
            gap = part.start - before.end
            text += (" " if gap == 1 else "\n" * gap) + part.text
        return replace(self.hit, text=text, start=parts[first].start, end=parts[last].end)


async def widened(hits: Sequence[Hit], around: Mapping[str, Sequence[tuple[int, str]]], permitted: Permitted) -> list[Widened]:
    """Each hit with its neighbours; no chunk is there twice, and what is a hit itself is no neighbour.

    A neighbour must be of the same version of the blob: one that was indexed in between says nothing about the text around the hit.
    """
    given = {hit.chunk for hit in hits}
    wanted: dict[str, list[str]] = {}
    for hit in hits:
        beside = list(_reachable(around.get(hit.chunk, ()), given))
        wanted[hit.chunk] = beside
        given.update(beside)
    found = await permitted([chunk for beside in wanted.values() for chunk in beside])
    result = []
    for hit in hits:
        parts = (found[chunk] for chunk in wanted[hit.chunk] if chunk in found)
        same = tuple(replace(part, score=hit.score) for part in parts if _version(part) == _version(hit))
        result.append(Widened(hit=hit, beside=same))
    return result


def _reachable(around: Iterable[tuple[int, str]], given: set[str]) -> Iterable[str]:
    """The neighbours up to the first on each side that is given already."""
    ended: set[bool] = set()
    for distance, chunk in around:
        if chunk in given:
            ended.add(distance < 0)
        elif (distance < 0) not in ended:
            yield chunk


def _version(hit: Hit) -> tuple[str, str, str | None]:
    return hit.blob, hit.etag, hit.version


def _adjoin(first: Hit, second: Hit) -> bool:
    exact = all(part.end - part.start == len(part.text) for part in (first, second))
    return exact and 0 <= second.start - first.end <= _WIDEST
