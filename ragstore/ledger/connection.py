"""A ledger URL in, transactions out; the schema is prepared on first use, and a lock file admits one writer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from ragstore.errors import ConfigError, IndexLockedError
from ragstore.ledger import schema


class Connections:
    """Transactions on one ledger. Reading needs no lock; `lock_for_writing` is for the one process that writes."""

    def __init__(self, url: str, *, base: Path) -> None:
        """`sqlite:///relative.db` starts from `base`. Raises `ConfigError` for another kind of URL, or a ledger of a newer ragstore."""
        self._file = sqlite_file(url, base)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._engine = create_engine(f"sqlite:///{self._file}", connect_args={"timeout": 30})
        event.listen(self._engine, "connect", _set_pragmas)
        self._writing = threading.Lock()
        self._lock = FileLock(f"{self._file}.lock", thread_local=False)
        with self.write() as connection:
            schema.prepare(connection)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; sees what was committed before."""
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: all of it or nothing, durable when the block is left. One at a time in this process."""
        with self._writing, self._engine.begin() as connection:
            yield connection

    @contextmanager
    def lock_for_writing(self) -> Iterator[None]:
        """Be the one writer. Raises `IndexLockedError`, naming the process that has the lock."""
        note = Path(f"{self._file}.writer")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            try:
                who = f" (process {note.read_text(encoding='ascii').strip()})"
            except OSError:
                who = ""
            raise IndexLockedError(
                f"another ragstore{who} is writing to the index of {str(self._file)!r}; wait for it to end, or stop it, and run this again"
            ) from None
        try:
            note.write_text(str(os.getpid()), encoding="ascii")
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Give back connections."""
        self._engine.dispose()


def sqlite_file(url: str, base: Path) -> Path:
    """The file that a `sqlite:///` URL names, relative to `base`. Raises `ConfigError` for any other URL."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(f"[ledger] url = {url!r} is no URL; the default is 'sqlite:///.ragstore/ledger.db'") from error
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ConfigError(
            f"[ledger] url: a SQLite file is needed, such as 'sqlite:///.ragstore/ledger.db', not {parsed.get_backend_name()!r}"
        )
    return (base / parsed.database).absolute()


def _set_pragmas(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DB-API connection has no common type
    """WAL lets readers work beside the writer; FULL makes a commit survive a power cut, which an orphaned row would not (0.1 ms each)."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "cache_size=-16384", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
