"""A database and a name in, tables to read and write out: checked at first use, made by the first write, tried again where that helps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import psycopg

from ragstore.errors import ConfigError, RagstoreError
from ragstore_pgvector import tables
from ragstore_pgvector.connection import Connection, Database
from ragstore_pgvector.failures import is_conflict, is_gone, is_lost, translated
from ragstore_pgvector.names import Names

T = TypeVar("T")

_ATTEMPTS: Final = 6
_FIRST_WAIT: Final = 0.05
"""Seconds; doubled with each attempt and spread at random, so that two writers do not meet again."""
_MAKING: Final = 0x7261_6770
"""The key of the advisory lock under which tables are made and changed."""
_ROWS_PER_FETCH: Final = 2_000
_OLDEST: Final = (0, 8)
"""The first pgvector whose HNSW scans go on until the limit is filled."""

_EXTENSION: Final = (
    b"SELECT e.extversion, n.nspname, current_setting('server_encoding') "
    b"FROM (SELECT 1) AS one LEFT JOIN pg_extension e ON e.extname = 'vector' LEFT JOIN pg_namespace n ON n.oid = e.extnamespace"
)
_COLUMNS: Final = (
    b"SELECT a.attname, t.typname, a.attnotnull, c.collname, a.atttypmod FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    b"LEFT JOIN pg_collation c ON c.oid = a.attcollation AND c.collname <> 'default' "
    b"WHERE a.attrelid = to_regclass(%s::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)


class Collection:
    """One table. Whoever only reads never makes it."""

    def __init__(self, database: Database, names: Names, *, searched_only: bool = False) -> None:
        self._database = database
        self._searched_only = searched_only
        self._names = names
        self._checked: Names | None = None

    async def read(self, use: Callable[[Connection, Names], Awaitable[T]]) -> T | None:
        """What `use`, which may be called again, makes of the table; None where there is no such table yet."""
        return await self._attempt(use, create=False)

    async def write(self, change: Callable[[Connection, Names], Awaitable[object]]) -> None:
        """Carry out a change in one transaction, all of it or nothing; a table that is not there is made first."""

        async def run(connection: Connection, names: Names) -> None:
            async with connection.transaction():
                await change(connection, names)

        await self._attempt(run, create=True)

    async def scan(self, template: str, parameters: Sequence[object]) -> AsyncIterator[list[tuple[Any, ...]]]:
        """All rows of a query as they were when it began, some thousand at a time, from a cursor of the server."""

        async def ready(_connection: Connection, names: Names) -> Names:
            return names

        names = await self.read(ready)
        if names is None:
            return
        try:
            # A connection beyond the pool, because whoever reads may write meanwhile.
            async with self._database.extra() as connection, connection.transaction(), connection.cursor("scan") as cursor:
                await cursor.execute(names.sql(template), parameters)
                while found := await cursor.fetchmany(_ROWS_PER_FETCH):
                    yield found
        except psycopg.Error as error:
            if is_lost(error):
                await self._database.discard()
            if not is_gone(error):
                raise self._translated(error) from error
            self._checked = None

    async def drop(self) -> None:
        """Delete the table, if it is there."""

        async def run(connection: Connection, _: Names) -> None:
            async with connection.transaction():
                await connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
                await connection.execute(self._names.sql("DROP TABLE IF EXISTS {vectors}, {strays}, {table}, {access}"))
                if await _is_there(connection, self._names.sql("{registry}").decode()):
                    await connection.execute(self._names.sql("DELETE FROM {registry} WHERE collection = %s"), (self._names.collection,))

        await self._attempt(run, create=None)
        self._checked = None

    async def close(self) -> None:
        """Give back the connections."""
        await self._database.discard()

    async def _attempt(self, use: Callable[[Connection, Names], Awaitable[T]], *, create: bool | None) -> T | None:
        """`create` is None for what does not mind whether the table is there."""
        for attempt in range(_ATTEMPTS):
            try:
                async with self._database.connection() as connection:
                    names = self._names if create is None else await self._ready(connection, create=create)
                    return None if names is None else await use(connection, names)
            except psycopg.Error as error:
                if is_gone(error):
                    self._checked = None
                elif is_lost(error):
                    # All that are idle are as old as this one; every use can be repeated, also where it had just been committed.
                    await self._database.discard()
                    if attempt > 0:
                        raise self._translated(error) from error
                elif not is_conflict(error):
                    raise self._translated(error) from error
                if attempt + 1 == _ATTEMPTS:
                    raise self._translated(error) from error
            await asyncio.sleep(_FIRST_WAIT * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
        raise AssertionError("the last attempt returns or raises")

    async def _ready(self, connection: Connection, *, create: bool) -> Names | None:
        """The names, once it is known that the table is ours."""
        if self._checked is not None:
            return self._checked
        names = await self._with_extension(connection, create=create)
        if names is None:
            return None
        if await _is_there(connection, names.table):
            await self._migrate(connection, names)
        elif create:
            await self._make(connection, names)
        else:
            return None
        for table, columns in tables.TABLES.items():
            await self._check(connection, names, table, columns)
        self._checked = names
        return names

    async def _with_extension(self, connection: Connection, *, create: bool) -> Names | None:
        ((version, extension, encoding),) = await _rows(connection, _EXTENSION)
        if encoding != "UTF8":
            raise ConfigError(
                f"the database at {self._database.place!r} has the encoding {encoding}; name one that was made with: "
                "CREATE DATABASE NAME TEMPLATE template0 ENCODING 'UTF8'"
            )
        if version is None:
            if not create:
                return None
            await self._install(connection)
            ((version, extension, _),) = await _rows(connection, _EXTENSION)
        if tuple(int(part) for part in str(version).split(".")[:2]) < _OLDEST:
            raise ConfigError(
                f"pgvector {version} in the database at {self._database.place!r} is too old: a filtered search with it loses rows; install "
                "0.8 or newer, and run there: ALTER EXTENSION vector UPDATE"
            )
        return replace(self._names, extension=str(extension))

    async def _install(self, connection: Connection) -> None:
        try:
            async with connection.transaction():
                await connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
                await connection.execute(b"CREATE EXTENSION IF NOT EXISTS vector")
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile) as error:
            raise ConfigError(f"the server at {self._database.place!r} has no pgvector; install it there, 0.8 or newer") from error

    async def _make(self, connection: Connection, names: Names) -> None:
        """Make the table; of writers that start together one does, and the others wait for it."""
        async with _changing(connection):
            if not await _rows(connection, b"SELECT 1 FROM pg_namespace WHERE nspname = %s", (names.schema,)):
                await connection.execute(names.sql("CREATE SCHEMA {schema}"))
            if not await _is_there(connection, names.sql("{registry}").decode()):
                columns = 'collection text COLLATE "C" PRIMARY KEY, version integer NOT NULL'
                await connection.execute(names.sql(f"CREATE TABLE {{registry}} ({columns})"))
            if await _is_there(connection, names.table):
                return
            # Of a collection whose chunks somebody dropped, the rest is of no use.
            await connection.execute(names.sql("DROP TABLE IF EXISTS {vectors}, {strays}, {access}"))
            for statement in tables.CREATE:
                await connection.execute(names.sql(statement))
            await connection.execute(
                names.sql("INSERT INTO {registry} VALUES (%s, %s) ON CONFLICT (collection) DO UPDATE SET version = excluded.version"),
                (names.collection, tables.VERSION),
            )

    async def _migrate(self, connection: Connection, names: Names) -> None:
        """Bring the table to this version."""
        if await self._version(connection, names) == tables.VERSION:
            return
        async with _changing(connection):
            version = await self._version(connection, names)
            if version == 1:
                await self._check(connection, names, "table", tables.FORMER)
            for statements in tables.MIGRATIONS[version - 1 :]:
                for statement in statements:
                    await connection.execute(names.sql(statement))
            await connection.execute(
                names.sql("UPDATE {registry} SET version = %s WHERE collection = %s"), (tables.VERSION, names.collection)
            )

    async def _version(self, connection: Connection, names: Names) -> int:
        """Raises `ConfigError` for a table that is not in the registry, or of a later version."""
        found: list[tuple[Any, ...]] = []
        if await _is_there(connection, names.sql("{registry}").decode()):
            found = await _rows(connection, names.sql("SELECT version FROM {registry} WHERE collection = %s"), (names.collection,))
        if not found:
            raise self._foreign(names.table, "no version of ragstore made it")
        version = int(found[0][0])
        if version > tables.VERSION:
            raise ConfigError(f"the table {names.table} at {self._database.place!r} was made by a newer ragstore; update this one")
        return version

    async def _check(self, connection: Connection, names: Names, table: str, columns: Mapping[str, str]) -> None:
        """Raises `ConfigError` for a table that has other columns."""
        found = await _rows(connection, _COLUMNS, (names.named(table),))
        vectors = {kind: size for name, kind, _, _, size in found if name == "vector"}
        for precision, kind in (("f32", "vector"), ("f16", "halfvec")):
            if kind in vectors and kind != names.kind:
                raise ConfigError(
                    f"the collection {names.collection!r} holds vectors of precision {precision!r}; let [store] precision be that, or use "
                    "another schema and index again"
                )
        if names.kind in vectors and vectors[names.kind] != names.dimensions:
            raise ConfigError(
                f"the collection {names.collection!r} holds vectors of {vectors[names.kind]} dimensions, not {names.dimensions}; "
                "use the embedder that wrote it, or another collection"
            )
        if differences := tables.drift(columns, [row[:4] for row in found], names.kind):
            raise self._foreign(names.named(table), "; ".join(differences))

    def _translated(self, error: psycopg.Error) -> Exception:
        return translated(error, self._database.place, reads=self._searched_only)

    def _foreign(self, table: str, said: str) -> RagstoreError:
        return ConfigError(
            f"the table {table} at {self._database.place!r} is not as this version of ragstore makes it ({said}); use another "
            "schema and index again"
        )


@asynccontextmanager
async def _changing(connection: Connection) -> AsyncIterator[None]:
    """A transaction in which tables are made or changed, by one at a time."""
    async with connection.transaction():
        await connection.execute(b"SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)")
        await connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        yield


async def _is_there(connection: Connection, table: str) -> bool:
    ((found,),) = await _rows(connection, b"SELECT to_regclass(%s::text) IS NOT NULL", (table,))
    return bool(found)


async def _rows(connection: Connection, query: bytes, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, parameters)).fetchall()
