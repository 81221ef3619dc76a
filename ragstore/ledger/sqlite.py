"""The SQLite file of a ledger: many read it, and a lock file admits one process that writes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from ragstore.errors import ConfigError, IndexLockedError
from ragstore.ledger import schema
from ragstore.ledger.connection import Scrubbed
from ragstore.ledger.failures import not_writable, replaced, translated

_READERS_MAY_TAKE: Final = 5_000
"""Milliseconds that `scrub` waits for other processes to end what they read."""

_LOOKED_AT: Final = 0.1
"""Seconds for which the file is not looked at again, so that a search, which asks several times, pays for one look."""


class SQLiteConnections:
    """Transactions on one ledger. Reading needs no lock; `lock_for_writing` is for the one process that writes.

    A ledger that this user may not change is opened for reading only. Every block raises `ConfigError` where the file is damaged, is not
    the one that was opened, or may not be used so, `OutageError` where its disk is full or fails.
    """

    shared = False

    def __init__(self, file: Path) -> None:
        """Opens or creates it. Raises `ConfigError` for a ledger of a newer ragstore."""
        self._file = file
        self._writing = threading.Lock()
        self._lock = FileLock(f"{self._file}.lock", thread_local=False)
        self._read_only = self._file.exists() and not (os.access(self._file, os.W_OK) and os.access(self._file.parent, os.W_OK))
        self._engine = _reading_engine(self._file) if self._read_only else _writing_engine(self._file)
        self._turn = threading.Lock()
        self._own: sqlite3.Connection | None = None
        """Of `at_once`: it waits neither for its turn nor for another process."""
        self._opened: tuple[int, int] | None = None
        self._looked = float("-inf")
        if self._read_only:
            with self.read() as connection:
                schema.check(connection)
        elif not self._is_current():
            with self.write() as connection:  # of processes that open a new ledger at once one makes the tables, and the others wait
                schema.prepare(connection)
        if not self._read_only:  # there each block opens the file that is there then
            self._opened = _identity(self._file)

    def _is_the_same(self) -> bool:
        """Whether the file is the one that was opened.

        Where it was deleted or another one put in its place, connections go on with the old one, and would never learn what is revoked.
        SQLite looks in the same way, but only before some writes: `SQLITE_FCNTL_HAS_MOVED`.
        """
        now = time.monotonic()
        if self._opened is None or now < self._looked + _LOOKED_AT:
            return True
        if self._opened != _identity(self._file):
            return False  # and looked at again each time: a file that was moved away may come back
        self._looked = now
        return True

    def _is_current(self) -> bool:
        with self.read() as connection:
            return schema.is_current(connection)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; sees what was committed before."""
        if not self._is_the_same():
            raise replaced(self._file)
        with translated(self._file), self._engine.connect() as connection:
            yield connection

    def at_once(self, statement: str, parameters: Sequence[object]) -> list[tuple[Any, ...]] | None:
        """What a look at a few rows gives, in the thread that asks; None where it would have to wait for somebody, or fails."""
        if self._read_only or not self._is_the_same() or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._own is None:
                self._own = sqlite3.connect(self._file, timeout=0, isolation_level=None, check_same_thread=False)
            return self._own.execute(statement, parameters).fetchall()
        except sqlite3.Error:
            return None  # asked again with patience, it either works or says what is wrong
        finally:
            self._turn.release()

    def stream(self) -> AbstractContextManager[Connection]:
        """As `read`; rows come as they are asked for."""
        return self.read()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it or nothing, durable when the block is left. One at a time in this process."""
        if self._read_only:
            raise not_writable(self._file)
        if not self._is_the_same():
            raise replaced(self._file)
        with translated(self._file), self._writing, self._engine.connect() as connection, connection.begin():
            # Otherwise SQLite would take its lock at the first change, and another process might change what was read until then.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def lock_for_writing(self) -> Iterator[None]:
        """Be the one writer. Raises `IndexLockedError`, naming the process that has the lock."""
        if self._read_only:
            raise not_writable(self._file)
        note = Path(f"{self._file}.writer")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            number = ""
            with suppress(OSError):
                number = note.read_text(encoding="ascii", errors="replace").strip()
            # Whoever has just got the lock has not written its number yet.
            who = f" (process {number})" if number.isdecimal() else ""
            raise IndexLockedError(
                f"another ragstore{who} is writing to the index of {str(self._file)!r}; wait for it to end, or stop it, and run this again"
            ) from None
        try:
            note.write_text(str(os.getpid()), encoding="ascii")
            yield
        finally:
            with suppress(OSError):
                note.write_text("", encoding="ascii")  # while it is ours: the next one must not be called by our number
            self._lock.release()

    def scrub(self) -> Scrubbed:
        """Write the file anew and cut off its log. Needs room on the disk for both at once, and as much for temporary files."""
        # Deleted rows leave their bytes in free pages, in the gaps of full ones, and in the log: https://sqlite.org/pragma.html#pragma_secure_delete
        with translated(self._file), self._writing, self._engine.connect() as pooled:
            connection = pooled.execution_options(isolation_level="AUTOCOMMIT")
            for statement in ("PRAGMA secure_delete=ON", "PRAGMA temp_store=FILE", f"PRAGMA busy_timeout={_READERS_MAY_TAKE}", "VACUUM"):
                connection.exec_driver_sql(statement)
            held = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            connection.invalidate()  # what was set here is for this alone
        files = [file for file in (self._file, Path(f"{self._file}-wal"), Path(f"{self._file}-journal")) if file.exists()]
        blocked = f"the log of {str(self._file)!r}, from which another process reads: let that end, and run this again" if held else ""
        return Scrubbed(files=tuple(files), blocked=blocked)

    def close(self) -> None:
        """Give back connections."""
        self._engine.dispose()
        with self._turn:
            if self._own is not None:
                self._own.close()
            self._own = None


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _writing_engine(file: Path) -> Engine:
    try:
        # What is in the index may be readable for some only; a new folder is for its owner, who may open it for others.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {str(file.parent)!r} of the ledger cannot be made: {error.strerror or error}") from error
    engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 30})
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _reading_engine(file: Path) -> Engine:
    """A connection for each block, because what is the right way to open the file depends on whether somebody writes at that moment."""

    def connect() -> sqlite3.Connection:
        log = file.with_name(f"{file.name}-wal")
        # Without a log beside it nobody has the file open for writing, and SQLite could not make the log's index in such a folder.
        alone = not log.exists() or log.stat().st_size == 0
        return sqlite3.connect(f"{file.as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True, timeout=30, check_same_thread=False)

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def _set_pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DB-API connection has no common type
    """WAL lets readers work beside the writer; FULL makes a commit survive a power cut, which an orphaned row would not (0.1 ms each)."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "cache_size=-16384", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
