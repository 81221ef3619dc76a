"""Switches of a query in; the order, the thinning and the widening of permitted hits that they stand for out."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from ragstore.contracts import TextQuery, VectorQuery
from ragstore.embedding.hashing import HashEmbedder
from ragstore.errors import AccessError, ConfigError, QueryError
from ragstore.filters import ALWAYS, Filter
from ragstore.models import Hit, Match, Row
from ragstore.retrieval import Quality, Retrieval, Retriever
from ragstore.retrieval.candidates import Candidates
from ragstore.retrieval.fusion import fuse
from ragstore.retrieval.likeness import Likeness
from ragstore.retrieval.reordering import boosted, diverse
from ragstore.terms import words
from tests.support.library import ALICE, GROUPS, Library, Watching

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.node.name, GROUPS)


def leg(**scores: float) -> list[Match]:
    return [Match(chunk_id=name, document_id=name, text=name, score=score) for name, score in scores.items()]


def hit(chunk: str, score: float, text: str = "") -> Hit:
    place: dict[str, Any] = {"start": 0, "end": 1, "page": None, "heading": None, "title": None, "version": None, "etag": "e"}
    return Hit(blob=chunk, chunk=chunk, score=score, text=text or chunk, **place)


@pytest.mark.parametrize(
    "switches",
    [
        {"vector_weight": -0.1},
        {"vector_weight": math.nan},
        {"mmr": 1.1},
        {"near_duplicates": 0},
        {"half_life_days": -1},
        {"half_life_days": math.inf},
        {"neighbours": 11},
        {"neighbours": -1},
        {"fusion": "sum"},
    ],
)
async def test_a_switch_beyond_its_limits_is_an_error(library: Library, switches: dict[str, Any]) -> None:
    await library.add("a.md", "key")
    with pytest.raises(QueryError, match=next(iter(switches))):
        await library.blobs("key", **switches)


# Weights.


@pytest.mark.parametrize(
    ("weight", "expected"), [(0.5, {"b": 0.75, "a": 0.625}), (0.8, {"b": 0.6, "a": 0.85}), (1.0, {"b": 0.5, "a": 1.0})]
)
def test_a_weight_is_the_share_of_the_vector_leg(weight: float, expected: dict[str, float]) -> None:
    fused = fuse(leg(a=0.8, b=0.4), leg(b=12.0, a=3.0), fusion="max-norm", vector_complete=True, vector_weight=weight)
    assert dict(fused) == pytest.approx(expected)
    assert [chunk for chunk, _ in fused] == sorted(expected, key=lambda chunk: -expected[chunk])


def test_a_weight_counts_with_reciprocal_ranks_too() -> None:
    fused = dict(fuse(leg(a=0.8, b=0.4), leg(b=12.0), fusion="rrf", vector_complete=True, vector_weight=0.75))
    assert fused == pytest.approx({"a": 1.5 / 61, "b": 1.5 / 62 + 0.5 / 61})


async def test_the_weight_of_a_query_overrides_the_configured_one(library: Library) -> None:
    await library.add("a.md", "the key " * 3 + "of the cellar door")
    await library.add("b.md", "key")
    by_words = [match.score for match in await library.retriever().search("cellar key", principal=ALICE, vector_weight=0)]
    configured = Retriever(
        store=library.store, embedder=library.embedder, policy=GROUPS, committed=library.committed, quality=Quality(vector_weight=0)
    )
    assert [match.score for match in await configured.search("cellar key", principal=ALICE)] == by_words
    other = [match.score for match in await configured.search("cellar key", principal=ALICE, vector_weight=1)]
    assert other != by_words


# Near duplicates.


class EnglishOnly(HashEmbedder):
    """An embedder that says it reads Latin letters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = frozenset({"LATIN"})


async def test_words_decide_where_the_embedder_cannot_read_the_query(library: Library) -> None:
    candidates = [
        Candidates(store=library.store, embedder=embedder, query=query, filter=ALWAYS, legs="both", fusion="max-norm", vector_weight=weight)
        for query in ("ключ от подвала", "cellar key")
        for embedder, weight in (
            (EnglishOnly(), 0.5),
            (HashEmbedder(), 0.1),
            (HashEmbedder(), 0.5),
        )
    ]
    await library.add("a.md", "ключ подвал", "cellar key", "ключ от двери", "another key")
    unread, lighter, plain, read, _, as_read = [await one.best(10) for one in candidates]
    assert unread == lighter != plain
    assert read == as_read


async def test_of_texts_that_are_nearly_equal_the_best_is_shown(library: Library) -> None:
    await library.add("a.md", "every access key is replaced after ninety days by the night shift")
    await library.add("b.md", "Every access key is replaced after ninety days, by the late shift!")
    await library.add("c.md", "a key of brass")
    assert len(await library.blobs("access key replaced")) == 3
    assert sorted(await library.blobs("access key replaced", near_duplicates=0.7)) in (["a.md", "c.md"], ["b.md", "c.md"])


async def test_a_near_duplicate_that_may_not_be_read_hides_none_that_may(library: Library) -> None:
    await library.add("a.md", "every access key is replaced after ninety days", allow="bob")
    await library.add("b.md", "every access key is replaced after sixty days")
    retriever = library.retriever(store=Watching(library.store, obey=False))
    found = await retriever.search("every access key is replaced after ninety days", principal=ALICE, near_duplicates=0.5)
    assert [each.blob for each in found] == ["docs/b.md"]


async def test_the_limit_is_filled_behind_many_near_duplicates(library: Library) -> None:
    for number in range(150):
        await library.add(f"copy{number}.md", f"rotate the signing key of the cellar door every ninety days {number}")
    await library.add("other.md", "a key")
    for switches in ({}, {"mmr": 0.5}, {"half_life_days": 10.0}):
        assert len(await library.blobs("rotate the signing key", limit=2, near_duplicates=0.8, **switches)) == 2


@given(texts=st.lists(st.text("abc d", max_size=12), max_size=8), threshold=st.floats(0.05, 1))
def test_the_prefix_filter_misses_no_likeness(texts: list[str], threshold: float) -> None:
    likeness = Likeness(threshold)
    kept: list[set[str]] = []
    for number, text in enumerate(texts):
        own = set(words(text))
        alike = [place for place, other in enumerate(kept) if own and len(own & other) >= threshold * len(own | other) - 1e-9]
        assert likeness.find(text) == (alike[0] if alike else None)
        likeness.remember(number, text)
        kept.append(own)


# Diversity.


def test_mmr_chooses_by_the_published_formula() -> None:
    vectors = {"a": np.array([1, 0], np.float32), "b": np.array([0.96, 0.28], np.float32), "c": np.array([0, 1], np.float32)}
    hits = [hit("a", 1.0), hit("b", 0.9), hit("c", 0.5)]
    chosen = {share: [each.chunk for each in diverse(hits, vectors, relevance=share, limit=3)] for share in (1.0, 0.9, 0.5)}
    # After a, with lambda 0.5: b is worth 0.45 - 0.48, c 0.25 - 0; with 0.9: b 0.81 - 0.096, c 0.45.
    assert chosen == {1.0: ["a", "b", "c"], 0.9: ["a", "b", "c"], 0.5: ["a", "c", "b"]}
    assert [each.chunk for each in diverse(hits, vectors, relevance=0.5, limit=2)] == ["a", "c"]
    assert diverse([], {}, relevance=0.5, limit=3) == []


def test_a_hit_without_a_vector_is_like_no_other() -> None:
    hits = [hit("a", 1.0), hit("b", 0.9), hit("c", 0.1)]
    vectors = {"a": np.array([1, 0], np.float32), "b": np.array([1, 0], np.float32)}
    assert [each.chunk for each in diverse(hits, vectors, relevance=0.4, limit=3)] == ["a", "c", "b"]


async def test_mmr_asks_for_vectors_of_permitted_documents_only(library: Library) -> None:
    for number in range(6):
        await library.add(f"{number}.md", f"rotate the key number {number}")
    await library.add("secret.md", "rotate the key", allow="bob")
    await library.add("z.md", "brass key polish and other wares")

    class Asked(Watching):
        documents: tuple[str, ...] = ()

        @override
        def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
            self.documents = (*self.documents, *document_ids)
            return self.inner.rows(document_ids)

    store = Asked(library.store, obey=False)
    found = await library.retriever(store=store).search("rotate the key", principal=ALICE, limit=3, mmr=0.3)
    assert "docs/z.md" in [each.blob for each in found]
    assert set(store.documents) == {chunk.document_id for chunk in library.ledger.values() if chunk.blob.path != "secret.md"}


# Recency.


def test_recency_halves_at_most_and_by_its_half_life() -> None:
    ages = {"new": 0, "month": 30, "old": 30_000, "future": -9}
    modified = {name: NOW - timedelta(days=days) for name, days in ages.items()}
    hits = [hit(name, 0.8) for name in ("old", "month", "new", "future", "unknown")]
    scores = {each.chunk: each.score for each in boosted(hits, modified, half_life_days=30, now=NOW)}
    assert scores == pytest.approx({"new": 0.8, "future": 0.8, "unknown": 0.8, "month": 0.6, "old": 0.4})
    (below,) = boosted([hit("old", -0.2)], modified, half_life_days=30, now=NOW)
    assert below.score == pytest.approx(-0.3)


async def test_of_equally_good_hits_the_newer_comes_first(library: Library) -> None:
    for name, days in (("a.md", 900), ("b.md", 1)):
        [row] = await library.add(name, f"rotate key {name[0]}")
        library.ledger[row] = replace(library.ledger[row], modified=datetime.now(UTC) - timedelta(days=days))
    assert await library.blobs("rotate key", half_life_days=30) == ["b.md", "a.md"]


# Neighbours.


async def book(library: Library, *texts: str, allow: str = "staff", path: str = "book.md") -> list[str]:
    """A blob whose chunks stand behind each other with a blank between them; returns their ids."""
    rows = await library.add(path, *texts, allow=allow)
    start = 0
    for row, text in zip(rows, texts, strict=True):
        library.ledger[row] = replace(library.ledger[row], start=start, end=start + len(text))
        start += len(text) + 1
    return rows


def reader(library: Library, **options: Any) -> Retriever:
    order: dict[str, list[str]] = {}
    for row, chunk in library.ledger.items():
        order.setdefault(chunk.document_id, []).append(row)

    def around(ids: Sequence[str], number: int) -> Mapping[str, Sequence[tuple[int, str]]]:
        found = {}
        for row in ids:
            rows = order[library.ledger[row].document_id]
            places = ((place - rows.index(row), other) for place, other in enumerate(rows) if other != row)
            found[row] = sorted((pair for pair in places if abs(pair[0]) <= number), key=lambda pair: (abs(pair[0]), pair[0]))
        return found

    given: dict[str, Any] = {"store": library.store, "committed": library.committed, "around": around, **options}
    return Retriever(embedder=library.embedder, policy=GROUPS, **given)


TEXTS = ("First it rains.", "Then a halyard snaps.", "Last the sun shines.", "The end.")


async def test_a_hit_brings_the_text_around_it_at_its_exact_span(library: Library) -> None:
    await book(library, *TEXTS)
    [found] = await reader(library).search("halyard", principal=ALICE, limit=1, neighbours=1)
    assert (found.text, found.start) == (" ".join(TEXTS[:3]), 0)
    assert found.end - found.start == len(found.text)
    [narrow] = await reader(library).search("halyard", principal=ALICE, limit=1)
    assert (narrow.text, narrow.start, narrow.chunk) == (TEXTS[1], 16, found.chunk)


async def test_no_text_is_given_twice_where_hits_are_near_each_other(library: Library) -> None:
    await book(library, *TEXTS)
    found = await reader(library).search("halyard sun", principal=ALICE, limit=2, neighbours=2)
    assert len(found) == 2
    assert " ".join(each.text for each in sorted(found, key=lambda each: each.start)) == " ".join(TEXTS)


async def test_every_chunk_that_is_shown_is_recorded_and_stands_behind_its_hit(library: Library) -> None:
    rows = await book(library, *TEXTS)
    records: list[Retrieval] = []
    found = await reader(library, observe=records.append).search("halyard", principal=ALICE, limit=1, neighbours=1, join=False)
    assert [each.chunk for each in found] == [rows[1], rows[0], rows[2]] == list(records[0].returned)
    assert all(each.end - each.start == len(each.text) for each in found)


async def test_a_neighbour_that_may_not_be_read_or_is_not_committed_is_not_shown(library: Library) -> None:
    rows = await book(library, *TEXTS)
    hidden = await book(library, "secret", path="secret.md", allow="bob")
    forbidden = library.ledger[hidden[0]]
    library.ledger[rows[0]] = replace(
        library.ledger[rows[0]], generation_access=forbidden.generation_access, current_access=forbidden.current_access
    )
    retriever = reader(library)
    del library.ledger[rows[2]]
    [found] = await retriever.search("halyard", principal=ALICE, limit=1, neighbours=1)
    assert found.text == TEXTS[1]


async def test_a_neighbour_of_another_version_of_the_blob_is_not_shown(library: Library) -> None:
    rows = await book(library, *TEXTS)
    library.ledger[rows[2]] = replace(library.ledger[rows[2]], etag="later")
    [found] = await reader(library).search("halyard", principal=ALICE, limit=1, neighbours=1)
    assert found.text == " ".join(TEXTS[:2])


async def test_a_break_between_chunks_ends_the_widening(library: Library) -> None:
    rows = await book(library, *TEXTS)
    for row in rows[2:]:
        library.ledger[row] = replace(library.ledger[row], start=library.ledger[row].start + 90, end=library.ledger[row].end + 90)
    [found] = await reader(library).search("halyard", principal=ALICE, limit=1, neighbours=2)
    assert found.text == " ".join(TEXTS[:2])


async def test_without_the_ledger_no_neighbour_and_no_hit_is_shown(library: Library) -> None:
    await book(library, *TEXTS)

    def away(ids: Sequence[str], number: int) -> Mapping[str, Sequence[tuple[int, str]]]:
        raise OSError("gone")

    with pytest.raises(AccessError):
        await reader(library, around=away).search("halyard", principal=ALICE, neighbours=1)
    with pytest.raises(ConfigError, match="order"):
        await library.retriever().search("halyard", principal=ALICE, neighbours=1)


EVERY: dict[str, Any] = {"vector_weight": 0.7, "near_duplicates": 0.7, "mmr": 0.5, "half_life_days": 30.0, "neighbours": 1}


@pytest.mark.parametrize("obey", [True, False])
async def test_what_may_not_be_read_moves_no_score_and_no_rank_whatever_is_switched_on(library: Library, *, obey: bool) -> None:
    for number in range(8):
        await book(library, f"rotate the key number {number} of the cellar", f"then polish lock {number}", path=f"{number}.md")
    store = Watching(library.store, obey=obey)
    asking = {"principal": ALICE, "limit": 4, "legs": "vector", **EVERY}
    before = await reader(library, store=store).search("rotate the key", **asking)
    for number in range(40):
        await library.add(f"secret/{number}.md", "rotate the key number 3 of the cellar", f"rotate key {number}", allow="bob")
    after = await reader(library, store=store).search("rotate the key", **asking)
    assert [(hit.chunk, hit.text) for hit in after] == [(hit.chunk, hit.text) for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before])


async def test_that_a_store_lags_behind_a_revocation_moves_no_score_and_no_rank(library: Library) -> None:
    for number in range(60):
        await library.add(f"{number}.md", f"key lock{number} door{number}")
    store = Watching(library.store, obey=False)
    before = await reader(library, store=store).search("key", principal=ALICE)
    await library.add("secret.md", "key key key", allow="bob")
    after = await reader(library, store=store).search("key", principal=ALICE)
    assert [hit.chunk for hit in after] == [hit.chunk for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before])


class LaggingNearby(Watching):
    """Proposes, as the nearest vector of all, a row that may not be read any more."""

    hidden: Match | None = None

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        found = await super().search(query, filter=filter, limit=limit)
        return [self.hidden, *found][:limit] if self.hidden and isinstance(query, VectorQuery) else found


async def test_a_row_that_may_not_be_read_any_more_moves_no_score_either_where_it_ranks_too_low_to_be_looked_at(library: Library) -> None:
    for number in range(60):
        await library.add(f"{number}.md", f"key lock{number} door{number}")
    await library.add("secret.md", "nothing of that kind", allow="bob")
    (secret,) = [chunk for chunk in library.ledger.values() if chunk.blob.path == "secret.md"]
    store = LaggingNearby(library.store)
    before = await reader(library, store=store).search("key", principal=ALICE, vector_weight=0.05)
    store.hidden = Match(chunk_id=secret.chunk_id, document_id=secret.document_id, text="nothing of that kind", score=10.0)
    after = await reader(library, store=store).search("key", principal=ALICE, vector_weight=0.05)
    assert [hit.chunk for hit in after] == [hit.chunk for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before])
