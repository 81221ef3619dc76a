"""A response that is no success in, the ragstore error out that says what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ragstore.embedding.retry import retry_after
from ragstore.errors import ConfigError, RagstoreError, TransientError

_WORTH_A_RETRY: Final = frozenset({408, 409, 425, 429})
_ABOUT_THE_REQUEST: Final = frozenset({400, 422, 424})
"""424 is what text-embeddings-inference says of a model that is no reranker, and of one that failed."""
_TOO_MUCH: Final = 413
_REFUSED: Final = frozenset({401, 403})
_UNPAID: Final = 402
_SERVER: Final = 500
_SHOWN: Final = 300
"""Characters of what the other side says."""


class RequestRefusedError(RagstoreError):
    """The service refuses this request for what is in it. Its name is all that the log of a search shows."""


class TooMuchAtOnceError(RequestRefusedError):
    """The service refuses so many texts, or so much text."""


def translate(status: int, headers: Mapping[str, str], content: bytes, *, key: str, where: str) -> RagstoreError:
    """What the caller should do: retry, ask for less, look whether anything is taken, or stop and change the configuration.

    `key` says where the API key comes from, `where` is the model at its address; both are for the message.
    """
    said = f"{where} answered {status}{_reason(content)}"
    if status in _WORTH_A_RETRY or status >= _SERVER:
        return TransientError(said, retry_after=retry_after(headers.get("retry-after")))
    if status in _REFUSED:
        return ConfigError(f"{where} refuses the key in {key} ({status}){_reason(content)}")
    if status == _UNPAID:
        return ConfigError(f"what was paid for the key in {key} is used up: {said}")
    if status == _TOO_MUCH:
        return TooMuchAtOnceError(said)
    if status in _ABOUT_THE_REQUEST:
        return RequestRefusedError(said)
    return ConfigError(f"{said}. Check model, base_url and style")


def _reason(content: bytes) -> str:
    """The service's own words, where it sends them as these services do: on one line and not endless."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    found = next((body[name] for name in ("error", "message", "detail") if body.get(name)), "") if isinstance(body, dict) else ""
    said = found.get("message", "") if isinstance(found, dict) else found
    return f": {' '.join(str(said).split())[:_SHOWN]}" if said else ""
