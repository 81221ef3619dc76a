"""What every store does with much, with two writers at once, and with what was done in part: `StoreSuite`, third part."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ragstore.access import GroupsPolicy
from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Store, VectorQuery, Write
from ragstore.embedding.hashing import HashEmbedder
from ragstore.errors import TransientError
from ragstore.filters import ALWAYS, And, AnyOf, Filter, Like, Not, OneOf, Or, StartsWith
from ragstore.models import AccessAttributes, AccessColumns, BlobId, CommittedChunk, Principal, Row
from ragstore.retrieval import Retriever
from ragstore.testing.faults import StoppingStore, parts_of
from ragstore.testing.rows import DIMENSIONS, access, chunk, chunks, document_id, listed, row, vector_of
from ragstore.testing.store_searches import check_filters
from ragstore.testing.store_writes import MakeStore

_GROUPS = 10_000
_ANN = Principal(id="ann", name="Ann", groups=frozenset({"team"}))


class StoreLimits:
    """More than a vendor takes at once is no other case; what failed in the middle is repeated; the best are found among many."""

    async def test_a_document_of_very_many_chunks_is_replaced_shrunk_and_grown(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("beside")])])
        before = frozenset[str]()
        for generation, numbers in enumerate([range(1_200), range(600, 1_800), range(1_700, 1_703), range(1_200)], start=1):
            now = chunks("a", numbers)
            put = PutRows(rows=[row("a", number, generation=generation) for number in numbers])
            await store.apply([put, DropRows(document_id=document_id("a"), generation=generation, chunk_ids=before - now)])
            keys = await listed(store.keys([document_id("a")]))
            assert {(key.chunk_id, key.generation) for key in keys} == {(one, generation) for one in now}
            assert len(keys) == len(now)
            before = now
        (best, *_) = await store.search(VectorQuery(vector=vector_of("chunk 1100 of a")), filter=ALWAYS, limit=3)
        assert best.chunk_id == chunk("a", 1_100)
        await store.apply([DropDocument(document_id=document_id("a"), generation=4)])
        assert {key.chunk_id for key in await listed(store.keys())} == {chunk("beside")}

    async def test_a_principal_of_ten_thousand_groups_is_a_filter(self, store: Store) -> None:
        groups = [str(uuid.UUID(int=number * 2**64 + 7)) for number in range(_GROUPS)]
        columns = [
            access(path, allowed=allowed)
            for path in ("a/b.md", "c.md")
            for allowed in ((), (groups[-1],), ("stranger",), ("stranger", groups[5_000]), (groups[0].upper(),), (groups[0] + " ",))
        ]
        mine, other = AnyOf("allowed", frozenset(groups)), AnyOf("allowed", frozenset(groups[: _GROUPS // 2]) | {"stranger"})
        below, exactly = StartsWith("path", "a/"), OneOf("path", frozenset({"c.md"}))
        conditions: list[Filter] = [
            mine,
            And((mine, below)),
            Or((mine, exactly)),
            And((mine, Not(exactly))),
            Or((And((mine, below)), other)),
        ]
        conditions += [And((mine, Not(other))), OneOf("path", mine.values | {"c.md"})]
        await check_filters(store, columns, [*conditions, *map(Not, conditions)])

    async def test_of_two_replacements_at_once_one_remains_and_is_whole(self, make_store: MakeStore) -> None:
        for name, generations in await _replaced_at_once(make_store):
            assert len(generations) == 1, name

    async def test_of_two_replacements_at_once_the_newer_remains(self, make_store: MakeStore) -> None:
        for name, generations in await _replaced_at_once(make_store):
            assert generations == {3}, name

    async def test_what_failed_in_the_middle_of_an_apply_ends_right_when_it_is_repeated(self, make_store: MakeStore) -> None:
        writes: list[Write] = [
            Retag(document_id=document_id("b"), access=access("b2.md")),
            PutRows(rows=[row("a", number, generation=2) for number in (1, 2, 3)]),
            DropRows(document_id=document_id("a"), generation=2, chunk_ids=chunks("a", [0])),
            DropDocument(document_id=document_id("c"), generation=1),
            PutRows(rows=[row("c", 1, generation=2)]),
        ]
        for done in range(parts_of(writes)):
            store = make_store(f"stopped_{done}", DIMENSIONS)
            await store.apply([PutRows(rows=[row("a", 0), row("a", 1), row("b", 0), row("c", 0)])])
            with pytest.raises(TransientError):
                await StoppingStore(store, after=done).apply(writes)
            await store.apply(writes)
            found = {key.chunk_id: (key.generation, key.access.path) for key in await listed(store.keys())}
            assert found == {
                **{chunk("a", number): (2, "a.md") for number in (1, 2, 3)},
                chunk("b"): (1, "b2.md"),
                chunk("c", 1): (2, "c.md"),
            }, done
            await store.drop()

    async def test_a_limit_is_filled_by_twelve_of_two_thousand_that_lie_far_from_the_query(self, store: Store) -> None:
        """All of them to one side: by the default settings of an index of neighbours, hardly any would be found."""
        library = await _Library.of(store, rows=2_000, wanted=12)
        for maintained in (False, True):
            for condition in (
                AnyOf("labels", frozenset({"rare"})),
                And((StartsWith("path", "few/x"), Not(OneOf("path", frozenset({"x"}))))),
            ):
                found = await store.search(VectorQuery(vector=library.query), filter=condition, limit=10)
                if store.capabilities.exact_filters:
                    assert [match.chunk_id for match in found] == library.best, (maintained, condition)
                assert len(found) == 10
            # However roughly the store filters, and with the check of every hit that it needs then.
            for expression in (None, "path starts with 'few/x'", "not path starts with 'many/m'"):
                assert await library.hits(expression) == library.best, (maintained, expression)
            await store.maintain(force=True)

    async def test_a_store_that_says_that_it_filters_roughly_does(self, store: Store) -> None:
        if store.capabilities.exact_filters:
            pytest.skip("this store filters exactly, which every test of filters asks for")
        put = [
            row(f"d{number}", text=text, columns=access(text, allowed=(text,))) for number, text in enumerate(("a/b.md", "a/bc.txt", "d"))
        ]
        await store.apply([PutRows(rows=put)])
        rough: list[Filter] = [Like("path", "?/*.md"), StartsWith("path", "a/bc"), Not(StartsWith("path", "a/bc"))]
        rough += [Not(Like("path", "*.md")), Not(AnyOf("allowed", frozenset({"d"})))]
        found = [await store.search(VectorQuery(vector=vector_of("x")), filter=condition, limit=5) for condition in rough]
        expected = [1, 1, 2, 2, 2]
        assert [len(matches) for matches in found] != expected, "every one of these is exact: say so with exact_filters"


async def _replaced_at_once(make_store: MakeStore) -> list[tuple[str, set[int]]]:
    """Documents, each replaced by two tasks at once in every way that two can meet, and the generations of their rows afterwards."""
    one, other = make_store("chunks", DIMENSIONS), make_store("chunks", DIMENSIONS)
    ways = list(itertools.product((False, True), (one, other), (False, True)))
    for number, (turned, second, first) in enumerate(ways):
        name, old = f"document {number}", chunks(f"document {number}", range(20, 30))
        await one.apply([PutRows(rows=[row(name, chunk_number) for chunk_number in range(30)])])
        # One in the order of the other turned about, so that stores which lock rows could wait for each other.
        writes: list[list[Write]] = []
        for generation in (2, 3):
            rows = [row(name, chunk_number, text=f"{chunk_number} in {generation}", generation=generation) for chunk_number in range(20)]
            put = PutRows(rows=rows[::-1] if turned and generation == 3 else rows)
            writes.append([put, DropRows(document_id=document_id(name), generation=generation, chunk_ids=old)])
        await asyncio.gather(one.apply(writes[first]), second.apply(writes[not first]))
    ended: list[tuple[str, set[int]]] = []
    for number in range(len(ways)):
        stored = await listed(one.rows([document_id(f"document {number}")]))
        assert sorted(found.chunk_id for found in stored) == sorted(chunks(f"document {number}", range(20)))
        assert all(found.text.endswith(f" in {found.generation}") for found in stored)
        assert all(np.array_equal(found.vector, vector_of(found.text)) for found in stored)
        ended.append((f"document {number}", {found.generation for found in stored}))
    return ended


class _Library:
    """Rows of which few are permitted, and those are the farthest from the query; and the one door to them."""

    def __init__(self, store: Store) -> None:
        self.embedder = HashEmbedder(dimensions=DIMENSIONS)
        self.policy = GroupsPolicy(tag_key="allow")
        self.retriever = Retriever(store=store, embedder=self.embedder, policy=self.policy, committed=self._committed)
        self.chunks: dict[str, CommittedChunk] = {}
        self.query = vector_of("replaced by the query's")
        self.best: list[str] = []

    @classmethod
    async def of(cls, store: Store, *, rows: int, wanted: int) -> _Library:
        """So many rows are put, and the best ten of those wanted are known."""
        library = cls(store)
        library.query = (await library.embedder.embed(["query"], purpose="query"))[0]
        put = [library._row(number, rare=number % (rows // wanted) == 7 and number < rows // wanted * wanted) for number in range(rows)]
        cosines = {one.chunk_id: float(one.vector @ library.query) for one in put if one.access.labels == ("rare",)}
        assert len(cosines) == wanted
        assert max(cosines.values()) < min(float(one.vector @ library.query) for one in put if one.chunk_id not in cosines)
        library.best = sorted(cosines, key=lambda found: -cosines[found])[:10]
        await store.apply([PutRows(rows=put)])
        return library

    def _row(self, number: int, *, rare: bool) -> Row:
        direction = vector_of(f"{number}") * np.float32(0.4) + self.query * np.float32(-1 if rare else 1)
        attributes = AccessAttributes(
            account="acc", container="docs", path=f"few/x{number}" if rare else f"many/m{number}", tags={"allow": "team" if rare else "all"}
        )
        columns: AccessColumns = access(
            attributes.path, allowed=self.policy.columns(attributes, media_type="").allowed, labels=("rare",) if rare else ()
        )
        put = row(f"{number}", vector=(direction / np.linalg.norm(direction)).astype(np.float32), columns=columns)
        self.chunks[put.chunk_id] = CommittedChunk(
            chunk_id=put.chunk_id,
            document_id=put.document_id,
            blob=BlobId(account="acc", container="docs", path=attributes.path),
            start=0,
            end=len(put.text),
            page=None,
            heading=None,
            title=None,
            media_type="text/markdown",
            version=None,
            etag="e",
            stale=False,
            generation_access=attributes,
            current_access=attributes,
        )
        return put

    def _committed(self, chunk_ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        return {found: self.chunks[found] for found in chunk_ids if found in self.chunks}

    async def hits(self, expression: str | None) -> list[str]:
        """The chunks that Ann is shown."""
        hits = await self.retriever.search("query", principal=_ANN, limit=10, filter=expression, legs="vector")
        return [hit.chunk for hit in hits]
