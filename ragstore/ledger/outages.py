"""What PostgreSQL says went wrong in, an error by recovery out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ragstore.errors import ConfigError, OutageError, RagstoreError, TransientError

# Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_MEETS_ANOTHER: Final = frozenset({"40001", "40P01", "55P03", "57014"})  # serialization, deadlock, lock timeout, statement timeout
_REFUSED: Final = ("28", "3D", "3F", "42501", "0A", "25006")
_DAMAGED: Final = "XX"
_DOWN: Final = ("08", "53", "57P", "58", "25P03", "25P04")
_SOON: Final = ("starting up", "shutting down", "recovery", "too many c", "connection slots", "not yet accepting")
"""In what a server says before it lets anybody in, where there is no code; in other languages it counts as an outage as well."""
_SET_UP: Final = ("FATAL:", "does not support SSL", "certificate", "invalid connection option", "invalid port", "fe_sendauth", "sslmode")


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise `ConfigError` where a person must act, `OutageError` where the server is down, `TransientError` where it was busy.

    What has nothing to do with the server, such as a broken constraint, is a bug and stays what it is.
    """
    try:
        yield
    except PoolTimeoutError as error:
        raise TransientError(f"all connections to the ledger at {place!r} are in use; retrying later helps") from error
    except DBAPIError as error:
        known = _by_recovery(place, error)
        if known is None:
            raise
        raise known from error


def _by_recovery(place: str, error: DBAPIError) -> RagstoreError | None:
    code = getattr(error.orig, "sqlstate", None)
    said = " ".join(str(error.orig).split())
    if code is None:
        return _unanswered(place, said) if _is_connection_trouble(error) else None
    if code in _MEETS_ANOTHER:
        return TransientError(f"the ledger at {place!r} was busy ({said}); nothing was written, and trying again helps")
    if code == "25006":
        return ConfigError(f"the ledger at {place!r} is read-only ({said}): a standby? let [ledger] url name the primary server")
    if code == "42501":
        return ConfigError(
            f"the ledger at {place!r} may not be made or written by this user ({said}); grant it CREATE on the schema and the rights to "
            "its tables, or name a schema of its own: [ledger] url = 'postgresql://.../DATABASE?schema=NAME'"
        )
    if code.startswith(_REFUSED):
        return ConfigError(f"the ledger at {place!r} refuses this user or this database ({said}); check [ledger] url and the rights")
    if code.startswith(_DAMAGED):
        return ConfigError(f"the ledger at {place!r} is damaged ({said}); restore it from a backup")
    if code.startswith(_DOWN):
        return _outage(place, said)
    return None


def _is_connection_trouble(error: DBAPIError) -> bool:
    """Without a code it comes from the client library, before or after there was a connection."""
    return (
        error.connection_invalidated
        or type(error.orig).__name__ in {"OperationalError", "InterfaceError", "ConnectionTimeout"}
        or (type(error.orig).__name__ == "ProgrammingError" and "connection option" in str(error.orig))
    )


def _unanswered(place: str, said: str) -> RagstoreError:
    if any(words in said for words in _SET_UP) and not any(words in said for words in _SOON):
        return ConfigError(
            f"the ledger at {place!r} cannot be opened ({said}); check user, password (PGPASSWORD or ~/.pgpass), database and options "
            "in [ledger] url"
        )
    return _outage(place, said)


def _outage(place: str, said: str) -> OutageError:
    return OutageError(
        f"the ledger at {place!r} cannot be reached ({said}); what was finished is kept: start PostgreSQL, or check [ledger] url, and "
        "run this again"
    )
