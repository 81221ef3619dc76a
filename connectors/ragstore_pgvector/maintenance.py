"""A table in, the same table indexed, vacuumed and analysed out; nothing is done before it is due."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ragstore_pgvector import reach
from ragstore_pgvector.estimates import INDEX
from ragstore_pgvector.tables import TABLES

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.names import Names

_MOST_INDEXED: Final = {"f32": 2_000, "f16": 4_000}
"""Dimensions that an HNSW index takes; with more every search is exact."""
_CHANGED: Final = (1_000, 0.2)
"""So many rows, and such a share of them, may be dead, or unknown to the statistics. Autovacuum has such a rule, but may be off."""
_MEMORY: Final = "256MB"
"""For building an index; beyond it HNSW takes several times as long."""
_KEPT: Final = re.compile(r"\d+")

_ACTIVITY: Final = (
    b"SELECT coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0), coalesce(n_mod_since_analyze, 0) "
    b"FROM (SELECT 1) AS one LEFT JOIN pg_stat_all_tables ON relid = to_regclass(%s::text)"
)
_INDEXES: Final = (
    f"SELECT (SELECT count(*) FROM (SELECT 1 FROM {{vectors}} LIMIT %s) AS seen), {INDEX} IS NOT NULL, "
    "(SELECT array_agg(quote_ident(n.nspname) || '.' || quote_ident(c.relname)) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE i.indrelid = to_regclass(%s::text) AND NOT i.indisvalid)"
)
# Of 100 thousand rows, with pgvector's own 16 and 64, one in a hundred is found by no search; with 24 and 128 one in 200; with these one in
# 1,300. Those are compared besides, by every search, which is worth that a row that is added later takes twice as long as with 24 and 128.
_INDEX: Final = "CREATE INDEX CONCURRENTLY ON {vectors} USING hnsw (vector {by_cosine}) WITH (m = 32, ef_construction = 256)"
_DETAIL: Final = (
    "SELECT least((SELECT count(*) FROM {table}), (SELECT count(*) FROM {vectors})), "
    "(SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS part(name)), "
    f"(SELECT extversion FROM pg_extension WHERE extname = 'vector'), {INDEX} = (SELECT file FROM {{strays}} WHERE id = 0), "
    "(SELECT count(*) FROM {strays} WHERE id > 0)"
)


async def maintain(connection: Connection, names: Names, *, ann_from: int, force: bool) -> None:
    """Build the approximate index, vacuum and analyse where that is due. To be run by one process at a time; others may go on."""
    async with _unhurried(connection):
        for table in TABLES:
            await _tidy(connection, names, table, force=force)
        vectors = names.named("vectors")
        ((rows, indexed, broken),) = await _all(connection, names.sql(_INDEXES), (ann_from, vectors, vectors))
        for index in broken or ():  # of a build that was stopped; each write would pay for it
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}".encode())
        if rows >= ann_from and not indexed and names.dimensions <= _MOST_INDEXED[names.precision]:
            await connection.execute(names.sql(_INDEX))
            await connection.execute(names.sql("ANALYZE {vectors}"))
        await reach.look(connection, names)


async def _tidy(connection: Connection, names: Names, table: str, *, force: bool) -> None:
    ((live, dead, changed),) = await _all(connection, _ACTIVITY, (names.named(table),))
    least, share = _CHANGED
    if force or dead > max(least, share * live):
        await connection.execute(names.sql(f"VACUUM (ANALYZE) {{{table}}}"))
    elif changed > max(least, share * live):
        await connection.execute(names.sql(f"ANALYZE {{{table}}}"))


async def expunge(connection: Connection, names: Names) -> list[str]:
    """Write the table and its indexes anew, without dead rows; gives what could not be left out, in words.

    Statistics hold values as well. Those of an empty table are never replaced, but go when a column is given a type, be it its own.
    """
    kept: dict[str, int] = {}
    at = ""

    def note(diagnostic: Diagnostic) -> None:
        found = _KEPT.search(diagnostic.message_detail or "")  # of the table itself: how many dead rows somebody can still see
        if found is not None and names.collection in (diagnostic.message_primary or ""):
            kept.setdefault(at, int(found[0]))

    async with _unhurried(connection):
        if not await _all(connection, names.sql("SELECT 1 FROM {table} LIMIT 1")):
            for table, types in TABLES.items():
                columns = ", ".join(f"ALTER COLUMN {name} TYPE {kind}" for name, kind in types.items())
                await connection.execute(names.sql(f"ALTER TABLE {{{table}}} {columns}"))
        connection.add_notice_handler(note)
        try:
            await connection.execute(b"SET client_min_messages = 'info'")
            for at in TABLES:
                await connection.execute(names.sql(f"VACUUM (FULL, ANALYZE, VERBOSE) {{{at}}}"))
        finally:
            connection.remove_notice_handler(note)
            await connection.execute(b"RESET client_min_messages")
        await reach.look(connection, names)
    still, remedy = (
        sum(kept.values()),
        "that a transaction which is still open can see; end it (pg_stat_activity.backend_xmin) and repeat this",
    )
    return [f"{still} deleted rows in {names.table} and its tables beside, {remedy}"] if still else []


async def detail(connection: Connection, names: Names) -> tuple[int, dict[str, int | str]]:
    """The number of rows, and what there is to tell of the tables. `unreached`: rows that the approximate index does not find."""
    parts = [names.named(table) for table in TABLES]
    ((rows, size, version, indexed, strays),) = await _all(connection, names.sql(_DETAIL), (parts, names.named("vectors")))
    told = {"kind": "pgvector", "bytes": int(size), "pgvector": version, "precision": names.precision}
    return rows, {**told, "ann": "yes", "unreached": strays} if indexed else {**told, "ann": "no"}


@asynccontextmanager
async def _unhurried(connection: Connection) -> AsyncIterator[None]:
    """Statements that may take hours, and cannot stand in a transaction that would end with them."""
    await connection.execute(
        b"SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false), "
        b"set_config('maintenance_work_mem', %s, false)",
        (_MEMORY,),
    )
    try:
        yield
    finally:
        if not connection.closed:
            for name in (b"statement_timeout", b"lock_timeout", b"maintenance_work_mem"):
                await connection.execute(b"RESET " + name)


async def _all(connection: Connection, statement: bytes, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, parameters or None)).fetchall()
