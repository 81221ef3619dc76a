"""What SQLite says went wrong with the ledger's file in, an error by recovery out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from ragstore.errors import ConfigError, OutageError, RagstoreError

_PRIMARY: Final = 0xFF
"""Extended result codes carry the primary one in their lowest byte."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REFUSED: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH})
_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Raise `ConfigError` where a person must mend the file, `OutageError` where the disk or another process is in the way.

    What has nothing to do with the file, such as a broken constraint, is a bug and stays what it is.
    """
    try:
        yield
    except DBAPIError as error:
        known = _by_recovery(file, error.orig)
        if known is None:
            raise
        raise known from error


def not_writable(file: Path) -> ConfigError:
    """For a ledger that this user may read and not change."""
    return ConfigError(f"the ledger {str(file)!r} may not be written by this user; check the owner and the rights of it and of its folder")


def replaced(file: Path) -> ConfigError:
    """For a ledger whose file is another one than that which this process opened, or none."""
    return ConfigError(
        f"the ledger {str(file)!r} was deleted or replaced while this process had it open, so that nothing of it counts any more; "
        "bring back the right file where this one is not, and start this process again"
    )


def _by_recovery(file: Path, error: BaseException | None) -> RagstoreError | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & _PRIMARY
    if primary in _DAMAGED:
        return ConfigError(
            f"the ledger {str(file)!r} is damaged ({error}): bring back a copy of it, or move it away (with {file.name}-wal and "
            f"{file.name}-shm) and run: ragstore index, which then reads and embeds everything again"
        )
    if primary in _REFUSED:
        return ConfigError(f"the ledger {str(file)!r} cannot be opened or written ({error}); check the rights of it and of its folder")
    if primary in _NO_ROOM:
        return OutageError(
            f"the ledger {str(file)!r} cannot be written ({error}); what was finished is kept: free space on that disk and run this again"
        )
    if primary in _BUSY:
        return OutageError(f"the ledger {str(file)!r} has been held by another process for too long ({error}); run this again")
    return None
