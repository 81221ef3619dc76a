"""What every store does with writes: `StoreSuite`, first part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from ragstore.contracts import DropDocument, DropRows, Expunged, PutRows, Retag, Store, VectorQuery
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, AnyOf, Filter, OneOf
from ragstore.models import Row
from ragstore.testing.rows import DIMENSIONS, access, chunk, chunks, document_id, listed, row, vector, vector_of

MakeStore = Callable[[str, int], Store]
"""Collection and dimensions in, a store out; called again with the same collection it opens the same rows."""

_SOON = 60.0
"""Seconds within which a store that is not `immediate` shows what was written."""


async def texts(store: Store, *documents: str) -> dict[str, str]:
    """The text of every stored row of these documents, by chunk id."""
    return {stored.chunk_id: stored.text for stored in await listed(store.rows([document_id(name) for name in documents]))}


async def sees(reader: Store, count: Callable[[], Awaitable[int]], expected: int) -> None:
    """The reader counts what is expected: now, or soon where it may lag behind."""
    end = time.monotonic() + (0 if reader.capabilities.immediate else _SOON)
    while (counted := await count()) != expected:
        assert time.monotonic() < end, f"{counted} and not {expected}"
        await asyncio.sleep(0.05)


class StoreWrites:
    """Every write is idempotent, guarded by generations, in order, and visible when it returns."""

    async def test_an_empty_collection_answers_without_rows(self, store: Store) -> None:
        assert await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5) == []
        assert await listed(store.keys()) == []
        assert await listed(store.rows([document_id("a")])) == []
        assert (await store.stats()).rows == 0
        await store.maintain()

    async def test_an_empty_apply_changes_nothing(self, store: Store) -> None:
        await store.apply([])
        await store.apply([PutRows(rows=[])])
        assert (await store.stats()).rows == 0

    async def test_rows_that_were_put_are_found_at_once(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", 0), row("a", 1)])])
        found = await store.search(VectorQuery(vector=vector_of("chunk 1 of a")), filter=ALWAYS, limit=5)
        assert [match.chunk_id for match in found] == [chunk("a", 1), chunk("a", 0)]
        assert (found[0].document_id, found[0].text) == (document_id("a"), "chunk 1 of a")

    async def test_rows_come_back_as_they_were_put(self, store: Store) -> None:
        columns = access("ä/日本.md", allowed=("g1", "g2"), labels=("t\x1fProject\x1fAlpha",), label_keys=("t\x1fProject",))
        put = row("a", text="Grüße\n\t😀 'quoted' \\ text", columns=columns, generation=7)
        await store.apply([PutRows(rows=[put])])
        (stored,) = await listed(store.rows([put.document_id]))
        assert (stored.chunk_id, stored.document_id, stored.generation) == (put.chunk_id, put.document_id, 7)
        assert (stored.text, stored.access) == (put.text, columns)
        assert np.array_equal(stored.vector, put.vector)

    async def test_a_put_is_idempotent(self, store: Store) -> None:
        for _ in range(2):
            await store.apply([PutRows(rows=[row("a", 0), row("a", 1)])])
        assert (await store.stats()).rows == 2

    async def test_a_newer_generation_overwrites(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", text="old")])])
        await store.apply([PutRows(rows=[row("a", text="new", generation=2, columns=access("b.md"))])])
        (stored,) = await listed(store.rows([document_id("a")]))
        assert (stored.text, stored.generation, stored.access.path) == ("new", 2, "b.md")

    async def test_an_older_generation_does_not_overwrite(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", text="new", generation=2)])])
        await store.apply([PutRows(rows=[row("a", text="old"), row("a", 1, text="other")])])
        assert await texts(store, "a") == {chunk("a", 0): "new", chunk("a", 1): "other"}

    async def test_the_newest_of_several_puts_in_one_apply_stays(self, store: Store) -> None:
        writes = [PutRows(rows=[row("a", text=f"version {number}", generation=number)]) for number in (2, 3, 1)]
        await store.apply(writes)
        assert await texts(store, "a") == {chunk("a", 0): "version 3"}

    async def test_dropping_rows_spares_the_others(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", 0), row("a", 1), row("b", 0)])])
        await store.apply([DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", [0, 5]) | chunks("b", [0]))])
        assert set(await texts(store, "a", "b")) == {chunk("a", 1), chunk("b", 0)}

    async def test_dropping_no_rows_drops_none(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a")]), DropRows(document_id=document_id("a"), generation=9, chunk_ids=frozenset())])
        assert (await store.stats()).rows == 1

    async def test_dropping_a_document_spares_the_others(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", 0), row("a", 1), row("b", 0)])])
        await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
        assert set(await texts(store, "a", "b")) == {chunk("b", 0)}

    async def test_an_older_generation_does_not_delete(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", 0, generation=3), row("a", 1, generation=2)])])
        await store.apply([DropRows(document_id=document_id("a"), generation=2, chunk_ids=chunks("a", [0]))])
        await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
        assert set(await texts(store, "a")) == {chunk("a", 0), chunk("a", 1)}
        await store.apply([DropDocument(document_id=document_id("a"), generation=2)])
        assert set(await texts(store, "a")) == {chunk("a", 0)}

    async def test_many_documents_are_dropped_in_one_apply(self, store: Store) -> None:
        names = [f"document {number}" for number in range(60)]
        await store.apply([PutRows(rows=[row(name, number, generation=len(name) % 3) for name in names for number in range(2)])])
        await store.apply([DropDocument(document_id=document_id(name), generation=len(name) % 3) for name in names[:50]])
        assert set(await texts(store, *names)) == {chunk(name, number) for name in names[50:] for number in range(2)}

    async def test_a_retag_sets_the_access_columns_of_one_document_and_nothing_else(self, store: Store) -> None:
        put = [row("a", 0, generation=4), row("a", 1, generation=5), row("b", 0)]
        await store.apply([PutRows(rows=put)])
        changed = access("moved/'a'.md", allowed=("x'y",), labels=("t\x1fk\x1fv",), label_keys=("t\x1fk",))
        await store.apply([Retag(document_id=document_id("a"), access=changed)])
        stored = {found.chunk_id: found for found in await listed(store.rows([document_id("a"), document_id("b")]))}
        for before in put:
            after = stored[before.chunk_id]
            assert (after.text, after.generation) == (before.text, before.generation)
            assert np.array_equal(after.vector, before.vector)
            assert after.access == (changed if before.document_id == document_id("a") else before.access)

    async def test_a_retag_counts_in_filters_at_once(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", columns=access("a.md", allowed=("g1",)))])])
        await store.maintain(force=True)
        await store.apply([Retag(document_id=document_id("a"), access=access("a.md", allowed=("g2",)))])
        query = VectorQuery(vector=vector(1))
        assert await store.search(query, filter=AnyOf("allowed", frozenset({"g1"})), limit=5) == []
        assert len(await store.search(query, filter=AnyOf("allowed", frozenset({"g2"})), limit=5)) == 1

    async def test_a_retag_of_a_document_without_rows_makes_none(self, store: Store) -> None:
        await store.apply([Retag(document_id=document_id("a"), access=access())])
        assert (await store.stats()).rows == 0

    async def test_many_documents_are_retagged_in_one_apply(self, store: Store) -> None:
        names = [f"document {number}" for number in range(40)]
        await store.apply([PutRows(rows=[row(name, number) for name in names for number in range(3)])])
        await store.apply([Retag(document_id=document_id(name), access=access(f"new/{name}", allowed=(name,))) for name in names])
        keys = await listed(store.keys())
        assert len(keys) == 120
        assert {(key.document_id, key.access.path, key.access.allowed) for key in keys} == {
            (document_id(name), f"new/{name}", (name,)) for name in names
        }

    async def test_writes_of_one_apply_happen_in_their_order(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a", 0), row("b", 0), row("c", 0), row("d", 0)])])
        await store.apply(
            [
                DropDocument(document_id=document_id("a"), generation=1),
                PutRows(rows=[row("a", 1)]),  # comes after the drop, so it stays
                PutRows(rows=[row("b", 1)]),
                DropDocument(document_id=document_id("b"), generation=1),  # takes the row put just before
                Retag(document_id=document_id("c"), access=access("retagged")),
                PutRows(rows=[row("c", 1)]),  # comes after the retag, so it keeps its own columns
                PutRows(rows=[row("d", 1)]),
                Retag(document_id=document_id("d"), access=access("first")),
                Retag(document_id=document_id("d"), access=access("second")),
            ]
        )
        paths = {key.chunk_id: key.access.path for key in await listed(store.keys())}
        assert paths == {
            chunk("a", 1): "a.md",
            chunk("c", 0): "retagged",
            chunk("c", 1): "c.md",
            chunk("d", 0): "second",
            chunk("d", 1): "second",
        }

    async def test_a_large_batch_is_stored_whole(self, store: Store) -> None:
        put = [row(f"document {number // 10}", number % 10) for number in range(2_500)]
        await store.apply([PutRows(rows=put)])
        assert (await store.stats()).rows == 2_500
        assert {key.chunk_id for key in await listed(store.keys())} == {stored.chunk_id for stored in put}

    async def test_keys_and_rows_are_those_of_the_named_documents(self, store: Store) -> None:
        names = [f"document {number}" for number in range(700)]
        await store.apply([PutRows(rows=[row(name) for name in names])])
        some = [document_id(name) for name in names[:600]]
        assert {key.document_id for key in await listed(store.keys([*some, document_id("absent")]))} == set(some)
        assert {stored.document_id for stored in await listed(store.rows(some[:2]))} == set(some[:2])
        assert await listed(store.keys([])) == []
        assert await listed(store.rows([])) == []

    async def test_a_document_named_twice_is_listed_once(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a")])])
        assert len(await listed(store.keys([document_id("a")] * 2))) == 1

    async def test_a_dropped_collection_is_empty_and_can_be_used_again(self, store: Store) -> None:
        await store.apply([PutRows(rows=[row("a")])])
        await store.drop()
        assert (await store.stats()).rows == 0
        await store.drop()
        await store.apply([PutRows(rows=[row("b")])])
        assert set(await texts(store, "a", "b")) == {chunk("b")}

    async def test_collections_do_not_see_each_other(self, make_store: MakeStore) -> None:
        one, other = make_store("one", DIMENSIONS), make_store("other", DIMENSIONS)
        await one.apply([PutRows(rows=[row("a")])])
        assert (await other.stats()).rows == 0
        await other.drop()
        assert (await one.stats()).rows == 1

    async def test_a_collection_that_is_opened_again_has_everything(self, make_store: MakeStore) -> None:
        first = make_store("chunks", DIMENSIONS)
        await first.apply([PutRows(rows=[row("a", 0), row("a", 1)])])
        await first.close()
        again = make_store("chunks", DIMENSIONS)
        assert await texts(again, "a") == {chunk("a", 0): "chunk 0 of a", chunk("a", 1): "chunk 1 of a"}

    async def test_another_handle_sees_every_write(self, make_store: MakeStore) -> None:
        """At once where the store is `immediate`, and otherwise within seconds."""
        writer, reader = make_store("chunks", DIMENSIONS), make_store("chunks", DIMENSIONS)

        async def found(where: Filter) -> int:
            return len(await reader.search(VectorQuery(vector=vector(1)), filter=where, limit=5))

        assert await found(ALWAYS) == 0
        for number in range(3):
            await writer.apply([PutRows(rows=[row("a", number)])])
            await sees(reader, lambda: found(ALWAYS), number + 1)
        await writer.apply([Retag(document_id=document_id("a"), access=access("b.md"))])
        await sees(reader, lambda: found(OneOf("path", frozenset({"b.md"}))), 3)
        await writer.drop()
        await sees(reader, lambda: found(ALWAYS), 0)
        assert (await reader.stats()).rows == 0
        await writer.apply([PutRows(rows=[row("b")])])
        await sees(reader, lambda: found(ALWAYS), 1)
        assert set(await texts(reader, "a", "b")) == {chunk("b")}

    async def test_vectors_of_another_size_are_refused(self, store: Store, make_store: MakeStore) -> None:
        with pytest.raises(ConfigError, match="shape"):
            await store.apply([PutRows(rows=[replace(row("a"), vector=vector(1, dimensions=3))])])
        with pytest.raises(ConfigError, match="shape"):
            await store.search(VectorQuery(vector=vector(1, dimensions=3)), filter=ALWAYS, limit=1)
        await store.apply([PutRows(rows=[row("a")])])
        with pytest.raises(ConfigError, match="dimensions"):
            await make_store("chunks", 3).stats()

    async def test_a_vector_that_is_no_number_is_refused_and_nothing_is_written(self, store: Store) -> None:
        broken: Row = replace(row("b"), vector=np.full(DIMENSIONS, np.nan, np.float32))
        with pytest.raises(ValueError, match="finite"):
            await store.apply([PutRows(rows=[row("a")]), PutRows(rows=[broken])])
        assert (await store.stats()).rows == 0

    async def test_maintenance_changes_no_row(self, store: Store) -> None:
        put = [row(f"document {number}", text=f"word{number} common") for number in range(50)]
        for one in put:
            await store.apply([PutRows(rows=[one])])
        await store.apply([DropDocument(document_id=put[0].document_id, generation=1)])
        for force in (False, True):
            await store.maintain(force=force)
            assert {key.chunk_id for key in await listed(store.keys())} == {one.chunk_id for one in put[1:]}
            (best, *_) = await store.search(VectorQuery(vector=put[7].vector), filter=ALWAYS, limit=3)
            assert best.chunk_id == put[7].chunk_id

    async def test_expunging_leaves_no_file_from_before_and_every_row_that_is_stored(self, store: Store) -> None:
        put = [row(f"document {number // 5}", number % 5, text=f"word{number} common") for number in range(500)]
        await store.apply([PutRows(rows=put)])
        await store.maintain(force=True)
        await store.apply([DropDocument(document_id=put[0].document_id, generation=1), PutRows(rows=[replace(put[7], text="other words")])])
        for _ in range(2):
            expunged = await store.expunge()
            assert expunged.older == ()
            assert not [file for file in expunged.files if put[0].document_id.encode() in file.read_bytes()]
        assert {key.chunk_id for key in await listed(store.keys())} == {one.chunk_id for one in put[5:]}
        (stored,) = [found for found in await listed(store.rows([put[7].document_id])) if found.chunk_id == put[7].chunk_id]
        assert stored.text == "other words"
        (best, *_) = await store.search(VectorQuery(vector=put[8].vector), filter=ALWAYS, limit=3)
        assert best.chunk_id == put[8].chunk_id

    async def test_expunging_forgets_the_last_row_and_a_collection_that_was_never_made(self, store: Store) -> None:
        assert await store.expunge() == Expunged()
        await store.apply([PutRows(rows=[row("a", text="a word")])])
        await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
        expunged = await store.expunge()
        assert expunged.older == ()
        assert not [file for file in expunged.files if document_id("a").encode() in file.read_bytes()]
        await store.apply([PutRows(rows=[row("b")])])
        assert set(await texts(store, "a", "b")) == {chunk("b")}

    async def test_a_handle_from_before_reads_and_writes_after_expunging(self, make_store: MakeStore) -> None:
        writer, other = make_store("chunks", DIMENSIONS), make_store("chunks", DIMENSIONS)
        await writer.apply([PutRows(rows=[row("a"), row("b")])])
        assert (await other.stats()).rows == 2
        await writer.apply([DropDocument(document_id=document_id("a"), generation=1)])
        await writer.expunge()
        assert {match.chunk_id for match in await other.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5)} == {chunk("b")}
        await other.apply([PutRows(rows=[row("c")])])
        assert set(await texts(writer, "a", "b", "c")) == {chunk("b"), chunk("c")}
