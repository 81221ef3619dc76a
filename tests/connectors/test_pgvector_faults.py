"""What may befall pgvector on its way: ended connections, timeouts, tables and rights taken away; and the wall that a database can be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragstore.contracts import DropDocument, PutRows, Retag, TextQuery, VectorQuery
from ragstore.errors import ConfigError, TransientError
from ragstore.filters import ALWAYS, AnyOf, Not, Or, StartsWith
from ragstore.models import AccessColumns
from ragstore.testing.rows import access, document_id, listed, row, vector
from ragstore_pgvector import collection as collections
from ragstore_pgvector import commits
from ragstore_pgvector import store as stores_
from ragstore_pgvector.searching import Nearest
from tests.support.pgvector import Open, plain, schema_of, stores
from tests.support.postgres import execute

NEAR = VectorQuery(vector=vector(1))


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    async with stores(postgres_url) as open_:
        yield open_


@contextmanager
def role(url: str, *rights: str, limit: int = -1) -> Iterator[str]:
    """The URL of a user with these rights alone; `{schema}` and `{role}` stand for the names of the schema and of the user."""
    schema = schema_of(url)
    name = f"{schema}_other"
    execute(url, f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {limit}")
    try:
        execute(url, *(right.format(schema=schema, role=name) for right in rights))
        yield plain(url).replace("postgres:@", f"{name}@")
    finally:
        execute(url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


class EndsOnce:
    """Does what it stands for, and then has the server end the connection, the first time."""

    def __init__(self, work: Any) -> None:
        self.work, self.calls = work, 0

    async def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        first = self.calls == 1
        done = await self.work(*arguments)
        if first:
            (connection,) = [one for one in arguments if hasattr(one, "execute")]
            await connection.execute(b"SELECT pg_terminate_backend(pg_backend_pid())")
        return done


async def test_a_connection_that_ends_within_a_change_leaves_nothing_half_and_the_change_is_repeated(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a", number, text="old") for number in range(5)])])
    ends = EndsOnce(commits.carry_out)
    monkeypatch.setattr(stores_, "carry_out", ends)
    new = [row("a", number, text="new", generation=2) for number in range(3)]
    await store.apply([DropDocument(document_id=document_id("a"), generation=1), PutRows(rows=new)])
    assert ends.calls == 3
    assert [stored.text for stored in await listed(store.rows([document_id("a")]))] == ["new"] * 3


async def test_connections_that_end_within_searches_are_replaced_unseen(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a"), row("b")])])
    ends = EndsOnce(Nearest.run)
    monkeypatch.setattr(Nearest, "run", lambda *arguments: ends(*arguments))  # noqa: PLW0108 - only a function is a method
    found = await asyncio.gather(*(store.search(NEAR, filter=ALWAYS, limit=5) for _ in range(4)))
    assert {len(matches) for matches in found} == {2}
    assert ends.calls == 5


async def test_a_connection_that_ends_within_a_listing_is_an_outage_and_never_a_shorter_list(
    opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "_ROWS_PER_FETCH", 2)
    store = opened()
    await store.apply([PutRows(rows=[row("a", number) for number in range(9)])])
    keys = store.keys()
    await anext(keys)
    execute(postgres_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ragstore'")
    with pytest.raises(TransientError):
        await listed(keys)
    assert len(await listed(store.keys())) == 9


async def test_a_statement_that_takes_too_long_is_an_outage(opened: Open, postgres_url: str) -> None:
    await opened().apply([PutRows(rows=[row(f"d{number}", number) for number in range(2_000)])])
    hurried = opened(url=f"{plain(postgres_url)}&options=-cstatement_timeout%3D1")
    slow = Or(tuple(Not(StartsWith("media_type", f"{number}")) for number in range(20_000)))
    with pytest.raises(TransientError, match="statement timeout"):
        await hurried.search(NEAR, filter=slow, limit=5)


async def test_a_lock_that_somebody_keeps_is_an_outage(opened: Open, postgres_url: str) -> None:
    import psycopg

    store = opened(url=f"{plain(postgres_url)}&options=-clock_timeout%3D50")
    await store.apply([PutRows(rows=[row("a")])])
    with psycopg.connect(plain(postgres_url)) as other:
        other.execute(f'LOCK TABLE {schema_of(postgres_url)}."chunks" IN ACCESS EXCLUSIVE MODE'.encode())
        with pytest.raises(TransientError, match="lock timeout"):
            await store.apply([PutRows(rows=[row("b")])])
    await store.apply([PutRows(rows=[row("b")])])


async def test_a_server_that_takes_no_more_connections_is_an_outage(opened: Open, postgres_url: str) -> None:
    name = "USAGE ON SCHEMA {schema} TO {role}"
    await opened().apply([PutRows(rows=[row("a")])])
    with role(postgres_url, f"GRANT {name}", "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}", limit=1) as url:
        first, second = opened(url=url), opened(url=url)
        assert len(await first.search(NEAR, filter=ALWAYS, limit=5)) == 1
        with pytest.raises(TransientError, match="too many connections"):
            await second.search(NEAR, filter=ALWAYS, limit=5)
        await first.close()
        assert len(await second.search(NEAR, filter=ALWAYS, limit=5)) == 1
        await second.close()


async def test_far_more_searches_than_connections_all_get_their_turn(opened: Open) -> None:
    store = opened(pool_size=2)
    await store.apply([PutRows(rows=[row("a")])])
    found = await asyncio.gather(*(store.search(NEAR, filter=ALWAYS, limit=5) for _ in range(60)))
    assert {len(matches) for matches in found} == {1}


@pytest.mark.parametrize("table", ["", ":access", ":vectors", ":strays"])
async def test_tables_that_vanish_behind_its_back_are_told_or_made_anew(opened: Open, postgres_url: str, table: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    schema = schema_of(postgres_url)
    execute(postgres_url, f'DROP TABLE {schema}."chunks{table}" CASCADE')
    if table:  # the others are there, so it is no new collection
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"chunks{table}.*is missing"):
                await store.search(NEAR, filter=ALWAYS, limit=5)
            with pytest.raises(ConfigError, match=f"chunks{table}.*is missing"):
                await store.apply([PutRows(rows=[row("b")])])
        await store.drop()
    else:
        assert await store.search(NEAR, filter=ALWAYS, limit=5) == []
        assert await listed(store.keys()) == []
    await store.apply([PutRows(rows=[row("b")])])
    assert [match.document_id for match in await store.search(NEAR, filter=ALWAYS, limit=5)] == [document_id("b")]


async def test_columns_that_a_later_version_changes_under_an_open_store_are_told(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    schema = schema_of(postgres_url)
    execute(postgres_url, f'ALTER TABLE {schema}."chunks" RENAME COLUMN text TO body')
    for said in ("'text' is missing", "made by a newer ragstore"):
        with pytest.raises(ConfigError, match=said):
            await store.search(NEAR, filter=ALWAYS, limit=5)
        with pytest.raises(ConfigError, match=said):
            await store.apply([PutRows(rows=[row("b")])])
        execute(postgres_url, f"UPDATE {schema}.ragstore_collections SET version = 99")


async def test_a_whole_schema_that_vanishes_is_made_anew_by_the_next_write(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    execute(postgres_url, f"DROP SCHEMA {schema_of(postgres_url)} CASCADE")
    assert await store.search(NEAR, filter=ALWAYS, limit=5) == []
    assert (await store.stats()).rows == 0
    await store.apply([PutRows(rows=[row("b")])])
    assert (await store.stats()).rows == 1


async def test_nothing_is_prepared_and_no_setting_stays_so_that_a_pooler_may_stand_between(opened: Open) -> None:
    store = opened(pool_size=1, ann_from=5, exact_below=0)
    await store.apply([PutRows(rows=[row(f"d{number}") for number in range(30)])])

    async def settings() -> list[Any]:
        async with store._collection._database.connection() as connection:
            shown = b"SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'hnsw%' ORDER BY name"
            return await (await connection.execute(shown)).fetchall()

    before = await settings()
    await store.maintain(force=True)
    for _ in range(7):
        await store.search(NEAR, filter=AnyOf("allowed", frozenset({"staff"})), limit=3)
        await store.search(TextQuery(text="chunk"), filter=ALWAYS, limit=3)
        await store.apply([Retag(document_id=document_id("d1"), access=access("x.md"))])
    assert await settings() == before
    async with store._collection._database.connection() as connection:
        assert await (await connection.execute(b"SELECT name FROM pg_prepared_statements")).fetchall() == []


# A second wall.


def wall() -> list[str]:
    """The statements of the README, but for the one that makes the user."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)
    statements = [one.strip() for one in block.split(";") if one.strip()]
    assert statements.pop(0) == "CREATE ROLE reader LOGIN"
    for name, other in (("ragstore.ragstore_collections", "{schema}.ragstore_collections"), ("SCHEMA ragstore", "SCHEMA {schema}")):
        statements = [one.replace(name, other) for one in statements]
    return [re.sub(r"\bragstore\.", "{schema}.", one).replace("NAME", "chunks").replace("TO reader", "TO {role}") for one in statements]


@pytest.mark.parametrize("indexed", [False, True])
async def test_what_the_database_hides_from_the_reader_no_search_finds_whatever_its_filter(
    opened: Open, postgres_url: str, *, indexed: bool
) -> None:
    def columns(number: int) -> AccessColumns:
        container = "public" if number % 4 == 0 else "secret"
        return AccessColumns(account="a", container=container, path=f"{number}.md", allowed=("staff",))

    rows = [row(f"d{number}", text=f"word{number} common", columns=columns(number)) for number in range(200)]
    owner = opened(ann_from=50, exact_below=0)
    await owner.apply([PutRows(rows=rows)])
    if indexed:
        await owner.maintain(force=True)
    with role(postgres_url, *wall()) as url:
        store = opened(reader_url=url, ann_from=50, exact_below=0)
        for condition in (ALWAYS, AnyOf("allowed", frozenset({"staff"})), Not(AnyOf("allowed", frozenset({"x"})))):
            for query in (NEAR, TextQuery(text="common"), TextQuery(text="word3 word4")):
                found = {match.document_id for match in await store.search(query, filter=condition, limit=500)}
                wanted = {4} if isinstance(query, TextQuery) and query.text.startswith("word3") else set(range(0, 200, 4))
                assert found == {document_id(f"d{number}") for number in wanted}
            assert len(await store.search(NEAR, filter=condition, limit=10)) == 10
        # All else sees everything: to keep house behind the wall would be to lose what is behind it.
        assert (await store.stats()).rows == len(await listed(store.keys())) == 200
        await store.apply([PutRows(rows=[row("new", columns=columns(1))])])
        assert (await store.stats()).rows == 201
        # A collection that nobody opened to the reader, as another embedder makes one, stays shut.
        await opened("other").apply([PutRows(rows=rows[:1])])
        shut = opened("other", reader_url=url)
        for ask in (lambda: shut.search(NEAR, filter=ALWAYS, limit=5), shut.stats):
            with pytest.raises(ConfigError, match=r"reader_url may not read .*permission denied.* SELECT") as raised:
                await ask()
            assert "CREATE" not in str(raised.value)
        await store.close()
        await shut.close()


async def test_a_reader_is_asked_for_in_one_way_and_its_password_is_not_in_the_file(
    opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="reader_url_env names the environment variable 'READER', which is not set"):
        opened(reader_url_env="READER")
    with pytest.raises(ConfigError, match="either reader_url"):
        opened(reader_url="postgresql://h/d", reader_url_env="READER")
    with pytest.raises(ConfigError, match="reader_url holds a password"):
        opened(reader_url="postgresql://u:s3cret@h/d")
    await opened().apply([PutRows(rows=[row("a")])])
    rights = ("GRANT USAGE ON SCHEMA {schema} TO {role}", "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    with role(postgres_url, *rights) as url:
        monkeypatch.setenv("READER", url)
        store = opened(reader_url_env="READER")
        assert len(await store.search(NEAR, filter=ALWAYS, limit=5)) == 1
        await store.close()
