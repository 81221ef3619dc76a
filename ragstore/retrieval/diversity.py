"""Permitted hits in order of relevance in, those worth showing out: no text twice, and not too many of one blob."""

from __future__ import annotations

from collections import Counter

from ragstore.models import Hit


class Selection:
    """Takes hits best first and keeps up to `limit` of them.

    - Of hits with the same text the first stays, in its place; only a copy in a blob that is up to date replaces one that is stale.
    - At most `per_blob` hits of one blob, where that is given.

    Only permitted hits may be added: a copy that the caller may not read must not hide one that it may.
    """

    def __init__(self, *, limit: int, per_blob: int | None) -> None:
        self._limit = limit
        self._per_blob = per_blob
        self._places: dict[str, int] = {}
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
        place = self._places.get(hit.text)
        if place is not None:
            self._replace(place, hit)
        elif not self.full and not self._exhausted(hit.blob):
            self._places[hit.text] = len(self._hits)
            self._blobs[hit.blob] += 1
            self._hits.append(hit)

    def _replace(self, place: int, hit: Hit) -> None:
        kept = self._hits[place]
        if kept.stale and not hit.stale and (hit.blob == kept.blob or not self._exhausted(hit.blob)):
            self._blobs[kept.blob] -= 1
            self._blobs[hit.blob] += 1
            self._hits[place] = hit

    def _exhausted(self, blob: str) -> bool:
        return self._per_blob is not None and self._blobs[blob] >= self._per_blob
