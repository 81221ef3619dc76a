"""A URL in, connections to PostgreSQL out, of which a few are kept open; one that the server ended is replaced."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format, TransactionStatus
from typing_extensions import override

from ragstore.errors import ConfigError
from ragstore_pgvector.failures import unanswered
from ragstore_pgvector.schema import VectorParameter

Connection = psycopg.AsyncConnection[tuple[object, ...]]

_IDLE: Final = 300.0
"""Seconds after which a connection is not used again: firewalls forget it without a word."""
_LAST_PORT: Final = 65_535
_SETTINGS: Final = {
    "statement_timeout": "600s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "600s",
    "jit": "off",  # compiling takes longer than any search
    "random_page_cost": "1.1",  # as of memory and flash, which servers have had for long: else a filter is asked of every document
}
_CHOSEN: Final = {
    "application_name": "ragstore",
    "connect_timeout": 10,
    # A server that vanished without a word is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}


def url_of(url: str | None, url_env: str | None, *, option: str = "url") -> str:
    """The one of both that is given. Raises `ConfigError` for none or two, a variable that is not set, and a password in the file."""
    if (url is None) == (url_env is None):
        raise ConfigError(
            f"[store] type = 'pgvector' needs either {option} = 'postgresql://USER@HOST/DATABASE' or {option}_env, which names a variable"
        )
    if url is None:
        found = os.environ.get(url_env or "")
        if not found:
            raise ConfigError(f"[store] {option}_env names the environment variable {url_env!r}, which is not set")
        return found
    if _parsed(url).get("password"):
        raise ConfigError(
            f"[store] {option} holds a password; keep it in PGPASSWORD or ~/.pgpass, or the whole URL in a variable that {option}_env names"
        )
    return url


class Database:
    """Connections in autocommit mode, at most `pool_size` in use; a long result has one of its own.

    Not `psycopg_pool`: it makes connections in the background, so that a wrong password is told as a timeout.
    """

    def __init__(self, url: str, pool_size: int) -> None:
        """Raises `ConfigError` for what is no URL, or has options that libpq does not know."""
        self._conninfo = _parsed(url)
        self._free = asyncio.Semaphore(pool_size)
        self._idle: list[tuple[Connection, float]] = []
        self._generation = 0
        host = self._conninfo.get("host") or self._conninfo.get("service") or "the default host"
        port = f":{self._conninfo['port']}" if self._conninfo.get("port") else ""
        self.place = f"{host}{port}/{self._conninfo.get('dbname', '')}"
        """For messages; nothing that could be a secret."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One of the pool, when one is free. Raises `psycopg.Error`."""
        async with self._free, self.extra() as connection:
            yield connection

    @asynccontextmanager
    async def extra(self) -> AsyncIterator[Connection]:
        """One beyond the pool, for a result that somebody reads slowly, perhaps while writing."""
        generation = self._generation
        connection = await self._take()
        try:
            yield connection
        finally:
            # What was cancelled or failed in a transaction is not worth mending.
            unused = connection.closed or connection.info.transaction_status != TransactionStatus.IDLE
            if unused or generation != self._generation:
                await connection.close()
            else:
                self._idle.append((connection, time.monotonic()))

    async def discard(self) -> None:
        """Close what is idle, and what is in use when it comes back: the server has ended its connections."""
        self._generation += 1
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.close()

    async def _take(self) -> Connection:
        while self._idle:
            connection, since = self._idle.pop()
            if not connection.closed and time.monotonic() - since < _IDLE:
                return connection
            await connection.close()
        chosen = {name: value for name, value in _CHOSEN.items() if name not in self._conninfo}
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        given: dict[str, Any] = {**self._conninfo, **chosen, "options": " ".join([*options, str(self._conninfo.get("options", ""))])}
        # Without prepared statements each search is planned for its own filter, and poolers may stand in between.
        connection = await psycopg.AsyncConnection.connect(make_conninfo(**given), autocommit=True, prepare_threshold=None)
        connection.adapters.register_dumper(VectorParameter, _VectorDumper)
        return connection


class _VectorDumper(Dumper):
    """Its type is that of the cast in the statement."""

    format = Format.BINARY

    @override
    def dump(self, obj: VectorParameter) -> bytes:
        return obj


def _parsed(url: str) -> dict[str, str | int | None]:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ConfigError("[store] url is no URL of PostgreSQL; write 'postgresql://USER@HOST/DATABASE'")
    try:
        found = dict(conninfo_to_dict(f"postgresql://{rest}"))
    except psycopg.ProgrammingError as error:
        if '"schema"' in str(error):
            raise ConfigError("[store] url: the schema is an option of its own: [store] schema = 'NAME'") from error
        raise unanswered("[store] url", f"invalid connection option: {_told(error)}") from None
    # Asked of the resolver it would be an outage, which a worker waits for.
    ports = [port for port in str(found.get("port", "")).split(",") if port]
    if not all(port.isascii() and port.isdecimal() and 0 < int(port) <= _LAST_PORT for port in ports):
        raise ConfigError(f"[store] url has a port that is no number from 1 to {_LAST_PORT}")
    return found


def _told(error: Exception) -> str:
    """What libpq says of a URL, but for what it quotes of it, which may be a password."""
    return str(error).partition('"')[0].strip().rstrip(":")
