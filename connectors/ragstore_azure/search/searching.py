"""A query and a condition in, the best rows out: exact wherever the graph of nearest neighbours would lose rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ragstore.errors import ConfigError
from ragstore.models import Match
from ragstore.terms import query_terms
from ragstore_azure.search.schema import terms_of
from ragstore_azure.search.strings import chunk_of, original

if TYPE_CHECKING:
    import numpy as np
    from azure.search.documents.aio import SearchClient
    from numpy.typing import NDArray

    from ragstore_azure.search.service import Service

PAGE: Final = 1_000
"""The most that one answer holds (`top`)."""
MOST: Final = 10_000
"""Rows of one search. `skip` would reach 100,000; of `k` nobody says how large it may be."""
_QUERY_TERMS: Final = 1_024
"""A longer text query, such as a whole document, is cut: further terms cost time and hardly change the ranking."""
_RERANKED: Final = 50
"""The semantic ranker looks at so many."""
_FIELDS: Final = ["key", "document_id", "text"]
_TOTAL_SECONDS: Final = 60.0


class Searcher:
    """Searches of one index."""

    def __init__(self, service: Service, *, exact_below: int, semantic: str | None) -> None:
        self._service = service
        self._exact_below = exact_below
        self._semantic = semantic
        self._total: tuple[float, int] = (float("-inf"), 0)

    async def nearest(self, vector: NDArray[np.float32], odata: str | None, limit: int) -> list[Match]:
        """The `min(limit, rows admitted)` nearest rows by cosine, best first.

        The rule (design: filtered search): where few rows are admitted, all of them are compared; where many, the graph is searched, and
        all of them after all if that did not fill the limit.
        """
        _within(limit)
        asked = _Vector(vector=vector.tolist(), odata=odata, limit=limit)
        admitted = await self._rows()
        if admitted > self._exact_below and odata is not None:
            admitted = await self._service.read(lambda client: count(client, odata)) or 0
        if admitted > self._exact_below:
            found = await self._service.read(lambda client: asked.run(client, exhaustive=False)) or []
            if len(found) >= min(limit, admitted):
                return _ranked(found)
        return _ranked(await self._service.read(lambda client: asked.run(client, exhaustive=True)) or [])

    async def best(self, text: str, odata: str | None, limit: int) -> list[Match]:
        """At most `limit` rows that share a term with the text, best first. The text is data: no character of it is query syntax."""
        _within(limit)
        # Terms are letters and digits; the quotes say so to the parser too, for which some letters might be operators one day.
        words = terms_of(list(dict.fromkeys(query_terms(text)))[:_QUERY_TERMS])
        if not words:
            return []
        asked = _Text(words=" ".join(f'"{word}"' for word in words.split()), odata=odata, limit=limit)
        found = await self._service.read(asked.run) or []
        semantic = self._semantic
        if semantic is None:
            return _ranked(found)
        reranked = await self._service.read(lambda client: asked.rerank(client, semantic, text)) or []
        first = {match.chunk_id for match in reranked}
        rest = [match for match in _ranked(found) if match.chunk_id not in first]
        return [*_ranked(reranked), *(_below_one(match) for match in rest)][:limit]

    async def _rows(self) -> int:
        """How many rows there are, as of a minute ago: it only decides how to search."""
        moment = time.monotonic()
        if moment - self._total[0] > _TOTAL_SECONDS:
            self._total = (moment, await self._service.read(lambda client: count(client, None)) or 0)
        return self._total[1]


async def count(client: SearchClient, odata: str | None) -> int:
    """How many rows satisfy the condition."""
    found = await client.search(search_text="*", filter=odata, top=0, include_total_count=True)
    return int(await found.get_count() or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vector:
    vector: list[float]
    odata: str | None
    limit: int

    async def run(self, client: SearchClient, *, exhaustive: bool) -> list[Match]:
        from azure.search.documents.models import VectorizedQuery

        query = VectorizedQuery(vector=[], k_nearest_neighbors=self.limit, fields="vector", exhaustive=exhaustive)
        query["vector"] = self.vector  # the constructor looks for a date in every number
        found = await _pages(client, self.limit, vector_queries=[query], filter=self.odata, vector_filter_mode="preFilter", select=_FIELDS)
        # https://learn.microsoft.com/azure/search/vector-search-ranking: the score is 1 / (1 + distance), the distance 1 - cosine.
        return [_match(one, 2.0 - 1.0 / one["@search.score"]) for one in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    words: str
    odata: str | None
    limit: int

    async def run(self, client: SearchClient) -> list[Match]:
        found = await _pages(client, self.limit, query_type="simple", **self._query())
        return [_match(one, one["@search.score"]) for one in found]

    async def rerank(self, client: SearchClient, semantic: str, text: str) -> list[Match]:
        """The first of them with the score of the semantic ranker, 0 to 4, above every score of `_below_one`."""
        found = await _pages(
            client,
            min(self.limit, _RERANKED),
            query_type="semantic",
            semantic_configuration_name=semantic,
            semantic_query=text,
            semantic_error_mode="partial",
            **self._query(),
        )
        return [_match(one, 1.0 + one["@search.reranker_score"]) for one in found if one.get("@search.reranker_score") is not None]

    def _query(self) -> dict[str, Any]:
        return {
            "search_text": self.words,
            "search_fields": ["terms"],
            "search_mode": "any",
            "scoring_statistics": "global",
            "filter": self.odata,
            "select": _FIELDS,
        }


async def _pages(client: SearchClient, limit: int, **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - the SDK's own arguments
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        top = min(PAGE, limit - len(found))
        page = [one async for one in await client.search(top=top, skip=len(found) or None, **query)]
        found += page
        if len(page) < top:
            break
    return found


def _within(limit: int) -> None:
    if limit > MOST:
        raise ConfigError(f"AI Search gives {MOST:,} rows at most, not {limit:,}; ask for fewer")


def _below_one(match: Match) -> Match:
    score = match.score / (1.0 + match.score)
    return Match(chunk_id=match.chunk_id, document_id=match.document_id, text=match.text, score=score)


def _match(document: dict[str, Any], score: float) -> Match:
    return Match(
        chunk_id=chunk_of(document["key"]), document_id=original(document["document_id"]), text=original(document["text"]), score=score
    )


def _ranked(found: list[Match]) -> list[Match]:
    return sorted(found, key=lambda match: (-match.score, match.chunk_id))
