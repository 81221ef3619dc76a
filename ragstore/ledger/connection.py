"""A ledger URL in, transactions out, on a SQLite file or in PostgreSQL; the schema is prepared on first use."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import URL, Connection
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from ragstore.errors import ConfigError

_FORMS: Final = "'sqlite:///.ragstore/ledger.db' (the default) or 'postgresql://USER@HOST/DATABASE'"
_POSTGRESQL: Final = frozenset({"postgresql", "postgres"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """How the database's files are after `Connections.scrub`."""

    files: tuple[Path, ...] = ()
    """On this machine, so that they may be searched; none where it is a server's."""
    blocked: str = ""
    """What still holds old pages, and what to do about it; empty where nothing does."""


class Connections(Protocol):
    """Transactions on one ledger.

    Every block raises `ConfigError` where a person must mend something, `OutageError` where the disk or the server fails.

    In PostgreSQL a statement that meets another one or takes too long raises `TransientError`.
    """

    shared: bool
    """Whether several processes may write at a time."""

    def read(self) -> AbstractContextManager[Connection]:
        """A connection for reading; each statement sees what was committed before."""
        ...

    def at_once(self, statement: str, parameters: Sequence[object]) -> list[tuple[Any, ...]] | None:
        """What a look at a few rows in a file gives, in the thread that asks; None where that may hold it up: then ask in another one.

        The statement is in SQLite's own words, because to translate one takes as long as to answer it.
        """
        ...

    def stream(self) -> AbstractContextManager[Connection]:
        """A connection for one long result, of which little is in memory at a time."""
        ...

    def write(self) -> AbstractContextManager[Connection]:
        """A transaction: all of it or nothing, durable when the block is left."""
        ...

    def lock_for_writing(self) -> AbstractContextManager[None]:
        """Be the one process that writes. Raises `IndexLockedError`. Nothing to do where `shared`."""
        ...

    def scrub(self) -> Scrubbed:
        """Write the file anew, so that nothing of deleted rows is in it. In PostgreSQL that is for its administrator to do."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...


def connect(url: str, *, base: Path) -> Connections:
    """Opens or creates the ledger. Raises `ConfigError` for another kind of URL, or a ledger of a newer ragstore."""
    if _parsed(url).get_backend_name() in _POSTGRESQL:
        from ragstore.ledger.postgres import PostgresConnections

        return PostgresConnections(_parsed(url))
    from ragstore.ledger.sqlite import SQLiteConnections

    return SQLiteConnections(sqlite_file(url, base))


def sqlite_file(url: str, base: Path) -> Path:
    """The file that a `sqlite:///` URL names, relative to `base`. Raises `ConfigError` for any other URL."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise ConfigError(f"[ledger] url: {_FORMS} is needed, not {parsed.get_backend_name()!r}")
    return (base / parsed.database).absolute()


def state_folder(url: str, base: Path) -> Path:
    """Where this machine keeps what is no part of the ledger, such as the spool: beside a SQLite file, else `.ragstore`."""
    return base.absolute() / ".ragstore" if _parsed(url).get_backend_name() in _POSTGRESQL else sqlite_file(url, base).parent


def spool_folder(state: Path, *, owner: str | None) -> Path:
    """Where content lies while it is parsed: one folder for the one writer, or one for each owner of those that share a ledger.

    What owners left that died on this machine goes.
    """
    if owner is None:
        return state / "spool"
    host, pid, token = owner.rsplit(":", 2)
    with suppress(OSError):  # who may only read needs no spool
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in (state / "spool").glob("*.*.*"):
        its_host, its_pid, _ = left.name.rsplit(".", 2)
        if its_host == host and its_pid.isdigit() and its_pid != pid and not _lives(int(its_pid)):
            shutil.rmtree(left, ignore_errors=True)
    return state / "spool" / f"{host}.{pid}.{token}"


def _lives(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def masked(url: str) -> str:
    """A URL, or what should be one, without the secrets that it may hold."""
    return re.sub(r"(?i)((?:password|passfile|sslpassword)=)[^&]*", r"\1***", re.sub(r"(//[^/@:]*):.*@", r"\1:***@", url))


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # a port that is no number is a ValueError
        raise ConfigError(f"[ledger] url = {masked(url)!r} is no URL; write {_FORMS}") from error
