"""Messages in, the words of a model behind an OpenAI-compatible endpoint out, as they come."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from ragstore import tracing
from ragstore.errors import ConfigError, TransientError

if TYPE_CHECKING:
    import httpx

_LONGEST: Final = 1_000_000
"""Characters of an answer; one that is longer does not end."""
_LARGEST: Final = 4 * _LONGEST
"""Bytes of a document that says it at once, which may write a character as six bytes; and of a line, which holds a piece of it."""
_LARGEST_ERROR: Final = 65_536
"""Bytes that are read of what the other side says about an error."""
_SHOWN: Final = 200
"""Characters of what the other side says about an error."""
_REFUSED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_AGAIN: Final = frozenset({408, 409, 425, 429})
_SERVER: Final = 500
_LONGEST_PAUSE: Final = 3600.0
"""Seconds; what the other side asks for beyond is not believed."""
Kind = Literal["connect", "timeout", "broke_off", "busy", "refused", "endless", "unreadable"]
"""What went wrong, in words of ours: nobody there, silence, an end in the middle, an HTTP status, no end, and what is no such API."""
_USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens")


class EndpointRefusedError(ConfigError):
    """The other side will not answer, however often it is asked. `status` is that of HTTP."""

    kind: Kind = "refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class EndpointDownError(TransientError):
    """The other side cannot answer now. `status` is that of HTTP, None where there was none."""

    def __init__(
        self, message: str, *, kind: Kind, status: int | None = None, late: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.kind = kind
        self.status = status
        self.late = late
        """Whether it took too long, also to be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one event of a stream says."""

    text: str = ""
    finish: str | None = None
    """Why the answer ends here: "stop", "length", "content_filter"."""
    usage: Mapping[str, int] | None = None
    """`prompt_tokens`, `completion_tokens` and `total_tokens`, as the other side counts them."""


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
        # To make it takes longer than a short answer. One client for all answers would have to be closed by somebody.
        self._trust = httpx.create_ssl_context()
        # Not compressed: of a few bytes that unfold into hundreds of megabytes, all would be there before any limit is looked at.
        self._headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if api_key_env:
            key = os.environ.get(api_key_env)
            if not key:
                raise ConfigError(f"the environment variable {api_key_env!r} must hold the API key ([ask] api_key_env)")
            self._headers["Authorization"] = f"Bearer {key}"

    @property
    def model(self) -> str:
        """The model that answers."""
        return self._model

    async def answer(self, messages: Sequence[Mapping[str, str]]) -> AsyncIterator[str]:
        """The answer, piece by piece; see `stream`."""
        async with aclosing(self.stream(messages)) as pieces:
            async for piece in pieces:
                if piece.text:
                    yield piece.text

    async def stream(self, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any] | None = None) -> AsyncGenerator[Piece]:
        """What comes, as it comes; `options` are further fields of the request. Redirects are not followed: the messages hold documents.

        Raises `EndpointRefusedError` where the request, the key, the model or the address is wrong, and `EndpointDownError` where the other
        side is away, busy, too slow, or ends in the middle of the answer.
        """
        import httpx

        body = {**(options or {}), "model": self._model, "messages": [dict(message) for message in messages], "stream": True}
        length, half = 0, ""
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout, verify=self._trust) as client,
                tracing.asking("model.answer") as trace,
                client.stream("POST", self._url, json=body, headers={**self._headers, **trace}) as response,
            ):
                if not response.is_success:
                    raise self._failure(response, await _read(response, _LARGEST_ERROR))
                async for said in _pieces(response):
                    piece, half = _whole(said, half)
                    length += len(piece.text)
                    if length > _LONGEST:
                        text = f"the answer of {self._model!r} does not end; it was stopped after {_LONGEST} characters"
                        raise EndpointDownError(text, kind="endless")
                    yield piece
        except httpx.HTTPError as error:
            late, away = isinstance(error, httpx.TimeoutException), isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
            raise EndpointDownError(
                f"{self._url!r} cannot be reached or ended early ({type(error).__name__}); try again later",
                kind="connect" if away else "timeout" if late else "broke_off",
                late=late,
            ) from error

    def _failure(self, response: httpx.Response, content: bytes) -> Exception:
        status, said = response.status_code, _message(content)
        if status in _REFUSED:
            text = f"{self._url!r} refuses the key (HTTP {status}){said}; see [ask] api_key_env"
        elif status == _NOT_FOUND:
            text = f"{self._url!r} knows no model {self._model!r}, or is no such endpoint (HTTP {status}){said}; see [ask]"
        elif status in _AGAIN or status >= _SERVER:
            text = f"{self._url!r} is busy or out of order (HTTP {status}){said}; try again later"
            return EndpointDownError(text, kind="busy", status=status, retry_after=_pause(response))
        else:
            text = f"{self._url!r} refuses the request (HTTP {status}){said}; see [ask]"
        return EndpointRefusedError(text, status=status)


def _whole(piece: Piece, half: str) -> tuple[Piece, str]:
    """The piece without half of a character: a server may write one as two escapes, in two events."""
    text = half + piece.text
    if text.isascii():
        return piece, ""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    text = text.removesuffix(half).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return replace(piece, text=text), half


def _pause(response: httpx.Response) -> float | None:
    """The seconds of `Retry-After`, where it says them."""
    said = response.headers.get("Retry-After", "")
    return min(float(said), _LONGEST_PAUSE) if said.isascii() and said.isdecimal() else None


async def _pieces(response: httpx.Response) -> AsyncIterator[Piece]:
    """What a stream of server-sent events says, or the JSON document of a server that does not stream."""
    if response.headers.get("Content-Type", "").startswith("application/json"):
        content = await _read(response, _LARGEST + 1)
        if len(content) > _LARGEST:
            raise EndpointDownError(f"the answer does not end; it was stopped after {_LARGEST} bytes", kind="endless")
        yield _piece(_parsed(content.decode("utf-8", "replace")), "message")
        return
    finished = False
    async for line in _lines(response):
        name, _, data = line.partition(":")
        if name != "data":
            continue
        if data.strip() == "[DONE]":
            return
        piece = _piece(_parsed(data), "delta")
        finished = finished or piece.finish is not None
        yield piece
    if not finished:
        raise EndpointDownError("the answer ended in the middle; try again", kind="broke_off")


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines as server-sent events have them. Separators of Unicode, at which httpx would part them too, may stand in a JSON text."""
    rest = bytearray()
    async for part in response.aiter_bytes():
        *whole, last = part.split(b"\n")
        for line in whole:
            rest += line
            yield rest.decode("utf-8", "replace").rstrip("\r")
            rest.clear()
        rest += last
        if len(rest) > _LARGEST:
            text = "the endpoint sends a line without end; is [ask] base_url that of an OpenAI-compatible API?"
            raise EndpointDownError(text, kind="unreadable")
    yield rest.decode("utf-8", "replace")


async def _read(response: httpx.Response, most: int) -> bytes:
    """The first bytes of the body, up to so many. What comes behind them is not waited for."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) >= most:
            break
    return bytes(content[:most])


def _parsed(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        text = "the endpoint sent what is no JSON; is [ask] base_url that of an OpenAI-compatible API?"
        raise EndpointDownError(text, kind="unreadable") from error
    return found if isinstance(found, dict) else {}


def _piece(event: Mapping[str, Any], key: str) -> Piece:
    """The text of the first choice, and whether that choice has ended. Raises `EndpointDownError` for an error in the stream."""
    if event.get("error"):
        said = _message(json.dumps(event).encode())
        raise EndpointDownError(f"the endpoint broke off{said}; try again later", kind="broke_off")
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    part = choice.get(key)
    content = part.get("content") if isinstance(part, dict) else None
    finish = choice.get("finish_reason")
    return Piece(
        text=content if isinstance(content, str) else "",
        finish=None if finish is None else str(finish),
        usage=_usage(event.get("usage")),
    )


def _usage(said: object) -> Mapping[str, int] | None:
    """The three numbers, where all are there."""
    found = {name: said.get(name) for name in _USAGE} if isinstance(said, dict) else {}
    numbers = {name: number for name, number in found.items() if isinstance(number, int)}
    return numbers if len(numbers) == len(_USAGE) else None


def _message(content: bytes) -> str:
    """What the other side says, in a few words."""
    try:
        error = json.loads(content)["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {' '.join(str(said).split())[:_SHOWN]}"
