"""What PostgreSQL raises in, what a caller can act on out: `TransientError`, `ConfigError`, damage; and which statement to repeat."""

from __future__ import annotations

from typing import Final

import psycopg

from ragstore.errors import ConfigError, RagstoreError, StoreDamagedError, TransientError

# Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_MEETS_ANOTHER: Final = frozenset({"40001", "40P01", "23503"})  # serialization, deadlock, columns that another took or left
_GONE: Final = frozenset({"42P01", "3F000", "42703"})  # undefined table, schema, column
_REFUSED: Final = ("28", "3D", "42501", "0A", "25006")
_TOO_COMPLEX: Final = ("54", "2201B")
_DAMAGED: Final = ("XX001", "XX002")
_SOON: Final = ("starting up", "shutting down", "recovery", "too many c", "connection slots", "not yet accepting")
"""In what a server says before it lets anybody in, where there is no code."""
_SET_UP: Final = (
    "FATAL:",
    "support SSL",
    "certificate",
    "connection option",
    "invalid port",
    "fe_sendauth",
    "sslmode",
    "ProactorEventLoop",
)


def is_conflict(error: psycopg.Error) -> bool:
    """Another transaction came in between: repeat this one."""
    return error.sqlstate in _MEETS_ANOTHER


def is_gone(error: psycopg.Error) -> bool:
    """The table was dropped, or is not made yet, or another version of ragstore has changed it: look at it again."""
    return error.sqlstate in _GONE


def is_lost(error: psycopg.Error) -> bool:
    """The connection broke: the server ended it, or went away."""
    return error.sqlstate in {"57P01", "57P02", "57P05", "25P03"} or (
        error.sqlstate is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    )


def translated(error: psycopg.Error, place: str, *, reads: bool = False) -> Exception:
    """The error by recovery; what has nothing to do with the server, such as a broken constraint, is a bug and stays what it is.

    `reads`: it is the user of `reader_url`, who is to be given no more than SELECT.
    """
    code, said = error.sqlstate, " ".join(str(error).split())
    if code is None:
        return _unanswered(error, place, said)
    if code == "25006":
        return ConfigError(f"the database at {place!r} is read-only ({said}): a standby? let [store] url name the primary server")
    if code == "42501" and reads:
        return ConfigError(
            f"the user of [store] reader_url may not read the store at {place!r} ({said}); grant it USAGE on the schema and SELECT on the "
            "tables of this collection, as README says under Stores, and once more where another embedder made another collection"
        )
    if code == "42501":
        return ConfigError(
            f"the store at {place!r} may not be made, read or written by this user ({said}); grant it CREATE on the database, or make the "
            "schema of [store] schema for it, and let an administrator run CREATE EXTENSION vector in this database"
        )
    if code.startswith(_REFUSED):
        return ConfigError(f"the store at {place!r} refuses this user or this database ({said}); check [store] url and the rights")
    if code.startswith(_TOO_COMPLEX):
        return ConfigError(f"PostgreSQL at {place!r} finds a filter too complex ({said}); make the condition behind it simpler")
    if code.startswith(_DAMAGED):
        return StoreDamagedError(f"the table at {place!r} is damaged ({said}); make it anew with: ragstore verify --repair")
    if code.startswith(("22", "23", "42")):
        return error
    return TransientError(f"PostgreSQL at {place!r}: {said}; trying again helps when it is back, or less busy")


def _unanswered(error: psycopg.Error, place: str, said: str) -> Exception:
    """Without a code it comes from the client library, before or after there was a connection."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.ProgrammingError):
        return error
    return unanswered(place, said)


def unanswered(place: str, said: str) -> RagstoreError:
    """For a connection that was not made, or broke."""
    if any(words in said for words in _SET_UP) and not any(words in said for words in _SOON):
        return ConfigError(
            f"the store at {place!r} cannot be opened ({said}); check user, password (PGPASSWORD or ~/.pgpass), database and options in "
            "[store] url"
        )
    return TransientError(f"PostgreSQL at {place!r} cannot be reached ({said}); start it, or check [store] url")
