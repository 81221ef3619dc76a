"""LanceDB's indexes: approximate search loses nothing under filters, maintenance is cheap until it is due."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragstore.contracts import DropDocument, PutRows, Retag, TextQuery, VectorQuery
from ragstore.filters import ALWAYS, AnyOf, Filter, Not, OneOf, StartsWith, matches
from ragstore.models import Row
from ragstore.testing.rows import access, chunk, document_id, listed, row
from ragstore_lancedb import LanceDBStore, maintenance
from ragstore_lancedb.counts import Counts
from ragstore_lancedb.filters import where

DIMENSIONS = 96
ROWS = 4_000


def clustered_rows() -> list[Row]:
    """40 topics; the groups `topic-N` own whole topics, which is what approximate search under a filter is worst at."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(40, DIMENSIONS))
    rows = []
    for number in range(ROWS):
        topic = number % 40
        drawn = centres[topic] + 0.35 * random.normal(size=DIMENSIONS)
        allowed = (f"topic-{topic}", f"half-{number // 40 % 2}", f"rare-{number // 8}")
        unit = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        rows.append(row(f"d{number}", text=f"topic{topic} text", vector=unit, columns=access(f"{topic}/{number}", allowed=allowed)))
    return rows


CLUSTERED = clustered_rows()


def opened(base: Path) -> LanceDBStore:
    return LanceDBStore(base=base, collection="chunks", dimensions=DIMENSIONS, ann_from=ROWS, exact_below=500)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection that is large enough for its settings to have an approximate index."""
    base = tmp_path_factory.mktemp("index")

    async def build() -> None:
        store = opened(base)
        await store.apply([PutRows(rows=CLUSTERED)])
        await store.maintain()
        await store.close()

    asyncio.run(build())
    return base


@pytest.fixture
async def approximate(index: Path) -> AsyncIterator[LanceDBStore]:
    store = opened(index)
    yield store
    await store.close()


def best(query: int, condition: Filter, limit: int) -> list[str]:
    admitted = [one for one in CLUSTERED if matches(condition, one.access)]
    return [one.chunk_id for one in sorted(admitted, key=lambda one: -float(one.vector @ CLUSTERED[query].vector))[:limit]]


async def test_the_approximate_index_exists(approximate: LanceDBStore) -> None:
    assert "vector" in str((await approximate.stats()).detail["indexes"])


@pytest.mark.parametrize(
    "condition",
    [
        ALWAYS,
        AnyOf("allowed", frozenset({"half-0"})),
        AnyOf("allowed", frozenset({"topic-3", "topic-4"})),
        AnyOf("allowed", frozenset(f"topic-{number}" for number in range(20, 40))),
        AnyOf("allowed", frozenset({"rare-5"})),
        StartsWith("path", "17/"),
        Not(AnyOf("allowed", frozenset({"half-0", "topic-1"}))),
    ],
    ids=["all", "half", "two topics", "half of the topics", "eight rows", "prefix", "not"],
)
async def test_filtered_search_finds_what_exact_search_finds(approximate: LanceDBStore, condition: Filter) -> None:
    found = 0
    for query in range(0, 60, 3):
        result = await approximate.search(VectorQuery(vector=CLUSTERED[query].vector), filter=condition, limit=10)
        expected = best(query, condition, 10)
        assert len(result) == len(expected)
        found += len(set(expected) & {match.chunk_id for match in result}) * 10 // len(expected)
    assert found / 200 >= 0.99


async def test_a_limit_beyond_the_probed_partitions_is_filled(approximate: LanceDBStore) -> None:
    half = AnyOf("allowed", frozenset({"half-1"}))
    result = await approximate.search(VectorQuery(vector=CLUSTERED[0].vector), filter=half, limit=1_900)
    assert len(result) == 1_900


async def test_rows_that_came_after_the_index_are_found(approximate: LanceDBStore) -> None:
    late = replace(row("late", vector=-CLUSTERED[0].vector), access=access("late", allowed=("half-0",)))
    await approximate.apply([PutRows(rows=[late])])
    for condition in (ALWAYS, AnyOf("allowed", frozenset({"half-0"})), OneOf("path", frozenset({"late"}))):
        (first, *_) = await approximate.search(VectorQuery(vector=late.vector), filter=condition, limit=3)
        assert first.chunk_id == late.chunk_id
        assert first.score == pytest.approx(1, abs=1e-5)
    await approximate.apply([DropDocument(document_id=late.document_id, generation=1)])


async def test_a_retag_moves_rows_out_of_a_scalar_index(approximate: LanceDBStore) -> None:
    secret = AnyOf("allowed", frozenset({"secret"}))
    await approximate.apply([Retag(document_id=document_id(f"d{n}"), access=access("x", allowed=("secret",))) for n in range(5)])
    query = VectorQuery(vector=CLUSTERED[0].vector)
    assert len(await approximate.search(query, filter=secret, limit=10)) == 5
    assert chunk("d0") not in {
        m.chunk_id for m in await approximate.search(query, filter=AnyOf("allowed", frozenset({"topic-0"})), limit=200)
    }
    await approximate.apply([Retag(document_id=document_id(f"d{n}"), access=CLUSTERED[n].access) for n in range(5)])
    assert await approximate.search(query, filter=secret, limit=10) == []


async def version(store: LanceDBStore) -> int | str:
    return (await store.stats()).detail["version"]


async def test_maintenance_that_is_not_due_commits_nothing(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    await store.apply([PutRows(rows=[row("a")])])
    before = await version(store)
    await store.maintain()
    assert await version(store) == before


async def test_many_commits_are_compacted(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    for number in range(maintenance._FRAGMENTS):
        await store.apply([PutRows(rows=[row(f"d{number}")])])
    await store.maintain()
    stats = await store.stats()
    assert (stats.rows, stats.detail["fragments"], stats.detail["unindexed_rows"]) == (maintenance._FRAGMENTS, 1, 0)


async def test_one_apply_is_one_commit_of_each_kind(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    await store.apply([PutRows(rows=[row(f"d{number}") for number in range(100)])])
    before = await version(store)
    retags = [Retag(document_id=document_id(f"d{number}"), access=access(f"new-{number}")) for number in range(40)]
    drops = [DropDocument(document_id=document_id(f"d{number}"), generation=number) for number in range(50, 90)]
    await store.apply([*retags, *drops, PutRows(rows=[row(f"e{number}") for number in range(40)])])
    assert int(await version(store)) == int(before) + 3


async def test_maintenance_and_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    writer = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    keeper = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    await writer.apply([PutRows(rows=[row("first")])])

    async def write() -> None:
        for number in range(30):
            await writer.apply([PutRows(rows=[row(f"d{number}"), row("first", generation=number + 2)])])
            if number % 3 == 2:
                await writer.apply([DropDocument(document_id=document_id(f"d{number}"), generation=1)])

    writing = asyncio.create_task(write())
    while not writing.done():
        await keeper.maintain(force=True)
    await writing
    keys = await listed(keeper.keys())
    assert {key.chunk_id for key in keys} == {chunk("first"), *(chunk(f"d{number}") for number in range(30) if number % 3 != 2)}
    assert len(keys) == 21


async def test_text_is_found_before_between_and_after_maintenance(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    for number in range(6):
        await store.apply([PutRows(rows=[row(f"d{number}", text=f"common word{number} studies")])])
        assert len(await store.search(TextQuery(text="common"), filter=ALWAYS, limit=10)) == number + 1
        assert len(await store.search(TextQuery(text=f"WORD{number} study"), filter=ALWAYS, limit=10)) == number + 1
        if number == 2:
            await store.maintain(force=True)


async def test_a_writer_heals_a_table_whose_text_index_was_never_made(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    await store.apply([PutRows(rows=[row("a", text="apple")])])
    table = store._collection._table
    assert table is not None
    await table.drop_index(maintenance.TEXT_INDEX)
    assert len(await store.search(TextQuery(text="apple"), filter=ALWAYS, limit=10)) == 1
    again = LanceDBStore(base=tmp_path, collection="chunks", dimensions=8)
    await again.apply([PutRows(rows=[row("b", text="apples")])])
    assert len(await again.search(TextQuery(text="apple"), filter=ALWAYS, limit=10)) == 2


async def test_what_a_filter_admits_is_counted_again_after_every_commit(index: Path, tmp_path: Path) -> None:
    base = tmp_path / "copy"
    shutil.copytree(index, base)
    store, other = opened(base), opened(base)
    condition = AnyOf("allowed", frozenset({"newcomers"}))
    query = VectorQuery(vector=CLUSTERED[0].vector)
    assert await store.search(query, filter=condition, limit=5) == []
    newcomers = [replace(one, access=replace(one.access, allowed=("newcomers",))) for one in CLUSTERED[:600]]
    counts = Counts()
    assert await store._collection.read(lambda table: counts.admitted(table, where(condition))) == 0
    for count in (3, 600):  # few, which are searched exactly, and many
        await other.apply([PutRows(rows=newcomers[:count])])
        assert await store._collection.read(lambda table: counts.admitted(table, where(condition))) == count
        found = await store.search(query, filter=condition, limit=5)
        near = sorted(newcomers[:count], key=lambda one: -float(one.vector @ query.vector))[:5]
        assert [match.chunk_id for match in found] == [one.chunk_id for one in near]
    await store.close()
    await other.close()
