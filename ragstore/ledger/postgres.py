"""A PostgreSQL URL in, transactions out: any number of processes read and write, each what it holds a lease on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from ragstore.errors import ConfigError
from ragstore.ledger import schema
from ragstore.ledger.connection import Scrubbed
from ragstore.ledger.outages import translated

FENCE: ContextVar[Callable[[], None] | None] = ContextVar("ragstore_fence", default=None)
"""Raises where whoever writes in this context has lost the right to; asked before each transaction that writes."""

_MIGRATION: Final = 0x7261_6773
"""The key of the advisory lock under which tables are made and changed."""
_TIMEOUTS: Final = {
    "statement_timeout": "600s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "600s",
}
_GENERATION: Final = "ragstore_generation"
"""How often `close` had been called when a connection was asked for."""
_SCHEMA_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


class PostgresConnections:
    """Transactions on one schema of a database, over a pool of connections that are checked before use.

    Two parameters of the URL are ours: `schema=NAME` keeps the ledger in a schema of that name, which is made if need be. All others go to
    libpq (`sslmode`, `options`, `service`, `passfile` ...), as do its environment variables, of which `PGPASSWORD` keeps the secret out
    of the file.
    """

    shared = True

    def __init__(self, url: URL) -> None:
        """Raises `ConfigError` for a URL or credentials that the server refuses, `OutageError` where it does not answer."""
        try:
            import psycopg  # noqa: F401 - SQLAlchemy would say so in words of its own
        except ImportError as error:
            raise ConfigError("a ledger in PostgreSQL needs psycopg; install it: pip install 'ragstore[postgres]'") from error
        self._place, self._schema = _place(url), _schema(url)
        self._engine = create_engine(
            url.set(drivername="postgresql+psycopg").difference_update_query(["schema", "options"]),
            connect_args=_connect_args(url, self._schema),
            pool_size=5,
            max_overflow=15,
            pool_timeout=30,
            pool_pre_ping=True,
            pool_recycle=1800,
        )
        self._generation = 0
        event.listen(self._engine, "checkin", self._close_old)
        # What is read by single statements needs no transaction, which would be two more trips to the server.
        self._reading = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            self._prepare()
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; each statement sees what was committed before."""
        with translated(self._place), self._connected(self._reading) as connection:
            yield connection

    def at_once(self, statement: str, parameters: Sequence[object]) -> None:  # noqa: ARG002 - nothing is asked
        """None: a server takes its time."""
        return

    @contextmanager
    def stream(self) -> Iterator[Connection]:
        """A connection for one long result, read from a cursor of the server."""
        with translated(self._place), self._connected(self._engine) as connection:
            yield connection.execution_options(stream_results=True, max_row_buffer=10_000)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it or nothing, durable when the block is left."""
        check = FENCE.get()
        if check is not None:
            check()
        with translated(self._place), self._connected(self._engine) as connection, connection.begin():
            yield connection

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        generation = self._generation  # before the pool is chosen: `close` may come in between, while this waits for a connection
        with engine.connect() as connection:
            connection.info[_GENERATION] = generation
            yield connection

    def lock_for_writing(self) -> AbstractContextManager[None]:
        """Several may write."""
        return nullcontext()

    def scrub(self) -> Scrubbed:
        """Nothing: dead rows go with the next VACUUM FULL, and with old WAL and backups, which are the administrator's."""
        return Scrubbed()

    def close(self) -> None:
        """Give back connections; one that a thread still uses is closed when it is done with it."""
        self._generation += 1
        self._engine.dispose()

    def _close_old(self, connection: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        """`dispose` forgets the pool that this connection goes back to, and nobody would close it."""
        if connection is not None and record.info.get(_GENERATION) != self._generation:
            connection.close()

    def _prepare(self) -> None:
        """Make or migrate the tables where need be; of workers that start together one does, and the others wait for it."""
        with self.read() as connection:
            if schema.is_current(connection):
                return
        with translated(self._place), self._connected(self._engine) as connection, connection.begin():
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION})
            if self._schema is not None:
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {self._schema}"))
            schema.prepare(connection)


def _place(url: URL) -> str:
    """For messages: host, database and schema; nothing that could be a secret."""
    host = url.host or url.query.get("host") or "the default host"
    port = f":{url.port}" if url.port else ""
    return f"{host}{port}/{url.database or ''}"


def _schema(url: URL) -> str | None:
    named = url.query.get("schema")
    if named is None:
        return None
    if not isinstance(named, str) or not _SCHEMA_NAME.fullmatch(named):
        raise ConfigError(f"[ledger] url: schema = {named!r} must be one name of lower-case letters, digits and _, not starting with pg_")
    return named


def _connect_args(url: URL, schema_name: str | None) -> dict[str, Any]:
    """What is in the URL counts more than what we would choose."""
    chosen: dict[str, Any] = {
        "application_name": "ragstore",
        "connect_timeout": 10,
        # A server that vanished without a word is noticed within a minute.
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 50_000,
    }
    options = [f"-c{name}={value}" for name, value in _TIMEOUTS.items()]
    given = url.query.get("options", ())
    options += [given] if isinstance(given, str) else given
    if schema_name is not None:
        options.append(f"-csearch_path={schema_name}")
    return {**{name: value for name, value in chosen.items() if name not in url.query}, "options": " ".join(options)}
