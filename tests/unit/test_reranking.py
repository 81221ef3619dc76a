"""A reranker in; that it orders what may be read, sees nothing else, and costs no search its answer, out."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import Reranker, Store
from ragstore.errors import ConfigError, QueryError, RagstoreError, TransientError
from ragstore.models import Hit
from ragstore.retrieval import Quality, Retriever
from ragstore.terms import row_terms
from ragstore.testing.rerankers import RerankerSuite
from tests.support.library import ALICE, GROUPS, Library, Watching

CANARY = "quokka"
QUERY = "rotate the key"
SWITCHES: list[dict[str, Any]] = [
    {},
    {"mmr": 0.5},
    {"mmr": 0.0, "limit": 40},
    {"neighbours": 2},
    {"half_life_days": 9.0},
    {"near_duplicates": 0.5},
    {"per_blob": 1},
    {"fusion": "rrf"},
    {"legs": "vector"},
    {"legs": "text"},
    {"limit": 300},
    {"filter": "path exists or not path exists"},
    {"mmr": 0.5, "neighbours": 3, "half_life_days": 9.0, "near_duplicates": 0.5, "per_blob": 2, "limit": 60},
]


class SharedWords(Reranker):
    """The whole of a reranker of one's own: how large a share of a text's words is in the query. Remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @override
    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.seen += texts
        asked = set(row_terms(query))
        return [len(asked & (words := set(row_terms(text)))) / (len(asked | words) or 1) for text in texts]


class TestSharedWords(RerankerSuite):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return SharedWords()


class Answering(Reranker):
    """Answers what it was made with, or raises it."""

    def __init__(self, answer: Sequence[float] | Exception) -> None:
        self.answer = answer
        self.calls = 0

    @override
    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer)


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.node.name, GROUPS)


def reader(library: Library, reranker: Reranker | None, *, store: Store | None = None, quality: Quality = Quality()) -> Retriever:  # noqa: B008
    def around(chunk_ids: Sequence[str], number: int) -> Mapping[str, Sequence[tuple[int, str]]]:
        """All chunks of a blob stand side by side, whoever may read them."""
        known, order = library.ledger, list(library.ledger)
        return {
            chunk: [
                (other - order.index(chunk), order[other]) for other in range(len(order)) if 0 < abs(other - order.index(chunk)) <= number
            ]
            for chunk in chunk_ids
            if chunk in known
        }

    return Retriever(
        store=store or library.store,
        embedder=library.embedder,
        policy=library.policy,
        committed=library.committed,
        reranker=reranker,
        quality=quality,
        around=around,
    )


async def found(retriever: Retriever, **options: Any) -> list[Hit]:
    return await retriever.search(QUERY, principal=ALICE, **options)


async def fill(library: Library) -> None:
    for name, text in (
        ("a.md", QUERY),
        ("b.md", "rotate the lock of the cellar"),
        ("c.md", "a key to the attic"),
        ("d.md", "soup on Mondays"),
    ):
        await library.add(name, text)


# What it sees.


@pytest.mark.parametrize("obey", [True, False])
@pytest.mark.parametrize("options", SWITCHES, ids=str)
async def test_no_text_that_may_not_be_read_is_seen_whatever_is_switched_on(
    library: Library, options: dict[str, Any], *, obey: bool
) -> None:
    for number in range(30):
        await library.add(f"mine/{number}.md", f"rotate the key number {number}", f"and then polish lock {number}")
        await library.add(f"hidden/{number}.md", f"rotate the key {CANARY}{number}", f"{QUERY} {CANARY}", allow="bob")
        await library.add(f"gone/{number}.md", f"rotate the key {CANARY} gone {number}", commit=False)
    reranker = SharedWords()
    hits = await found(reader(library, reranker, store=Watching(library.store, obey=obey)), **options)
    assert hits
    assert reranker.seen
    assert not any(CANARY in text for text in [*reranker.seen, *(hit.text for hit in hits)])


async def test_neighbours_are_brought_behind_its_back(library: Library) -> None:
    await library.add("a.md", QUERY, "soup on Mondays")
    reranker = SharedWords()
    hits = await found(reader(library, reranker), limit=1, neighbours=1, legs="text", join=False)
    assert [hit.text for hit in hits] == [QUERY, "soup on Mondays"]
    assert reranker.seen == [QUERY]


async def test_it_sees_fifty_texts_and_more_only_where_more_are_asked_for(library: Library) -> None:
    await library.add("big.md", *(f"rotate the key {number}" for number in range(300)))
    for limit, expected in ((1, 50), (8, 50), (120, 120)):
        reranker = SharedWords()
        assert len(await found(reader(library, reranker), limit=limit)) == limit
        assert len(reranker.seen) == expected


async def test_a_limit_per_blob_is_filled_though_one_blob_has_all_of_the_best(library: Library) -> None:
    await library.add("big.md", *(f"{QUERY} {number}" for number in range(200)))
    for number in range(9):
        await library.add(f"{number}.md", f"something long that ends with a word about a key of number {number}")
    for per_blob, limit in ((1, 8), (2, 10), (3, 8)):
        reranker = SharedWords()
        hits = await found(reader(library, reranker), limit=limit, per_blob=per_blob)
        assert len(hits) == min(limit, 9 + per_blob)
        assert sum(hit.blob == "docs/big.md" for hit in hits) == per_blob
        assert len(reranker.seen) <= 50


# What it decides.


async def test_hits_have_its_order_and_its_scores(library: Library) -> None:
    await fill(library)
    plain = await found(reader(library, None))
    reversing = Answering([float(number) for number, _ in enumerate(plain)])
    hits = await found(reader(library, reversing))
    assert [hit.chunk for hit in hits] == [hit.chunk for hit in reversed(plain)]
    assert [hit.score for hit in hits] == [3.0, 2.0, 1.0, 0.0]


async def test_variety_and_recency_work_on_its_scores(library: Library) -> None:
    await fill(library)
    plain = await found(reader(library, None))
    twice = Answering([0.1, 0.9, 0.8, 0.7])
    for options in ({"mmr": 0.9}, {"half_life_days": 30.0}):
        hits = await found(reader(library, twice), limit=1, **options)
        assert [hit.chunk for hit in hits] == [plain[1].chunk]


async def test_a_query_may_leave_it_out_and_ask_for_it(library: Library) -> None:
    await fill(library)
    reranker = SharedWords()
    for quality, said, sees in (
        (Quality(), {}, True),
        (Quality(), {"rerank": True}, True),
        (Quality(), {"rerank": False}, False),
        (Quality(rerank=False), {}, False),
        (Quality(rerank=False), {"rerank": True}, True),
        (Quality(rerank=True), {"rerank": False}, False),
    ):
        reranker.seen.clear()
        assert await found(reader(library, reranker, quality=quality), **said)
        assert bool(reranker.seen) is sees, (quality, said)


async def test_to_ask_for_one_that_is_not_there_is_an_error_before_anything_is_searched(library: Library) -> None:
    await fill(library)
    store = Watching(library.store)
    with pytest.raises(QueryError, match=r"no reranker here.*\[reranker\]"):
        await found(reader(library, None, store=store), rerank=True)
    assert store.asked == []
    assert await found(reader(library, None), rerank=False) == await found(reader(library, None))
    with pytest.raises(QueryError, match="rerank must be true or false"):
        await found(reader(library, None), rerank="yes")


# Where it fails.


@pytest.mark.parametrize(
    "answer",
    [
        TransientError(f"throttled while it read {CANARY}"),
        RagstoreError(f"refused {CANARY}"),
        RuntimeError(f"out of memory {CANARY}"),
        TimeoutError(),
        [],
        [1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [math.nan, math.inf, -math.inf, math.nan],
    ],
    ids=repr,
)
@pytest.mark.parametrize("options", [{}, {"mmr": 0.5}, {"per_blob": 1}, {"half_life_days": 30.0}, {"neighbours": 1}], ids=str)
async def test_a_reranker_that_fails_costs_its_order_and_not_the_answer(
    library: Library, caplog: pytest.LogCaptureFixture, answer: Sequence[float] | Exception, options: dict[str, Any]
) -> None:
    await fill(library)
    reranker = Answering(answer)
    with caplog.at_level(logging.DEBUG, "ragstore"):
        hits = await found(reader(library, reranker), **options)
    plain = await found(reader(library, None), **options)
    assert [(hit.chunk, hit.text) for hit in hits] == [(hit.chunk, hit.text) for hit in plain]
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in plain])
    assert reranker.calls == 1
    [record] = caplog.records
    kind = type(answer).__name__ if isinstance(answer, Exception) else "TransientError"
    assert (record.getMessage(), record.levelno, vars(record)["error"]) == ("retrieval.reranker_failed", logging.WARNING, kind)
    assert CANARY not in str(vars(record))


async def test_one_that_is_set_up_wrongly_is_shown(library: Library) -> None:
    await fill(library)
    with pytest.raises(ConfigError, match="refuses the key"):
        await found(reader(library, Answering(ConfigError("refuses the key"))))


async def test_a_score_that_is_no_number_is_the_last_and_can_be_written_as_json(library: Library) -> None:
    await fill(library)
    plain = await found(reader(library, None))
    for options in ({}, {"mmr": 0.9}, {"half_life_days": 30.0}):
        hits = await found(reader(library, Answering([math.nan, -0.5, math.inf, 0.5])), **options)
        assert [hit.chunk for hit in hits][:2] == [plain[3].chunk, plain[1].chunk]
        json.dumps([hit.as_dict() for hit in hits], allow_nan=False)


async def test_nothing_found_is_not_sent(library: Library) -> None:
    reranker = Answering(RuntimeError("asked"))
    assert await found(reader(library, reranker)) == []
    assert reranker.calls == 0
