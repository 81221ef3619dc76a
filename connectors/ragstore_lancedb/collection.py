"""A location and a name in, a LanceDB table to read and write out: opened late, created once, retried and opened again where that helps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ragstore.errors import ConfigError
from ragstore_lancedb import maintenance
from ragstore_lancedb.connection import Location
from ragstore_lancedb.failures import RAISED, damaged, is_conflict, is_gone, is_missing_table, translated
from ragstore_lancedb.schema import schema

if TYPE_CHECKING:
    from lancedb.db import AsyncConnection
    from lancedb.table import AsyncTable

T = TypeVar("T")

_ATTEMPTS: Final = 6
_FIRST_WAIT: Final = 0.05
"""Seconds; doubled with each attempt and spread at random, so that two writers do not meet again."""


class Collection:
    """One table. Whoever only reads never creates it."""

    def __init__(self, location: Location, name: str, dimensions: int) -> None:
        self._location = location
        self._name = name
        self._dimensions = dimensions
        self._connection: AsyncConnection | None = None
        self._table: AsyncTable | None = None
        self._opening = asyncio.Lock()
        self.written = 0
        """Rows since free memory was given back last."""

    async def read(self, use: Callable[[AsyncTable], Awaitable[T]]) -> T | None:
        """What `use` makes of the table, or None where there is no such table yet."""
        return await self._attempt(use, create=False)

    async def write(self, commit: Callable[[AsyncTable], Awaitable[object]]) -> None:
        """Carry out a commit that may be repeated; a table that is not there is created first."""
        await self._attempt(commit, create=True)

    async def drop(self) -> None:
        """Delete the table, if it is there."""
        connection = await self._connect()
        self._table = None
        try:
            await connection.drop_table(self._name, ignore_missing=True)
        except RAISED as error:
            raise translated(error, self._location.uri) from error

    def files(self) -> dict[Path, int]:
        """The table's files on this machine, each with the moment in which it was written; none where the table is in Azure."""
        if self._location.remote:
            return {}
        found = sorted(Path(self._location.uri, f"{self._name}.lance").rglob("*"))
        return {file: file.stat().st_mtime_ns for file in found if file.is_file()}

    async def close(self) -> None:
        """Give back the handles."""
        self._table = self._connection = None

    def translated(self, error: Exception) -> Exception:
        """The error as this connector's callers know it."""
        return translated(error, self._location.uri)

    async def _attempt(self, use: Callable[[AsyncTable], Awaitable[T]], *, create: bool) -> T | None:
        for attempt in range(_ATTEMPTS):
            try:
                table = await self._open(create=create)
                return None if table is None else await use(table)
            except RAISED as error:
                if is_gone(error):
                    self._table = None
                elif not is_conflict(error):
                    raise translated(error, self._location.uri) from error
                if attempt + 1 == _ATTEMPTS:
                    raise translated(error, self._location.uri) from error
                await asyncio.sleep(_FIRST_WAIT * 2**attempt * random.uniform(0.5, 1.5))  # noqa: S311 - spreads retries, guards nothing
        raise AssertionError("the last attempt returns or raises")

    async def _open(self, *, create: bool) -> AsyncTable | None:
        if self._table is not None:
            return self._table
        connection = await self._connect()
        async with self._opening:
            if self._table is not None:
                return self._table
            try:
                table = await connection.open_table(self._name)
            except RAISED as error:
                if not is_missing_table(error):
                    raise
                if not create:
                    return None
                table = await connection.create_table(self._name, schema=schema(self._dimensions), exist_ok=True)
            await self._check(table)
            if create and await table.index_stats(maintenance.TEXT_INDEX) is None:
                await maintenance.index_text(table)
            self._table = table
        return self._table

    async def _check(self, table: AsyncTable) -> None:
        found = await table.schema()
        wanted = schema(self._dimensions)
        if not found.names:
            raise damaged(self._location.uri, f"the table {self._name!r} has no columns")
        if not found.equals(wanted):
            size = getattr(found.field("vector").type, "list_size", None) if "vector" in found.names else None
            if size is not None and size != self._dimensions:
                raise ConfigError(
                    f"the collection {self._name!r} holds vectors of {size} dimensions, not {self._dimensions}; "
                    "use the embedder that wrote it, or another collection"
                )
            raise ConfigError(
                f"the table {self._name!r} at {self._location.uri} was not written by this version of ragstore; "
                "use another path and index again"
            )

    async def _connect(self) -> AsyncConnection:
        async with self._opening:
            if self._connection is None:
                try:
                    self._connection = await self._location.connect()
                except RAISED as error:
                    raise translated(error, self._location.uri) from error
            return self._connection
