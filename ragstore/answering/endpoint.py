"""Messages in, the words of a model behind an OpenAI-compatible endpoint out, as they come."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ragstore.errors import ConfigError, TransientError

if TYPE_CHECKING:
    import httpx

_LONGEST: Final = 1_000_000
"""Characters of an answer; one that is longer does not end."""
_SHOWN: Final = 200
"""Characters of what the other side says about an error."""
_REFUSED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_AGAIN: Final = frozenset({408, 409, 425, 429})
_SERVER: Final = 500


class Endpoint:
    """`POST BASE_URL/chat/completions`, streamed.

    - `api_key_env` names the environment variable that holds the key; None for a server without keys.
    - `timeout` is in seconds, between two pieces of an answer.
    - Raises `ConfigError` for an address that is none, a missing key, and where the package `httpx` is missing.
    """

    def __init__(self, *, base_url: str, model: str, api_key_env: str | None = None, timeout: float = 120) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise ConfigError("to ask a model needs a package that is not installed: pip install 'ragstore[ask]'") from error
        self._url, self._model, self._timeout = f"{base_url.rstrip('/')}/chat/completions", model, timeout
        if not base_url.startswith(("http://", "https://")) or not httpx.URL(base_url).host:
            raise ConfigError(f"[ask] base_url = {base_url!r} is no address: write it as https://HOST/v1")
        self._headers = {"Accept": "text/event-stream"}
        if api_key_env:
            key = os.environ.get(api_key_env)
            if not key:
                raise ConfigError(f"the environment variable {api_key_env!r} must hold the API key ([ask] api_key_env)")
            self._headers["Authorization"] = f"Bearer {key}"

    async def answer(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The answer, piece by piece. Redirects are not followed: the messages hold documents.

        Raises `ConfigError` where the request, the key, the model or the address is wrong, and `TransientError` where the other side is
        away, busy, too slow, or ends in the middle of the answer.
        """
        import httpx

        body = {"model": self._model, "messages": [dict(message) for message in messages], "stream": True}
        length = 0
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout) as client,
                client.stream("POST", self._url, json=body, headers=self._headers) as response,
            ):
                if not response.is_success:
                    raise self._failure(response.status_code, await response.aread())
                async for piece in _pieces(response):
                    length += len(piece)
                    if length > _LONGEST:
                        raise TransientError(f"the answer of {self._model!r} does not end; it was stopped after {_LONGEST} characters")
                    yield piece
        except httpx.HTTPError as error:
            raise TransientError(f"{self._url!r} cannot be reached or ended early ({type(error).__name__}); try again later") from error

    def _failure(self, status: int, content: bytes) -> Exception:
        said = _message(content)
        if status in _REFUSED:
            return ConfigError(f"{self._url!r} refuses the key (HTTP {status}){said}; see [ask] api_key_env")
        if status == _NOT_FOUND:
            return ConfigError(f"{self._url!r} knows no model {self._model!r}, or is no such endpoint (HTTP {status}){said}; see [ask]")
        if status in _AGAIN or status >= _SERVER:
            return TransientError(f"{self._url!r} is busy or out of order (HTTP {status}){said}; try again later")
        return ConfigError(f"{self._url!r} refuses the request (HTTP {status}){said}; see [ask]")


async def _pieces(response: httpx.Response) -> AsyncIterator[str]:
    """The texts in a stream of server-sent events, or the one in a JSON document of a server that does not stream."""
    if response.headers.get("Content-Type", "").startswith("application/json"):
        yield _text(_parsed((await response.aread()).decode("utf-8", "replace")), "message")[0]
        return
    finished = False
    async for line in _lines(response):
        name, _, data = line.partition(":")
        if name != "data":
            continue
        if data.strip() == "[DONE]":
            return
        piece, ended = _text(_parsed(data), "delta")
        finished = finished or ended
        if piece:
            yield piece
    if not finished:
        raise TransientError("the answer ended in the middle; try again")


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines as server-sent events have them. Separators of Unicode, at which httpx would part them too, may stand in a JSON text."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(rest) > _LONGEST:
            raise TransientError("the endpoint sends a line without end; is [ask] base_url that of an OpenAI-compatible API?")
    yield rest.decode("utf-8", "replace")


def _parsed(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise TransientError("the endpoint sent what is no JSON; is [ask] base_url that of an OpenAI-compatible API?") from error
    return found if isinstance(found, dict) else {}


def _text(event: Mapping[str, Any], key: str) -> tuple[str, bool]:
    """The text of the first choice, and whether that choice has ended. Raises `TransientError` for an error in the stream."""
    if event.get("error"):
        raise TransientError(f"the endpoint broke off{_message(json.dumps(event).encode())}; try again later")
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    part = choice.get(key)
    content = part.get("content") if isinstance(part, dict) else None
    return content if isinstance(content, str) else "", choice.get("finish_reason") is not None


def _message(content: bytes) -> str:
    """What the other side says, in a few words."""
    try:
        error = json.loads(content)["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        return ""
    return f": {' '.join(str(said).split())[:_SHOWN]}"
