"""What LanceDB raises in, what a caller can act on out: retried conflicts, stale handles, `TransientError`, `ConfigError`."""

from __future__ import annotations

from typing import Final

from ragstore.errors import ConfigError, RagstoreError, TransientError

_CONFLICT: Final = ("commit conflict", "too many concurrent writers", "conflicting", "please retry")
_GONE: Final = ("not found", "no such file")
_REFUSED: Final = (
    "unauthenticated",
    "unauthorized",
    "forbidden",
    "authenticationfailed",
    "authorizationfailure",
    "permission denied",
    "invalid access key",
)


def is_conflict(error: Exception) -> bool:
    """Another process committed first: repeat the commit on top of its version."""
    return any(sign in str(error).lower() for sign in _CONFLICT)


def is_gone(error: Exception) -> bool:
    """The table, or the version that this handle stands on, was dropped or cleaned up: open it again."""
    return any(sign in str(error).lower() for sign in _GONE)


def translated(error: Exception, uri: str) -> RagstoreError:
    """The error by recovery. LanceDB has no classes for it, so the message decides; what is not understood may be retried."""
    message = str(error).splitlines()[0][:500] if str(error) else type(error).__name__
    if any(sign in message.lower() for sign in _REFUSED):
        return ConfigError(f"LanceDB may not use {uri}: {message}. Check the credentials, and that they may read and write blobs there")
    return TransientError(f"LanceDB at {uri}: {message}")
