"""An HTTP request in; one that is small, in time and of a known principal on to the application, an answer and a line of log out."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from ragstore.config import ChatSettings, ServiceSettings
from ragstore.errors import RagstoreError, TransientError
from ragstore.instrumentation import Instruments
from ragstore.service.addresses import host_of, is_loopback
from ragstore.service.auth import Authenticator
from ragstore.service.limits import RateLimit
from ragstore.service.metrics import Metrics
from ragstore.service.page import PAGES
from ragstore.service.problems import MEDIA_TYPE, Problem, RefusedError, problem_of, refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GUARDED: Final = "/v1/"
"""Whatever is below needs a credential, also what is not there."""

_ROUTES: Final = frozenset({"/v1/search", "/v1/prompt", "/v1/mcp", "/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", *PAGES})
CHAT: Final = "/v1/chat/completions"
CONVERSATIONS: Final = "/v1/conversations"
MODELS: Final = "/v1/models"
OPENAI: Final = frozenset({CHAT, CONVERSATIONS, f"{CONVERSATIONS}/{{id}}", MODELS, f"{MODELS}/{{id}}"})
"""Routes that clients of OpenAI's API ask, who look for an error in another place."""
_WITH_BODY: Final = frozenset({"/v1/search", "/v1/prompt", CHAT, CONVERSATIONS})
_WITH_ID: Final = ("/v1/chunks/", f"{CONVERSATIONS}/", f"{MODELS}/")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{8,64}")
_GONE: Final = 499
"""The caller went away; as other servers log it."""
_UNAVAILABLE: Final = 503
_LARGEST_OF_ANYBODY: Final = 1_024
"""Bytes of a request that needs no credential, and no body: else who has none could have us keep megabytes, for as long as it is slow."""
_MARGIN: Final = 5.0
"""Seconds: an answer of a model that takes too long is ended by its route, which can still say so in the middle of it."""
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request, as far as it is logged: nothing of what it asks, and of its path only the route."""

    id: str
    method: str
    route: str
    began: float = field(default_factory=time.perf_counter)
    status: int = 0
    principal: str | None = None
    reason: str | None = None


class GoneError(Exception):
    """The caller went away before all of the request, or of the answer, was there."""


class Front:
    """The outermost layer of the application. Order: place, host, credential, rate, size; all of it within the time limit."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        settings: ServiceSettings,
        chat: ChatSettings,
        instruments: Instruments,
        metrics: Metrics,
        local: bool,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._settings = settings
        self._instruments = instruments
        self._metrics = metrics
        self._local = local
        self._seconds = {CHAT: chat.timeout + _MARGIN}
        self._bytes = {CHAT: chat.max_body}
        self._limit = RateLimit(rate=settings.rate, burst=settings.burst)
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        exchange = Exchange(
            id=_request_id(headers),
            method=scope["method"] if scope["method"] in METHODS else "OTHER",
            route=route_of(scope["path"]),
        )
        with self._instruments.serving(method=exchange.method, route=exchange.route, headers=headers, id=exchange.id) as span:
            try:
                await self._within_time(scope, headers, receive, _watched(send, exchange), exchange)
            except GoneError:
                exchange.status, exchange.reason = exchange.status or _GONE, "gone"
            finally:
                span.answered(exchange.status, exchange.reason)
                self._tell(exchange)

    async def _within_time(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, exchange: Exchange) -> None:
        timer = asyncio.timeout(self._seconds.get(exchange.route, self._settings.timeout))
        try:
            async with timer:
                with self._place(scope["path"]):
                    await self._answer(scope, headers, receive, send, exchange)
                return
        except RefusedError as error:
            problem, exchange.reason = error.problem, error.reason
            if error.__cause__ is not None:  # what the administrator can say
                self._instruments.log("service.refused", id=exchange.id, reason=error.reason, detail=str(error.__cause__))
        except RagstoreError as error:
            problem = self._service_problem(error, exchange)
        except DBAPIError as error:
            problem = self._service_problem(TransientError(f"the ledger cannot be reached ({type(error).__name__})"), exchange)
        except TimeoutError as error:
            late = timer.expired()
            problem = Problem(status=504, detail="there was no answer in time; try again, or ask for less") if late else _unforeseen()
            exchange.reason = "timeout" if late else self._note_bug(error, exchange)
        except GoneError:
            raise
        except Exception as error:  # noqa: BLE001 - the last door: no text of an error that nobody foresaw goes to the caller
            problem, exchange.reason = _unforeseen(), self._note_bug(error, exchange)
        if not exchange.status:  # an answer that has begun cannot become another one: the server cuts it off
            await _send_problem(problem, exchange, send)

    @contextmanager
    def _place(self, path: str) -> Iterator[None]:
        """One of the places for requests under way, taken before a credential is looked at or a body read.

        Health and metrics need none, so that whoever watches over the service is answered while it is busy. The server's own limit of that
        kind knows no such difference, and answers in plain text without `Retry-After`.
        """
        if not path.startswith(GUARDED):
            yield
            return
        if self._under_way >= self._settings.concurrency:
            detail = "too many requests are under way here; come again in a moment"
            problem = Problem(status=_UNAVAILABLE, detail=detail, code="busy", headers={"Retry-After": "1"})
            raise RefusedError(problem, reason="concurrency")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, exchange: Exchange) -> None:
        if self._local and not is_loopback(host_of(headers.get("host", ""))):
            # By DNS, a web page of anybody's can have a name that leads here, and let a browser of this machine ask.
            raise refused(421, "this service is for this machine alone: ask 127.0.0.1", reason="host")
        scope["state"] = {**scope.get("state", {}), "request_id": exchange.id}
        most = _LARGEST_OF_ANYBODY
        if scope["path"].startswith(GUARDED):
            most = self._bytes.get(exchange.route, self._settings.max_body)
            principal = await self._authenticator.principal(headers.get("authorization"))
            exchange.principal = principal.id
            seconds = self._limit.wait(principal.id)
            if seconds:
                wait = str(max(1, round(seconds + 0.5)))
                raise refused(429, "too many requests; wait a little", reason="rate", headers={"Retry-After": wait})
            scope["state"]["principal"] = principal
            if (
                exchange.method == "POST"
                and exchange.route in _WITH_BODY
                and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json"
            ):
                raise refused(415, "send JSON: Content-Type: application/json", reason="content_type")
        body = await self._body(headers, receive, most)
        await self._app(scope, _replayed(body, receive), send)

    async def _body(self, headers: Mapping[str, str], receive: Receive, most: int) -> bytes:
        too_large = refused(413, f"a request has at most {most} bytes", reason="size")
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > len(str(most)) or int(declared) > most:
            raise too_large
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large
            more = message.get("more_body", False)
        return b"".join(parts)

    def _service_problem(self, error: RagstoreError, exchange: Exchange) -> Problem:
        problem = problem_of(error)
        exchange.reason = type(error).__name__
        if problem.status == _UNAVAILABLE:
            self._instruments.log("service.down", id=exchange.id, error=type(error).__name__, detail=str(error))
        return problem

    def _note_bug(self, error: Exception, exchange: Exchange) -> str:
        """Where it happened, and not its text, which may quote a request or a document."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        self._instruments.log("service.failed", id=exchange.id, error=type(error).__name__, place=place)
        return type(error).__name__

    def _tell(self, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.began
        self._metrics.answered(exchange.route, exchange.status, seconds)
        told = {"id": exchange.id, "method": exchange.method, "route": exchange.route, "status": exchange.status}
        who = {"principal": exchange.principal} if exchange.principal else {}
        why = {"reason": exchange.reason} if exchange.reason else {}
        self._instruments.log("http.request", **told, ms=round(seconds * 1000, 1), **who, **why)


def _headers(scope: Scope) -> dict[str, str]:
    """By lower-cased name. One that is there twice is kept as one with a comma, as RFC 9110 says, which no credential survives."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)


def route_of(path: str) -> str:
    """What stands for a path in log and metrics: of few values, and without ids."""
    for start in _WITH_ID:
        if path.startswith(start):
            return start + "{id}"
    return path if path in _ROUTES or path in OPENAI else "other"


def _watched(send: Send, exchange: Exchange) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            extra = [(b"x-request-id", exchange.id.encode("ascii")), *_HEADERS]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return sending


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


async def _send_problem(problem: Problem, exchange: Exchange, send: Send) -> None:
    body = json.dumps(problem.body(exchange.id, openai=exchange.route in OPENAI)).encode("ascii")
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), **problem.headers}
    raw = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if exchange.method == "HEAD" else body})


def _unforeseen() -> Problem:
    return Problem(status=500, detail="something went wrong that nobody foresaw; the log says where, under this request_id")
