"""The pgvector store against the suite on a real PostgreSQL, and what is its own: options, limits, tables that somebody changed."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

from ragstore.contracts import DropDocument, PutRows, Retag, TextQuery, VectorQuery
from ragstore.errors import ConfigError, TransientError
from ragstore.filters import ALWAYS, AnyOf, Filter, Not, OneOf, Or, StartsWith, matches
from ragstore.plugins import build
from ragstore.testing.rows import DIMENSIONS, access, chunk, document_id, listed, row, vector
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_memory import MemoryStore
from ragstore_pgvector import PgvectorStore, tables
from tests.support.pgvector import Open, plain, schema_of, stores
from tests.support.postgres import execute


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    """Opens stores in a schema of this test's own."""
    async with stores(postgres_url) as open_:
        yield open_


class TestPgvectorStore(StoreSuite):
    store_type = "pgvector"

    @pytest.fixture
    @override
    def make_store(self, opened: Open) -> MakeStore:
        return opened


async def test_half_the_precision_is_enough_to_find_and_rank(opened: Open) -> None:
    store = opened(precision="f16", ann_from=50, exact_below=10)
    put = [row(f"d{number}") for number in range(60)]
    await store.apply([PutRows(rows=put)])
    await store.maintain()
    (stored,) = await listed(store.rows([put[3].document_id]))
    assert np.allclose(stored.vector, put[3].vector, atol=1e-3)
    assert (str(stored.vector.dtype), stored.text) == ("float32", put[3].text)
    (best, *_) = await store.search(VectorQuery(vector=put[3].vector), filter=ALWAYS, limit=5)
    assert best.chunk_id == put[3].chunk_id
    assert best.score == pytest.approx(1, abs=1e-3)
    with pytest.raises(ConfigError, match="f16"):
        await store.apply([PutRows(rows=[replace(put[0], vector=np.full(DIMENSIONS, 1e6, np.float32))])])
    with pytest.raises(ConfigError, match="precision 'f16'"):
        await opened(precision="f32").stats()


async def test_a_vector_of_zeros_is_as_near_as_a_right_angle(opened: Open) -> None:
    store = opened()
    zeros = np.zeros(DIMENSIONS, np.float32)
    await store.apply([PutRows(rows=[row("zero", vector=zeros), row("near", vector=vector(1)), row("far", vector=vector(-1))])])
    found = await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5)
    assert [(match.text, round(match.score, 5)) for match in found] == [
        ("chunk 0 of near", 1),
        ("chunk 0 of zero", 0),
        ("chunk 0 of far", -1),
    ]
    assert [match.score for match in await store.search(VectorQuery(vector=zeros), filter=ALWAYS, limit=5)] == [0, 0, 0]


async def test_values_longer_than_an_entry_of_an_index_are_found_and_come_back(opened: Open) -> None:
    chance = random.Random(3)
    long = ["".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(3_000)) + end for end in "abc"]
    columns = [access(text, allowed=(text, "g"), labels=(text, "\x1a#" + text), label_keys=(text[:500], "")) for text in long]
    store = opened()
    await store.apply([PutRows(rows=[row(f"d{number}", text=str(number), columns=one) for number, one in enumerate(columns)])])
    assert {key.access for key in await listed(store.keys())} == set(columns)
    conditions: list[Filter] = [
        *(OneOf("path", frozenset({text})) for text in long),
        *(StartsWith("path", long[0][:length]) for length in (100, 200, 201, 3_000)),
        *(AnyOf("allowed", frozenset({text})) for text in long),
        AnyOf("labels", frozenset({"\x1a#" + long[1]})),
        AnyOf("label_keys", frozenset({long[2][:500]})),
    ]
    for condition in [*conditions, *map(Not, conditions)]:
        expected = {str(number) for number, one in enumerate(columns) if matches(condition, one)}
        assert {match.text for match in await store.search(VectorQuery(vector=vector(1)), filter=condition, limit=5)} == expected
    await store.apply([Retag(document_id=document_id("d0"), access=columns[1])])
    assert [key.access for key in await listed(store.keys([document_id("d0")]))] == [columns[1]]


async def test_a_word_longer_than_postgresql_takes_and_a_text_of_very_many_words_are_found(opened: Open) -> None:
    store = opened()
    word = "ä" * 3_000
    many = " ".join(f"word{number}" for number in range(100_000))
    await store.apply([PutRows(rows=[row("long", text=f"before {word} after"), row("many", text=many), row("other", text=word + "b")])])
    assert [match.chunk_id for match in await store.search(TextQuery(text=word), filter=ALWAYS, limit=5)] == [chunk("long")]
    assert [match.chunk_id for match in await store.search(TextQuery(text="word17"), filter=ALWAYS, limit=5)] == [chunk("many")]


async def test_texts_are_scored_as_the_memory_store_scores_them(opened: Open) -> None:
    """Whether words are rare or common, and whatever is left out of the search at first."""
    chance = random.Random(5)
    words = [f"w{number}" for number in range(60)]
    rows = [
        row(f"d{number}", text=" ".join(words[min(int(chance.expovariate(0.15)), 59)] for _ in range(chance.randrange(3, 60))))
        for number in range(400)
    ]
    rows = [replace(one, access=access(f"{number}", allowed=(f"g{number % 7}",))) for number, one in enumerate(rows)]
    store, memory = opened(), MemoryStore(collection="congruent", dimensions=DIMENSIONS)
    await store.apply([PutRows(rows=rows)])
    await memory.apply([PutRows(rows=rows)])
    try:
        for text in ("w0", "w40 w0 w1", "w50 w51 w0", "w30 w31 w32 w33", "w2 w2 w59", "w0 w1 w2 w3", "absent w45", "absent"):
            for admitted in (ALWAYS, AnyOf("allowed", frozenset({"g3"})), Not(AnyOf("allowed", frozenset({"g1", "g2"})))):
                # A repeated word counts once for the one and twice for the other.
                asked = TextQuery(text=" ".join(dict.fromkeys(text.split())))
                ours = await store.search(TextQuery(text=text), filter=admitted, limit=10)
                theirs = await memory.search(asked, filter=admitted, limit=10)
                assert [match.chunk_id for match in ours] == [match.chunk_id for match in theirs], text
                assert [match.score for match in ours] == pytest.approx([match.score for match in theirs], rel=1e-6)
        everything = await store.search(TextQuery(text="w50 w0"), filter=ALWAYS, limit=400)
        assert {match.chunk_id for match in everything} == {
            match.chunk_id for match in await memory.search(TextQuery(text="w50 w0"), filter=ALWAYS, limit=400)
        }
    finally:
        MemoryStore.collections.clear()


async def test_a_principal_of_ten_thousand_groups_is_answered(opened: Open) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row(f"d{number}", columns=access(allowed=(f"group {number}", "x"))) for number in range(500)])])
    groups = frozenset(f"group {number}" for number in range(490, 10_490))
    for query in (VectorQuery(vector=vector(1)), TextQuery(text="chunk")):
        assert len(await store.search(query, filter=AnyOf("allowed", groups), limit=50)) == 10
        assert len(await store.search(query, filter=Not(AnyOf("allowed", groups)), limit=500)) == 490


async def test_a_filter_of_more_parts_than_a_statement_has_is_refused(opened: Open) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    parts = tuple(StartsWith("media_type", f"{number}") for number in range(60_001))
    with pytest.raises(ConfigError, match="simpler"):
        await store.search(VectorQuery(vector=vector(1)), filter=Or(parts), limit=1)


async def test_a_retag_to_the_same_columns_writes_nothing(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    where = f'SELECT ctid FROM {schema_of(postgres_url)}."chunks:access"'
    before = execute(postgres_url, where)
    await store.apply([Retag(document_id=document_id("a"), access=row("a").access)])
    assert execute(postgres_url, where) == before


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ('ALTER TABLE {}."chunks" DROP COLUMN terms', "'terms' is missing"),
        ('ALTER TABLE {}."chunks:vectors" ADD COLUMN mine text', "'mine' is not ours"),
        ('ALTER TABLE {}."chunks" ALTER COLUMN words TYPE bigint', "'words' is of type 'int8', not 'int4'"),
        ('ALTER TABLE {}."chunks:access" ALTER COLUMN allowed DROP NOT NULL', "'allowed' may be null"),
        (
            'ALTER TABLE {}."chunks:access" ALTER COLUMN media_type TYPE text COLLATE "POSIX"',
            "'media_type' has the collation 'POSIX', not 'C'",
        ),
    ],
)
async def test_what_differs_in_a_table_is_named(opened: Open, postgres_url: str, statement: str, named: str) -> None:
    await opened().apply([PutRows(rows=[row("a")])])
    execute(postgres_url, statement.format(schema_of(postgres_url)))
    with pytest.raises(ConfigError, match=named):
        await opened().stats()


async def test_a_table_of_somebody_else_or_of_a_newer_version_is_left_alone(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    execute(postgres_url, f"CREATE TABLE {name}.notes (id integer)")
    with pytest.raises(ConfigError, match="no version of ragstore made it"):
        await opened("notes").apply([PutRows(rows=[row("a")])])
    await opened().apply([PutRows(rows=[row("a")])])
    execute(postgres_url, f"UPDATE {name}.ragstore_collections SET version = 99")
    with pytest.raises(ConfigError, match="newer ragstore"):
        await opened().stats()


async def test_an_older_table_is_brought_to_this_version_once(opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened().apply([PutRows(rows=[row("a")])])
    monkeypatch.setattr(tables, "VERSION", 3)
    monkeypatch.setattr(
        tables,
        "MIGRATIONS",
        (
            *tables.MIGRATIONS,
            ("CREATE INDEX second ON {table} (generation)",),
        ),
    )
    for _ in range(2):
        assert (await opened().stats()).rows == 1
    assert execute(postgres_url, f"SELECT version FROM {schema_of(postgres_url)}.ragstore_collections") == [(3,)]


async def test_the_longest_collection_names_are_kept_apart(opened: Open) -> None:
    names = ["c" * 54 + end for end in "xy"]
    for name in names:
        await opened(name).apply([PutRows(rows=[row(name)])])
    assert [(await opened(name).stats()).rows for name in names] == [1, 1]


@pytest.mark.parametrize("name", ["", "-a", ".a", 'a"b', "a b", "ä", "c" * 56, "a:access", "ragstore_collections"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="collection name"):
        PgvectorStore(collection=name, dimensions=3, url="postgresql://h/d")
    with pytest.raises(ConfigError, match="schema"):
        PgvectorStore(collection="chunks", dimensions=3, url="postgresql://h/d", schema=name.replace("c", "C") or '"')


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h/db",
        "postgresql://u@h/db?password=s3cret",
        "postgresql://u:s3cret@h:port/db",
        "postgresql://u:s3/cr@et@h:x/db?s3cret=1",
        "s3cret",
        "http://u:s3cret@h/db",
    ],
)
def test_a_password_in_the_file_is_refused_and_never_told(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        PgvectorStore(collection="chunks", dimensions=3, url=url)
    assert "s3" not in str(raised.value)


async def test_the_url_may_be_in_a_variable_with_its_password(postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options: dict[str, object] = {"url_env": "STORE_URL", "schema": schema_of(postgres_url), "pool_size": 1}
    with pytest.raises(ConfigError, match="'STORE_URL', which is not set"):
        build("stores", "pgvector", options, base=tmp_path, collection="chunks", dimensions=DIMENSIONS)
    monkeypatch.setenv("STORE_URL", plain(postgres_url).replace("postgres:@", "postgres:s3cret@"))
    store = build("stores", "pgvector", options, base=tmp_path, collection="chunks", dimensions=DIMENSIONS)
    assert isinstance(store, PgvectorStore)
    await store.apply([PutRows(rows=[row("a"), row("b")])])
    async for _ in store.keys():
        await store.apply([DropDocument(document_id=document_id("a"), generation=1)])  # while a long result is open, with a pool of one
    assert (await store.stats()).rows == 1
    await store.close()


def test_an_url_is_asked_for_and_the_schema_is_an_option_of_its_own() -> None:
    for url, url_env in ((None, None), ("postgresql://h/d", "X")):
        with pytest.raises(ConfigError, match="either url"):
            PgvectorStore(collection="chunks", dimensions=3, url=url, url_env=url_env)
    with pytest.raises(ConfigError, match="schema = 'NAME'"):
        PgvectorStore(collection="chunks", dimensions=3, url="postgresql://h/d?schema=x")
    for port in ("port", "0", "65536", "5432,x"):
        with pytest.raises(ConfigError, match="port"):
            PgvectorStore(
                collection="chunks", dimensions=3, url=f"postgresql://h:{port}/d" if "," not in port else f"postgresql://g,h/d?port={port}"
            )


async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"ragstore\[pgvector\]"):
        PgvectorStore(collection="chunks", dimensions=3, url="postgresql://h/d")


async def test_a_server_or_a_database_that_is_not_there_is_told_apart(opened: Open, postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="cannot be reached"):
        await opened(url=f"postgresql://u@/d?host={tmp_path}").stats()
    with pytest.raises(ConfigError, match="nowhere"):
        await opened(url=plain(postgres_url).replace("/postgres?", "/nowhere?")).stats()


async def test_a_user_without_rights_is_told_what_to_grant(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    await opened().apply([PutRows(rows=[row("a")])])
    execute(postgres_url, f"CREATE ROLE {name}_reader LOGIN")
    try:
        reader = plain(postgres_url).replace("postgres:@", f"{name}_reader@")
        with pytest.raises(ConfigError, match="grant it"):
            await opened(url=reader).stats()
        execute(
            postgres_url, f"GRANT USAGE ON SCHEMA {name} TO {name}_reader", f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {name}_reader"
        )
        store = opened(url=reader)
        assert len(await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5)) == 1
        assert len(await store.search(TextQuery(text="chunk"), filter=ALWAYS, limit=5)) == 1
        with pytest.raises(ConfigError, match="grant it"):
            await store.apply([PutRows(rows=[row("b")])])
        await store.close()
    finally:
        execute(postgres_url, f"DROP OWNED BY {name}_reader", f"DROP ROLE {name}_reader")


async def test_pgvector_may_be_installed_in_any_schema_of_the_database(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    execute(postgres_url, f"CREATE DATABASE {name}")
    try:
        url = plain(postgres_url).replace("/postgres?", f"/{name}?")
        assert (await opened(url=url).stats()).rows == 0  # and asking makes nothing
        assert execute(url, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == [(0,)]
        execute(url, 'CREATE SCHEMA "Of Others"', 'CREATE EXTENSION vector SCHEMA "Of Others"', "DROP SCHEMA public")
        for collection, precision in (("full", "f32"), ("half", "f16")):
            store = opened(collection, url=url, precision=precision, ann_from=10, exact_below=5)
            await store.apply([PutRows(rows=[row(f"d{number}") for number in range(20)])])
            await store.maintain(force=True)
            assert (await store.stats()).detail["ann"] == "yes"
            assert len(await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=10)) == 10
            assert len(await listed(store.rows([document_id("d3")]))) == 1
            assert (await store.expunge()).older == ()
            await store.close()
    finally:
        execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_database_that_cannot_hold_every_text_is_refused(opened: Open, postgres_url: str) -> None:
    name = schema_of(postgres_url)
    execute(postgres_url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        store = opened(url=plain(postgres_url).replace("/postgres?", f"/{name}?"))
        with pytest.raises(ConfigError, match="UTF8"):
            await store.apply([PutRows(rows=[row("a")])])
        await store.close()
    finally:
        execute(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")
