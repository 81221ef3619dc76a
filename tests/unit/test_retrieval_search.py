from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from typing_extensions import override

from ragstore.access import OpenPolicy
from ragstore.contracts import Reranker, Retag, TextQuery, VectorQuery
from ragstore.embedding.hashing import HashEmbedder
from ragstore.errors import AccessError, ConfigError, PoisonError, TransientError
from ragstore.filters import ALWAYS
from ragstore.models import BlobId, CommittedChunk, Hit, Principal
from tests.support.library import ALICE, GROUPS, PLACE, Library, Watching

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOSTILE = [
    "' OR '1'='1",
    '"',
    "%",
    "\\",
    "$ne",
    "x " * 5_000,
    "x" * 10_000,
    "\N{PILE OF POO}",
    "a\0b",
    "\ud800",
    "*",
    "AND OR NOT",
    "{{ x }}",
]


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.node.name, GROUPS)


async def test_a_hit_says_where_it_stands(library: Library) -> None:
    [row] = await library.add("a.md", "rotate the signing key")
    [hit] = await library.retriever().search("rotate key", principal=ALICE)
    place = {name: value for name, value in PLACE.items() if name != "media_type"}
    assert hit == Hit(**place, blob="docs/a.md", chunk=row, score=hit.score, text="rotate the signing key", end=22)
    assert hit.score == pytest.approx(1.0)


@pytest.mark.parametrize("legs", ["both", "vector", "text"])
@pytest.mark.parametrize("fusion", ["max-norm", "rrf"])
async def test_the_best_comes_first(library: Library, legs: str, fusion: str) -> None:
    for name, text in (("b.md", "apples and pears"), ("a.md", "the key rotation runbook")):
        await library.add(name, text)
    assert (await library.blobs("key rotation", legs=legs, fusion=fusion))[0] == "a.md"


async def test_the_text_leg_alone_returns_only_what_shares_a_word(library: Library) -> None:
    await library.add("a.md", "北京的天气很好")
    await library.add("b.md", "上海的交通")
    assert await library.blobs("天气", legs="text") == ["a.md"]


async def test_the_same_filter_goes_to_both_legs(library: Library) -> None:
    await library.add("a.md", "key")
    store = Watching(library.store)
    await library.retriever(store=store).search("key", principal=ALICE, filter="path starts with 'a'")
    (first, filter_one, _), (second, filter_two, _) = store.asked
    assert {type(first), type(second)} == {VectorQuery, TextQuery}
    assert filter_one == filter_two != ALWAYS


@pytest.mark.parametrize("allow", [None, "", " ", "bob", "-", "Staff", "staff,alice"])
async def test_a_blob_that_lists_nobody_like_the_caller_is_not_found(library: Library, allow: str | None) -> None:
    await library.add("a.md", "key", allow=allow)
    assert await library.blobs("key") == []


async def test_a_principal_that_can_read_nothing_costs_the_store_nothing(library: Library) -> None:
    [row] = await library.add("a.md", "key")
    store = Watching(library.store)
    nobody = Principal(id="", name="", groups=frozenset({"staff"}))
    assert await library.retriever(store=store).search("key", principal=nobody) == []
    assert await library.retriever(store=store).chunk(row, principal=nobody) is None
    assert store.asked == []


@pytest.mark.parametrize("principal", [None, "alice", {"id": "alice"}])
async def test_without_a_principal_there_is_no_answer(library: Library, principal: object) -> None:
    with pytest.raises(AccessError):
        await library.retriever().search("key", principal=principal)  # type: ignore[arg-type]
    with pytest.raises(AccessError):
        await library.retriever().chunk("0" * 32, principal=principal)  # type: ignore[arg-type]


async def test_a_store_that_ignores_its_filter_leaks_nothing(library: Library) -> None:
    for index in range(150):
        await library.add(f"secret/{index}.md", f"key {index}", allow="bob")
    await library.add("open.md", "the key for everyone in the staff room")
    hits = await library.retriever(store=Watching(library.store, obey=False)).search("key", principal=ALICE)
    assert [hit.blob for hit in hits] == ["docs/open.md"]


@pytest.mark.parametrize(
    "attempt",
    ["path = 'x' or path exists", "not path = 'x'", "tag.allow = 'bob'", "tag.allow exists or not tag.allow exists", "path starts with ''"],
)
async def test_a_filter_never_widens(library: Library, attempt: str) -> None:
    await library.add("secret.md", "key", allow="bob")
    await library.add("open.md", "key two")
    store = Watching(library.store, obey=False)
    hits = await library.retriever(store=store).search("key", principal=ALICE, filter=attempt)
    assert {hit.blob for hit in hits} <= {"docs/open.md"}


async def test_a_filter_is_evaluated_again_on_the_current_attributes(library: Library) -> None:
    [row] = await library.add("a.md", "key")
    now = replace(library.ledger[row].current_access, tags={"allow": "staff", "state": "draft"})
    library.ledger[row] = replace(library.ledger[row], current_access=now)
    store = Watching(library.store, obey=False)
    assert await library.retriever(store=store).search("key", principal=ALICE, filter="tag.state = 'final'") == []
    assert await library.retriever(store=store).search("key", principal=ALICE, filter="tag.state = 'draft'") != []


@pytest.mark.parametrize("field", ["generation_access", "current_access"])
async def test_both_the_generation_and_the_current_attributes_must_grant(library: Library, field: str) -> None:
    [row] = await library.add("a.md", "key")
    access = replace(library.ledger[row].current_access, tags={"allow": "bob"})
    library.ledger[row] = replace(library.ledger[row], **{field: access})  # type: ignore[arg-type]
    assert await library.blobs("key") == []
    assert await library.retriever().chunk(row, principal=ALICE) is None


async def test_a_row_that_is_not_committed_is_not_shown(library: Library) -> None:
    [row] = await library.add("a.md", "key", commit=False)
    await library.add("b.md", "the key")
    assert await library.blobs("key") == ["b.md"]
    assert await library.retriever().chunk(row, principal=ALICE) is None


async def test_a_row_under_a_foreign_document_is_not_shown(library: Library) -> None:
    [row] = await library.add("a.md", "key")
    library.ledger[row] = replace(library.ledger[row], document_id="0" * 32)
    assert await library.blobs("key") == []


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("bug"), AccessError("no ledger")])
async def test_without_the_ledger_nothing_is_shown(library: Library, error: Exception) -> None:
    [row] = await library.add("a.md", "key")

    def gone(ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        raise error

    with pytest.raises(AccessError):
        await library.retriever(committed=gone).search("key", principal=ALICE)
    with pytest.raises(AccessError):
        await library.retriever(committed=gone).chunk(row, principal=ALICE)


async def test_the_limit_is_filled_though_most_candidates_are_dropped(library: Library) -> None:
    for index in range(400):
        await library.add(f"old/{index}.md", f"key {index}", commit=False)
    for index in range(5):
        await library.add(f"new/{index}.md", f"a much longer text that mentions the key {index} only by the way")
    store = Watching(library.store)
    hits = await library.retriever(store=store).search("key", principal=ALICE, limit=5)
    assert len(hits) == 5
    assert [limit for _, _, limit in store.asked] == [100, 100, 200, 200, 400, 400, 800, 800][: len(store.asked)]


async def test_a_lagging_access_column_costs_time_only(library: Library) -> None:
    [row] = await library.add("a.md", "key")
    await library.add("b.md", "key two", allow="bob")
    columns = GROUPS.columns(replace(library.ledger[row].current_access, tags={"allow": "staff"}), media_type="text/plain")
    await library.store.apply([Retag(document_id=BlobId(account="local", container="docs", path="b.md").document_id, access=columns)])
    assert await library.blobs("key") == ["a.md"]


async def test_of_equal_texts_one_is_returned_and_rather_a_fresh_one(library: Library) -> None:
    for name in ("a.md", "b.md", "c.md", "d.md"):
        await library.add(name, "the key", stale=name != "c.md")
    await library.add("e.md", "another key", stale=True)
    hits = await library.retriever().search("the key", principal=ALICE)
    assert [(hit.blob, hit.stale) for hit in hits] == [("docs/c.md", False), ("docs/e.md", True)]


async def test_a_forbidden_copy_does_not_hide_a_permitted_one(library: Library) -> None:
    for name, allow in (("a.md", "bob"), ("b.md", "staff")):
        await library.add(name, "the key", allow=allow)
    store = Watching(library.store, obey=False)
    assert [hit.blob for hit in await library.retriever(store=store).search("the key", principal=ALICE)] == ["docs/b.md"]


async def test_per_blob_limits_the_hits_of_one_blob_and_fills_up_from_others(library: Library) -> None:
    await library.add("big.md", *(f"key {index}" for index in range(300)))
    await library.add("small.md", "some long text that ends with a key")
    found = await library.blobs("key", per_blob=2, limit=3)
    assert sorted(found) == ["big.md", "big.md", "small.md"]


async def test_a_chunk_is_fetched_by_its_id_through_the_same_door(library: Library) -> None:
    [mine] = await library.add("a.md", "key")
    [others] = await library.add("b.md", "secret", allow="bob")
    hit = await library.retriever().chunk(mine, principal=ALICE)
    assert hit is not None
    assert hit.text == "key"
    for missing in (others, "0" * 32, "", "\0", "\ud800", "x" * 10_000):
        assert await library.retriever().chunk(missing, principal=ALICE) is None


async def test_in_open_mode_everything_is_found(request: pytest.FixtureRequest) -> None:
    library = Library(request.node.name, OpenPolicy())
    await library.add("a.md", "key", allow=None)
    assert await library.blobs("key") == ["a.md"]


@pytest.mark.parametrize("query", HOSTILE)
async def test_hostile_queries_are_data(library: Library, query: str) -> None:
    await library.add("a.md", "a key")
    assert await library.blobs(query) == ["a.md"]


@pytest.mark.parametrize("value", [value for value in HOSTILE if len(value) < 1000])
async def test_hostile_filter_values_are_data(library: Library, value: str) -> None:
    await library.add("a.md", "a key")
    text = value.replace("'", "''")
    for expression in (
        f"path = '{text}'",
        f"tag['{text}'] = '{text}'",
        f"metadata['{text}'] starts with '{text}'",
        f"path starts with '{text}'",
    ):
        assert await library.blobs("key", filter=expression) == []
    assert await library.blobs("key", filter=f"path != '{text}' and not tag['{text}'] exists") == ["a.md"]


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 1001},
        {"per_blob": 0},
        {"fusion": "sum"},
        {"legs": "none"},
        {"filter": "nonsense"},
        {"filter": ""},
        *({"query": blank} for blank in ("", " \n", "\0")),
    ],
)
async def test_a_wrong_option_is_an_error(library: Library, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await library.blobs(**{"query": "key", **options})


class Failing(HashEmbedder):
    """An embedder that is away."""

    error: Exception = TransientError("throttled")

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        raise self.error


@pytest.mark.parametrize("error", [TransientError("throttled"), PoisonError("embedding_refused", "no")])
async def test_words_still_find_something_when_the_embedder_is_away(
    library: Library, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    await library.add("a.md", "key")
    library.embedder = Failing()
    library.embedder.error = error
    with caplog.at_level(logging.WARNING):
        assert await library.blobs("key") == ["a.md"]
    assert [record.message for record in caplog.records] == ["retrieval.vector_leg_failed"]
    with pytest.raises(type(error)):
        await library.blobs("key", legs="vector")
    with pytest.raises(type(error)):
        await library.retriever(store=Watching(library.store, full_text=False)).search("key", principal=ALICE)


async def test_a_store_without_full_text_is_asked_for_vectors_only(library: Library) -> None:
    await library.add("a.md", "key")
    store = Watching(library.store, full_text=False)
    assert len(await library.retriever(store=store).search("key", principal=ALICE)) == 1
    assert [type(query) for query, _, _ in store.asked] == [VectorQuery]
    with pytest.raises(ConfigError, match="full-text"):
        await library.retriever(store=store).search("key", principal=ALICE, legs="text")


async def test_a_query_beyond_the_models_limit_is_cut(library: Library) -> None:
    class Short(HashEmbedder):
        seen: Sequence[str] = ()

        @override
        async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
            self.seen = texts
            return await super().embed(texts, purpose=purpose)

    await library.add("a.md", "key")
    library.embedder = embedder = Short()
    embedder.max_tokens = 50
    assert await library.blobs("key " * 1000) == ["a.md"]
    assert 20 <= embedder.count_tokens(embedder.seen)[0] <= 34


class ByLength(Reranker):
    """Prefers long texts, and remembers what it saw."""

    seen: Sequence[str] = ()

    @override
    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.seen = texts
        return [float("nan") if "nan" in text else float(len(text)) for text in texts]


async def test_a_reranker_orders_permitted_texts_only(library: Library) -> None:
    for name, text in (("a.md", "key"), ("b.md", "key and much more"), ("c.md", "key nan")):
        await library.add(name, text)
    await library.add("d.md", "key that is secret, long and not for us", allow="bob")
    reranker = ByLength()
    store = Watching(library.store, obey=False)
    hits = await library.retriever(store=store, reranker=reranker).search("key", principal=ALICE, limit=3)
    assert [hit.blob for hit in hits] == ["docs/b.md", "docs/a.md", "docs/c.md"]
    assert sorted(reranker.seen) == ["key", "key and much more", "key nan"]


async def test_searches_at_the_same_time_do_not_mix(library: Library) -> None:
    await library.add("a.md", "key one")
    await library.add("b.md", "key two", allow="bob")
    bob = Principal(id="bob", name="Bob")
    retriever = library.retriever()
    answers = await asyncio.gather(*(retriever.search("key", principal=who) for who in [ALICE, bob] * 20))
    assert [[hit.blob for hit in hits] for hits in answers] == [["docs/a.md"], ["docs/b.md"]] * 20


@pytest.mark.parametrize("copies", [0, 20])
async def test_one_leg_alone_is_asked_for_little_more_than_the_limit_and_fills_it_nevertheless(library: Library, copies: int) -> None:
    for number in range(copies):
        await library.add(f"copy-{number}.md", "rotate the key")
    for number in range(10):
        await library.add(f"{number}.md", f"rotate the key number {number}")
    watching = Watching(library.store)
    hits = await library.retriever(store=watching).search("rotate the key", principal=ALICE, limit=5, legs="vector")
    assert len({hit.text for hit in hits}) == len(hits) == 5
    assert watching.asked[0][2] < 10


async def test_of_many_chunks_those_are_named_that_may_still_be_read(library: Library) -> None:
    [row] = await library.add("a.md", "key")
    [hidden] = await library.add("b.md", "another key", allow="bob")
    asked = [row, hidden, "0" * 32, "", "\0", "x" * 500, row]
    assert await library.retriever().readable(asked, principal=ALICE) == {row}
    assert await library.retriever().readable(asked, principal=Principal(id="bob", name="Bob")) == {hidden}
    assert await library.retriever().readable([], principal=ALICE) == frozenset()
    with pytest.raises(AccessError):
        await library.retriever().readable(asked, principal=None)  # type: ignore[arg-type]  # a caller without types
