"""What Pinecone's SDK raises in, what a caller can act on out: `TransientError` to try again, `ConfigError` with what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ragstore.embedding.retry import retry_after
from ragstore.errors import ConfigError, RagstoreError, TransientError

if TYPE_CHECKING:
    from pinecone.errors import PineconeError

_WORTH_A_RETRY: Final = frozenset({408, 409, 425, 429})
_FAULT_OF_THE_SERVER: Final = 500
_KEY: Final = frozenset({401, 403})
_UNPAID: Final = 402
_ABSENT: Final = 404


def translated(error: PineconeError, *, where: str, key: str) -> RagstoreError:
    """The error by recovery. `key` names the environment variable of the API key, `where` the index; both are for the message."""
    from pinecone.errors import ApiError, PineconeConnectionError, PineconeTimeoutError, ResponseParsingError

    said = " ".join(error.message.split())[:500] or type(error).__name__
    if isinstance(error, PineconeConnectionError | PineconeTimeoutError):
        return TransientError(f"{where} cannot be reached: {said}; check network and endpoint")
    if isinstance(error, ResponseParsingError):
        return TransientError(f"{where} sent what cannot be understood: {said}")
    if not isinstance(error, ApiError):
        return ConfigError(f"{where}: the Pinecone SDK refuses a request: {said}")
    status = error.status_code
    if status in _WORTH_A_RETRY or status >= _FAULT_OF_THE_SERVER:
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        return TransientError(f"{where} answered {status}: {said}", retry_after=retry_after(headers.get("retry-after")))
    if status in _KEY:
        return ConfigError(f"{where} refuses the API key in {key} ({status}): {said}. Check the key, its project and its role")
    if status == _UNPAID:
        return ConfigError(f"{where} wants to be paid ({status}): {said}")
    if status == _ABSENT:
        return ConfigError(f"{where} is not there ({status}): {said}. Check the name of the index, or its host")
    return ConfigError(f"{where} refused a request ({status}): {said}")
