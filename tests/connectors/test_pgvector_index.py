"""pgvector's index and transactions: nothing is lost under filters, half a change is never seen, what was erased is in no file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import make_url

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, VectorQuery
from ragstore.errors import TransientError
from ragstore.filters import ALWAYS, AnyOf, Filter, Like, OneOf, StartsWith, matches
from ragstore.models import Row
from ragstore.testing.rows import access, chunk, chunks, document_id, listed, row, vector
from tests.support import postgres
from tests.support.pgvector import Open, plain, schema_of, server_of, stores
from tests.support.postgres import execute
from tests.support.workspace import Workspace, paragraphs, texts

ROWS = 10_000
SIZE = 24
_WRITER = """
import asyncio, sys
from ragstore.contracts import DropDocument, PutRows
from ragstore.testing.rows import DIMENSIONS, document_id, row
from ragstore_pgvector import PgvectorStore, store

async def stall(step, connection, names):
    await carry_out(step, connection, names)
    print("written, not committed", flush=True)
    await asyncio.sleep(600)

carry_out, store.carry_out = store.carry_out, stall
rows = [row("a", number, text="new", generation=2) for number in range(3)]
writes = [DropDocument(document_id=document_id("a"), generation=1), PutRows(rows=rows)]
asyncio.run(PgvectorStore(collection="chunks", dimensions=DIMENSIONS, url=sys.argv[1], schema=sys.argv[2]).apply(writes))
"""


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    async with stores(postgres_url) as open_:
        yield open_


def clustered_rows() -> list[Row]:
    """200 topics; groups own whole topics, which is what approximate search under a filter is worst at, or any documents."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(200, SIZE))
    topics = random.integers(0, 200, ROWS)
    drawn = (centres[topics] + 0.5 * random.normal(size=(ROWS, SIZE))).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    rows = []
    for number, topic in enumerate(topics.tolist()):
        shares = [name for name, below in (("half", 100), ("twentieth", 10), ("rare", 1)) if topic < below]
        shares += [name for name, every in (("any-half", 2), ("any-twentieth", 20), ("any-rare", 200)) if number % every == 0]
        columns = access(f"{topic}/{number}", allowed=tuple(shares))
        rows.append(row(f"d{number}", text=f"topic{topic}", vector=drawn[number], columns=columns))
    return rows


CLUSTERED = clustered_rows()
VECTORS = np.array([one.vector for one in CLUSTERED])


@pytest.fixture(scope="module")
def indexed(postgres_server: str) -> Iterator[str]:
    """A ledger's URL whose schema holds a collection with an approximate index."""
    with postgres.schema(postgres_server) as url:

        async def build() -> None:
            async with stores(url) as open_:
                store = open_(dimensions=SIZE, ann_from=ROWS)
                await store.apply([PutRows(rows=CLUSTERED)])
                await store.maintain(force=True)
                assert (await store.stats()).detail["ann"] == "yes"

        asyncio.run(build())
        yield url


@pytest.mark.parametrize("exact_below", [1_000, 0])
async def test_the_nearest_are_found_under_any_share_whether_of_topics_or_at_random(indexed: str, exact_below: int) -> None:
    async with stores(indexed) as open_:
        store = open_(dimensions=SIZE, exact_below=exact_below)
        for share in ("", "half", "twentieth", "rare", "any-half", "any-twentieth", "any-rare"):
            condition: Filter = AnyOf("allowed", frozenset({share})) if share else ALWAYS
            admitted = np.array([matches(condition, one.access) for one in CLUSTERED])
            hits, wanted = 0, 0
            for query in VECTORS[7::999]:
                found = await store.search(VectorQuery(vector=query), filter=condition, limit=10)
                assert len(found) == min(10, admitted.sum()), share
                cosines = np.where(admitted, VECTORS @ query, -2)
                best = {CLUSTERED[position].chunk_id for position in np.argsort(-cosines)[:10].tolist()}
                hits, wanted = hits + len(best & {match.chunk_id for match in found}), wanted + len(best)
                assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
            assert hits / wanted >= 0.98, share


async def test_a_scan_that_ends_too_early_is_followed_by_an_exact_search(indexed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore_pgvector.searching._SETTINGS", b"SELECT set_config('hnsw.iterative_scan', 'off', true), %s::text")
    rare = AnyOf("allowed", frozenset({"rare"}))
    far = CLUSTERED[next(number for number, one in enumerate(CLUSTERED) if "half" not in one.access.allowed)].vector
    async with stores(indexed) as open_:
        store = open_(dimensions=SIZE, exact_below=0)
        found = await store.search(VectorQuery(vector=far), filter=rare, limit=30)
        assert len(found) == 30


async def test_rows_that_the_index_loses_are_looked_for_once_and_found_by_every_search(
    opened: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph so thin that islands form in it; nothing but what is compared besides finds them."""
    thin = "CREATE INDEX CONCURRENTLY ON {vectors} USING hnsw (vector {by_cosine}) WITH (m = 2, ef_construction = 4)"
    monkeypatch.setattr("ragstore_pgvector.maintenance._INDEX", thin)
    store = opened(dimensions=SIZE, ann_from=10, exact_below=0)
    rows = CLUSTERED[:3_000]
    lost = 0
    for start, end in ((0, 2_000), (2_000, 2_100), (2_100, 3_000)):  # all, those that are new, and all again
        await store.apply([PutRows(rows=rows[start:end])])
        await store.maintain()
        lost, before = int((await store.stats()).detail["unreached"]), lost
        assert lost > before
    assert lost > 100
    with monkeypatch.context() as patch:
        patch.setattr("ragstore_pgvector.searching._ENOUGH", 0)  # else it is known that the index gives too few
        patch.setattr("ragstore_pgvector.searching.Nearest._exactly", None)
        for one in rows[::29]:
            (best, *_) = await store.search(VectorQuery(vector=one.vector), filter=ALWAYS, limit=10)
            assert best.score == pytest.approx(1, abs=1e-5)
    # What was looked for in one index says nothing of another, which is asked no sooner than it was looked for there.
    execute(postgres_url, f'REINDEX TABLE {schema_of(postgres_url)}."chunks:vectors"')
    assert (await store.stats()).detail["ann"] == "no"
    await store.maintain()
    assert (await store.stats()).detail["ann"] == "yes"


async def test_a_vector_of_zeros_which_no_index_holds_is_found_besides(opened: Open) -> None:
    store = opened(ann_from=10, exact_below=0)
    zeros = row("zero", vector=np.zeros_like(vector(1)))
    await store.apply([PutRows(rows=[*(row(f"d{number}", vector=vector(-1, number)) for number in range(30)), zeros])])
    await store.maintain()
    assert (await store.stats()).detail["unreached"] == 1
    assert zeros.chunk_id in {match.chunk_id for match in await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=9)}


async def test_the_settings_of_one_search_do_not_stay(indexed: str) -> None:
    async with stores(indexed) as open_:
        store = open_(dimensions=SIZE, exact_below=0, pool_size=1)
        await store.search(VectorQuery(vector=VECTORS[0]), filter=ALWAYS, limit=5)
        async with store._collection._database.connection() as connection:
            (value,) = await (await connection.execute("SELECT current_setting('hnsw.iterative_scan')")).fetchone() or (None,)
            assert value == "off"


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        (OneOf("path", frozenset({"3/17"})), "left"),
        (StartsWith("path", "3/17"), "left"),
        (Like("path", "3/17*?"), "left"),
        (AnyOf("allowed", frozenset({"rare"})), "allowed_idx"),
    ],
)
async def test_a_narrow_filter_is_answered_by_an_index(indexed: str, condition: Filter, index: str) -> None:
    from ragstore_pgvector.filters import where

    made = where(condition)
    async with stores(indexed) as open_:
        store = open_(dimensions=SIZE)
        await store.stats()
        async with store._collection._database.connection() as connection:
            statement = f'EXPLAIN SELECT id FROM {schema_of(indexed)}."chunks:access" WHERE {made.sql}'.encode()
            plan = "\n".join(str(line) for (line,) in await (await connection.execute(statement, made.parameters)).fetchall())
    assert "Seq Scan" not in plan
    assert index in plan


async def test_an_index_whose_making_was_stopped_is_made_anew(opened: Open, postgres_url: str) -> None:
    store = opened(ann_from=10)
    await store.apply([PutRows(rows=[row(f"d{number}") for number in range(20)])])
    table = f'{schema_of(postgres_url)}."chunks:vectors"'
    execute(postgres_url, f"CREATE INDEX half ON {table} USING hnsw (vector vector_cosine_ops)")
    execute(postgres_url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT oid FROM pg_class WHERE relname = 'half')")
    assert (await store.stats()).detail["ann"] == "no"
    await store.maintain()
    assert (await store.stats()).detail["ann"] == "yes"
    assert execute(postgres_url, "SELECT count(*) FROM pg_class WHERE relname = 'half'") == [(0,)]


# Transactions.


async def test_a_document_that_several_replace_at_a_time_is_seen_whole_and_ends_as_the_newest(opened: Open) -> None:
    def version(generation: int) -> list[Row]:
        numbers = range(generation % 3, 4 + generation % 5)
        return [row("a", number, text=f"version {generation}", generation=generation, vector=vector(1, number)) for number in numbers]

    async def replaced(generation: int) -> None:
        drop = DropDocument(document_id=document_id("a"), generation=generation - 1)
        await opened().apply([drop, PutRows(rows=version(generation)), drop])

    async def watched() -> None:
        reader = opened()
        while not done.is_set():
            found = Counter(match.text for match in await reader.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=50))
            assert all(found[f"version {number}"] in {0, len(version(number))} for number in range(1, 13)), found
            await asyncio.sleep(0)

    done = asyncio.Event()
    await replaced(1)
    watching = asyncio.create_task(watched())
    for generation in range(2, 7):
        await replaced(generation)
    done.set()
    await watching
    await asyncio.gather(*(replaced(generation) for generation in (9, 7, 12, 8, 11, 10)))
    left = [stored for stored in await listed(opened().rows([document_id("a")])) if stored.generation == 12]
    assert {stored.chunk_id for stored in left} == {one.chunk_id for one in version(12)}
    await opened().apply([DropDocument(document_id=document_id("a"), generation=11)])
    assert {key.generation for key in await listed(opened().keys())} == {12}


async def test_writers_that_meet_in_the_same_rows_all_get_through(opened: Open) -> None:
    names = [f"d{number}" for number in range(30)]

    async def write(number: int) -> None:
        order = names if number % 2 else names[::-1]
        for name in order:
            columns = access(f"{number}", allowed=(f"{number}",))
            changes = [Retag(document_id=document_id(other), access=columns) for other in (name, order[-1])]
            await store.apply(
                [
                    PutRows(rows=[row(name, 0), row(name, 1)]),
                    *changes,
                    DropRows(document_id=document_id(name), generation=1, chunk_ids=chunks(name, [1])),
                ]
            )

    store = opened()
    await asyncio.gather(*(write(number) for number in range(6)))
    assert {key.chunk_id for key in await listed(store.keys())} == {chunk(name) for name in names}


async def test_a_writer_that_is_killed_before_it_commits_leaves_everything_as_it_was(opened: Open, postgres_url: str) -> None:
    store = opened()
    before = [row("a", number, text="old") for number in range(5)]
    await store.apply([PutRows(rows=before)])
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, plain(postgres_url), schema_of(postgres_url), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    assert (await writer.stdout.readline()).startswith(b"written")
    os.kill(writer.pid, signal.SIGKILL)
    await writer.wait()
    assert {stored.text for stored in await listed(store.rows([document_id("a")]))} == {"old"}
    await store.apply([PutRows(rows=[row("a", 0, text="newer", generation=3)])])  # and its locks are gone with it
    assert Counter(stored.text for stored in await listed(store.rows([document_id("a")]))) == {"old": 4, "newer": 1}


async def test_a_search_that_is_cancelled_gives_its_connection_back(opened: Open) -> None:
    store = opened(pool_size=1)
    await store.apply([PutRows(rows=[row("a")])])
    for _ in range(3):
        searching = asyncio.create_task(store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5))
        await asyncio.sleep(0)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
    assert (await store.stats()).rows == 1


async def test_connections_that_the_server_ended_are_replaced_unseen(opened: Open, postgres_url: str) -> None:
    store = opened()
    await store.apply([PutRows(rows=[row("a")])])
    await asyncio.gather(*(store.stats() for _ in range(4)))
    execute(postgres_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ragstore'")
    await store.apply([PutRows(rows=[row("b")])])
    assert (await store.stats()).rows == 2


async def test_a_server_that_is_away_is_an_outage_and_works_again_when_it_is_back() -> None:
    with postgres.running() as url:
        async with stores(f"{url}&schema=ragstore") as open_:
            store = open_()
            await store.apply([PutRows(rows=[row("a")])])
            server = server_of(url)
            server.stop()
            for _ in range(2):
                with pytest.raises(TransientError, match="cannot be reached"):
                    await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5)
            with pytest.raises(TransientError, match="cannot be reached"):
                await listed(store.keys())
            server.ensure_postgres_running()
            assert len(await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=5)) == 1
            await store.apply([PutRows(rows=[row("b")])])
            assert (await store.stats()).rows == 2


# Erasing.


def content(url: str) -> bytes:
    """All that the server's files hold of the collection: its table, what is too large for it, and all indexes."""
    execute(url, "CHECKPOINT")
    tables = f"SELECT oid FROM pg_class WHERE relnamespace = '{schema_of(url)}'::regnamespace AND relname LIKE 'chunks%' AND relkind = 'r'"
    parts = f"SELECT indexrelid FROM pg_index WHERE indrelid IN ({tables}) UNION SELECT reltoastrelid FROM pg_class WHERE oid IN ({tables})"
    relations = f"{tables} UNION {parts}"
    found = execute(
        url, f"SELECT pg_relation_filepath(oid) FROM pg_class WHERE oid IN ({relations}) AND pg_relation_filepath(oid) IS NOT NULL"
    )
    folder = Path(execute(url, "SHOW data_directory")[0][0])
    return b"".join((folder / path).read_bytes() for (path,) in found)


def statistics(url: str) -> str:
    """What the planner knows of the collection, in which values are."""
    shown = "SELECT most_common_vals::text, histogram_bounds::text, most_common_elems::text FROM pg_stats"
    return str(execute(url, f"{shown} WHERE schemaname = '{schema_of(url)}' AND tablename LIKE 'chunks%'"))


async def test_what_was_erased_is_in_no_file_and_no_statistic(opened: Open, postgres_url: str) -> None:
    store = opened(ann_from=10)
    rows = [
        row(f"d{number}", text=f"text of unmistakable{number}x", columns=access(f"folder/{number}-file", allowed=(f"reader-{number}x",)))
        for number in range(300)
    ]
    await store.apply([PutRows(rows=rows)])
    await store.maintain(force=True)
    traces = ("unmistakable17x", "folder/17-file", "reader-17x", document_id("d17"))
    assert all(trace.encode() in content(postgres_url) for trace in traces)
    await store.apply([DropDocument(document_id=document_id("d17"), generation=1)])
    expunged = await store.expunge()
    assert (expunged.older, expunged.files) == ((), ())
    assert [trace for trace in traces if trace.encode() in content(postgres_url) or trace in statistics(postgres_url)] == []
    assert (await store.stats()).detail["ann"] == "yes"
    await store.apply([DropDocument(document_id=one.document_id, generation=1) for one in rows])
    assert (await store.expunge()).older == ()
    assert b"unmistakable" not in content(postgres_url)
    assert "unmistakable" not in statistics(postgres_url)
    assert "folder/" not in statistics(postgres_url)


async def test_rows_that_a_transaction_still_sees_are_told_and_go_when_it_has_ended(opened: Open, postgres_url: str) -> None:
    import psycopg

    store = opened()
    await store.apply([PutRows(rows=[row("a"), row("b")])])
    with psycopg.connect(plain(postgres_url)) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1 FROM pg_class LIMIT 1")
        await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
        (told,) = (await store.expunge()).older
        assert told.startswith("3 deleted rows")
    assert (await store.expunge()).older == ()


# Beside a ledger.


async def test_ledger_and_store_share_one_database(postgres_url: str, tmp_path: Path) -> None:
    with postgres.schema(plain(postgres_url)) as other:
        store = {"type": "pgvector", "url": plain(postgres_url), "schema": schema_of(other)}
        space = Workspace(tmp_path, ledger={"url": postgres_url})
        space.sections["store"] = store
        space.write("a.md", paragraphs("apple", 3))
        space.write("b.md", paragraphs("banana", 2), allow="board")
        async with space.open() as index:
            await index.sync()
            assert len(await texts(index, "banana subject1", "Ada", limit=9)) == 5
            assert len(await texts(index, "banana subject1", "Bob", limit=9)) == 3
            space.allow("b.md", "staff")
            await index.sync()
            assert len(await texts(index, "banana subject1", "Bob", limit=9)) == 5
            assert len(space.embedded) == len(set(space.embedded))
            (table,) = execute(other, f"SELECT collection FROM {schema_of(other)}.ragstore_collections")[0]
            execute(other, f'TRUNCATE {schema_of(other)}."{table}" CASCADE')  # behind the ledger's back
            assert (await index.verify()).missing
            await index.verify(repair=True)
            assert not await index.verify()
        assert make_url(postgres_url).query["schema"] != schema_of(other)
