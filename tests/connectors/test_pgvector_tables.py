"""pgvector's tables: retags and repeated puts leave vectors alone, nobody's columns stay behind, what version 1 made is brought along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, TextQuery, VectorQuery
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS, AnyOf
from ragstore.models import Row
from ragstore.testing.rows import DIMENSIONS, access, chunks, document_id, listed, row, vector
from ragstore_pgvector.schema import access_values, text_vector
from tests.support.pgvector import Open, schema_of, stores
from tests.support.postgres import execute

_KEY, _LIST = 'text COLLATE "C" NOT NULL', 'text[] COLLATE "C" NOT NULL'
_COLUMNS = (
    f"chunk_id {_KEY}, document_id {_KEY}, generation bigint NOT NULL, text {_KEY}, terms tsvector NOT NULL, words integer NOT NULL, "
    f"vector vector({{1}}) NOT NULL, account {_KEY}, container {_KEY}, path {_KEY}, media_type {_KEY}, allowed {_LIST}, labels {_LIST}, "
    f"label_keys {_LIST}, long_values {_LIST}, PRIMARY KEY (chunk_id)"
)
_FIRST = (
    'CREATE TABLE {0}.ragstore_collections (collection text COLLATE "C" PRIMARY KEY, version integer NOT NULL)',
    "INSERT INTO {0}.ragstore_collections VALUES ('chunks', 1)",
    f'CREATE TABLE {{0}}."chunks" ({_COLUMNS}) WITH (toast_tuple_target = 8160)',
    'CREATE INDEX ON {0}."chunks" (document_id)',
    'CREATE INDEX ON {0}."chunks" (left(container, 200))',
    'CREATE INDEX ON {0}."chunks" (left(path, 200))',
    'CREATE INDEX ON {0}."chunks" USING gin (terms)',
    'CREATE INDEX ON {0}."chunks" USING gin (allowed)',
    'CREATE INDEX ON {0}."chunks" USING hnsw (vector vector_cosine_ops) WITH (m = 24, ef_construction = 128)',
)
"""As version 1 made it."""


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    async with stores(postgres_url) as open_:
        yield open_


def rows_of(url: str, table: str, columns: str = "ctid, *") -> list[Any]:
    """All that a table of the collection holds, and where."""
    found: list[Any] = execute(url, f'SELECT {columns} FROM {schema_of(url)}."chunks{table}" ORDER BY id')
    return found


async def test_a_retag_writes_one_row_and_touches_neither_chunks_nor_vectors(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a", number) for number in range(300)] + [row("b")])])
    before = rows_of(postgres_url, ""), rows_of(postgres_url, ":vectors")
    columns = access("moved.md", allowed=("new",), labels=("l\x1fx",), label_keys=("l",))
    await store.apply([Retag(document_id=document_id("a"), access=columns)])
    assert (rows_of(postgres_url, ""), rows_of(postgres_url, ":vectors")) == before
    assert len(rows_of(postgres_url, ":access")) == 2
    found = await store.search(VectorQuery(vector=vector(1)), filter=AnyOf("allowed", frozenset({"new"})), limit=1_000)
    assert len(found) == 300
    assert {key.access for key in await listed(store.keys([document_id("a")]))} == {columns}


async def test_a_chunk_that_is_put_again_under_a_newer_generation_leaves_its_vector_alone(opened: Open, postgres_url: str) -> None:
    """So that a long document of which a paragraph was edited does not go through the approximate index again."""
    store = opened()
    old = [row("a", number) for number in range(50)]
    await store.apply([PutRows(rows=old)])
    before = rows_of(postgres_url, ":vectors")
    again = [replace(one, generation=2) for one in old]
    again[7] = replace(again[7], vector=vector(9, 9))
    await store.apply([PutRows(rows=again)])
    after = rows_of(postgres_url, ":vectors")
    assert len(set(after) - set(before)) == 1
    assert {key.generation for key in await listed(store.keys())} == {2}
    (kept,) = [stored for stored in await listed(store.rows([document_id("a")])) if stored.chunk_id == old[7].chunk_id]
    assert kept.vector == pytest.approx(vector(9, 9))


async def test_rows_of_one_document_may_differ_in_their_columns_and_a_retag_makes_them_alike(opened: Open, postgres_url: str) -> None:
    store = opened()
    columns = [access("a.md", allowed=(f"g{number}",)) for number in range(3)]
    await store.apply([PutRows(rows=[row("a", number, columns=columns[number % 3]) for number in range(9)])])
    assert len(rows_of(postgres_url, ":access")) == 3
    for number in range(3):
        condition = AnyOf("allowed", frozenset({f"g{number}"}))
        assert len(await store.search(VectorQuery(vector=vector(1)), filter=condition, limit=10)) == 3
    await store.apply([Retag(document_id=document_id("a"), access=columns[0])])
    assert {key.access for key in await listed(store.keys())} == {columns[0]}
    await store.apply([PutRows(rows=[row("a", number, generation=2, columns=columns[0]) for number in range(9)])])
    assert len(rows_of(postgres_url, ":access")) == 1


async def test_columns_that_no_row_has_any_more_are_deleted_with_the_last_row(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a", 0), row("a", 1), row("b"), row("c")])])
    assert len(rows_of(postgres_url, ":access")) == 3
    await store.apply([DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", [0]))])
    assert len(rows_of(postgres_url, ":access")) == 3
    await store.apply(
        [
            DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", [1])),
            DropDocument(document_id=document_id("b"), generation=1),
            PutRows(rows=[row("c", generation=2, columns=access("c.md", allowed=("other",)))]),
        ]
    )
    assert [path for (path,) in rows_of(postgres_url, ":access", "path")] == ["c.md"]
    assert len(rows_of(postgres_url, ":vectors")) == 1


async def test_writers_that_take_and_leave_the_same_columns_lose_nothing(opened: Open, postgres_url: str) -> None:
    columns = [access("a.md", allowed=(name,)) for name in "xy"]

    async def work(number: int) -> None:
        store = opened()
        for turn in range(8):
            chunk = row("a", number, columns=columns[turn % 2])
            await store.apply([PutRows(rows=[chunk]), DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", [99]))])
            if turn % 3 == 2:
                await store.apply([DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", [number]))])
                await store.apply([PutRows(rows=[chunk])])

    await asyncio.gather(*(work(number) for number in range(6)))
    keys = await listed(opened().keys())
    assert (len(keys), {key.access for key in keys}) == (6, {columns[1]})
    await opened().apply([DropDocument(document_id=document_id("a"), generation=1)])
    assert rows_of(postgres_url, ":access") == rows_of(postgres_url, ":vectors") == []


def _inserted(one: Row) -> str:
    def quoted(value: object) -> str:
        if isinstance(value, list):
            return f"ARRAY[{', '.join(map(quoted, value))}]::text[]"
        return "'" + str(value).replace("'", "''") + "'"

    terms, words = text_vector(one.text)
    values = [one.chunk_id, one.document_id, one.generation, one.text, terms, words, one.vector.tolist(), *access_values(one.access)]
    values[6] = str(values[6])
    return f"({', '.join(map(quoted, values))})"


async def test_a_table_that_version_one_made_is_brought_to_this_one_with_every_row(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    shared = access("a.md", allowed=("g", "h"), labels=("l\x1fit's", "\x1a#"), label_keys=("l",))
    rows = [row("a", number, columns=shared) for number in range(5)]
    rows += [row("a", 9, columns=access("a.md", allowed=("g",))), row("b", text='"quoted", and {braced}'), row("c", generation=4)]
    values = ", ".join(map(_inserted, rows))
    execute(postgres_url, *(statement.format(name, DIMENSIONS) for statement in _FIRST), f'INSERT INTO {name}."chunks" VALUES {values}')
    readers = await asyncio.gather(*(opened(ann_from=5).stats() for _ in range(3)))
    assert {found.rows for found in readers} == {len(rows)}
    store = opened(ann_from=5)
    assert {(key.chunk_id, key.generation, key.access) for key in await listed(store.keys())} == {
        (one.chunk_id, one.generation, one.access) for one in rows
    }
    assert len(rows_of(postgres_url, ":access")) == 4
    (quoted,) = await store.search(TextQuery(text="braced"), filter=ALWAYS, limit=5)
    assert quoted.chunk_id == rows[6].chunk_id
    await store.maintain(force=True)
    assert (await store.stats()).detail["ann"] == "yes"
    found = await store.search(VectorQuery(vector=rows[2].vector), filter=AnyOf("allowed", frozenset({"h"})), limit=9)
    assert (found[0].chunk_id, len(found)) == (rows[2].chunk_id, 5)
    await store.apply([PutRows(rows=[replace(one, generation=5) for one in rows])])
    assert len(await listed(store.keys())) == len(rows)
    assert execute(postgres_url, f"SELECT to_regclass('{name}.\"chunks:earlier\"')") == [(None,)]


async def test_a_table_of_version_one_that_was_changed_is_refused_and_stays_as_it_is(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    execute(postgres_url, *(statement.format(name, 3) for statement in _FIRST))
    with pytest.raises(ConfigError, match="3 dimensions"):
        await opened().stats()
    execute(postgres_url, f'ALTER TABLE {name}."chunks" ADD COLUMN mine text')
    with pytest.raises(ConfigError, match="'mine' is not ours"):
        await opened(dimensions=3).stats()
    assert execute(postgres_url, f"SELECT version FROM {name}.ragstore_collections") == [(1,)]
