"""Permitted hits in order of relevance in, those worth showing out: no text twice, and not too many of one blob."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ragstore.models import Hit
from ragstore.retrieval.likeness import Likeness


class Selection:
    """Takes hits best first and keeps up to `limit` of them.

    - Of hits with the same text the first stays, in its place; only a copy in a blob that is up to date replaces one that is stale.
    - With `near_duplicates` below 1, texts whose sets of words are that alike (Jaccard) count as the same.
    - At most `per_blob` hits of one blob, where that is given.

    Only permitted hits may be added: a copy that the caller may not read must not hide one that it may.
    """

    def __init__(self, *, limit: int, per_blob: int | None, near_duplicates: float = 1.0) -> None:
        self._limit = limit
        self._per_blob = per_blob
        self._places: dict[str, int] = {}
        self._likeness = Likeness(near_duplicates) if near_duplicates < 1 else None
        self._blobs: Counter[str] = Counter()
        self._hits: list[Hit] = []

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._hits) >= self._limit

    @property
    def hits(self) -> list[Hit]:
        """What was kept, best first."""
        return list(self._hits)

    def add(self, hit: Hit) -> None:
        """Keep the hit if it says something new."""
        place = self._place(hit.text)
        if place is not None:
            self._replace(place, hit)
        elif not self.full and not self._exhausted(hit.blob):
            self._remember(len(self._hits), hit.text)
            self._blobs[hit.blob] += 1
            self._hits.append(hit)

    def _place(self, text: str) -> int | None:
        """Where a hit stands that says the same."""
        place = self._places.get(text)
        return self._likeness.find(text) if place is None and self._likeness is not None else place

    def _remember(self, place: int, text: str) -> None:
        self._places[text] = place
        if self._likeness is not None:
            self._likeness.remember(place, text)

    def _replace(self, place: int, hit: Hit) -> None:
        kept = self._hits[place]
        if kept.stale and not hit.stale and (hit.blob == kept.blob or not self._exhausted(hit.blob)):
            self._blobs[kept.blob] -= 1
            self._blobs[hit.blob] += 1
            self._hits[place] = hit
            self._remember(place, hit.text)

    def _exhausted(self, blob: str) -> bool:
        return self._per_blob is not None and self._blobs[blob] >= self._per_blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """What a `Selection` is made with, for whoever has to begin anew."""

    limit: int
    per_blob: int | None = None
    near_duplicates: float = 1.0

    @property
    def only_copies(self) -> bool:
        """Whether nothing but equal texts is left out."""
        return self.per_blob is None and self.near_duplicates == 1

    def begin(self) -> Selection:
        """An empty one."""
        return Selection(limit=self.limit, per_blob=self.per_blob, near_duplicates=self.near_duplicates)
