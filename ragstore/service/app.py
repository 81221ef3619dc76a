"""An index in; an application that answers over HTTP, to each caller as the principal that the credential proves, out."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPBearer
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from ragstore import __version__
from ragstore.errors import RagstoreError
from ragstore.models import Principal
from ragstore.retrieval import measured
from ragstore.service.auth import Authenticator
from ragstore.service.bodies import PromptAnswer, PromptQuery, SearchAnswer, SearchQuery, problems
from ragstore.service.chat import chat_routes, open_conversations
from ragstore.service.conversations import conversation_routes
from ragstore.service.front import GUARDED, METHODS, OPENAI, Front, route_of
from ragstore.service.mcp_http import PATH as MCP_PATH
from ragstore.service.mcp_http import McpRoute
from ragstore.service.metrics import MEDIA_TYPE as METRICS_TYPE
from ragstore.service.metrics import Metrics
from ragstore.service.page import page_routes
from ragstore.service.problems import CHALLENGE, MEDIA_TYPE, Problem, refused

if TYPE_CHECKING:
    from ragstore.index import AsyncIndex
    from ragstore.instrumentation import Instruments

_SHOWN_ERRORS: Final = 10
_LONGEST_NAME: Final = 100
_REMEMBERED: Final = 1.0
"""Seconds for which readiness is not asked again: anybody may ask, and each asks the store."""
_READY_WITHIN: Final = 5.0


def build(
    index: AsyncIndex,
    *,
    authenticator: Authenticator,
    instruments: Instruments,
    metrics: Metrics,
    local: bool = False,
    ending: asyncio.Event | None = None,
) -> FastAPI:
    """The application. The index stays the caller's, who closes it after the last request.

    - `local`: only requests to this machine's own names are answered, for when nobody has to say who asks.
    - `ending`: when it is set, answers that the model is still giving end with an error that says so.
    """
    index.observe(measured(instruments))
    app = FastAPI(
        title="ragstore",
        version=__version__,
        redoc_url=None,
        redirect_slashes=False,  # a redirect goes to the host and the scheme that the request seems to have, credential and all
        description="Retrieval that shows each caller what that caller may read.",
    )
    service = Service(index, authenticator, metrics, instruments)
    shown = HTTPBearer(auto_error=False, description="An API key, or a token of the issuer")  # `Front` is who asks for it
    bearer: dict[str, Any] = {} if authenticator.anonymous else {"dependencies": [Security(shown)]}
    asking = problems(400, 401, 403, 413, 415, 422, 429, 503, 504)
    post: dict[str, Any] = {"methods": ["POST"], "responses": asking, **bearer}
    app.add_api_route(GUARDED + "search", service.search, response_model=SearchAnswer, **post)
    app.add_api_route(GUARDED + "prompt", service.prompt, response_model=PromptAnswer, **post)
    absent = problems(401, 403, 404, 422, 429, 503, 504)
    app.add_api_route(GUARDED + "chunks/{chunk_id}", service.chunk, response_model=None, responses=absent, **bearer)
    if find_spec("mcp") is not None:  # the extra `mcp`
        app.router.routes.append(Route(MCP_PATH, endpoint=McpRoute(index), methods=["POST"]))
    kept = open_conversations(index.settings)
    for router in (chat_routes(index, instruments, kept, ending or asyncio.Event()), conversation_routes(index, kept)):
        app.include_router(router, **bearer)
    app.router.routes.extend(page_routes())
    app.add_api_route("/healthz", service.alive, response_model=None)
    app.add_api_route("/readyz", service.ready, response_model=None, responses=problems(503))
    told = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(401)}
    app.add_api_route("/metrics", service.metrics, response_model=None, response_class=Response, responses=told, **bearer)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_middleware(
        Front,
        authenticator=authenticator,
        settings=index.settings.service,
        chat=index.settings.chat,
        instruments=instruments,
        metrics=metrics,
        local=local,
    )
    return app


class Service:
    """What each route does. Whoever comes here has proved who asks (`Front`)."""

    def __init__(self, index: AsyncIndex, authenticator: Authenticator, metrics: Metrics, instruments: Instruments) -> None:
        self._index = index
        self._authenticator = authenticator
        self._metrics = metrics
        self._instruments = instruments
        self._asking = asyncio.Lock()
        self._ready = False
        self._looked = float("-inf")

    async def search(self, request: Request, body: SearchQuery) -> JSONResponse:
        """The best chunks that the caller may read, best first."""
        hits = await self._index.search(principal=_principal(request), **body.keywords)
        return JSONResponse({"hits": [hit.as_dict() for hit in hits]})

    async def prompt(self, request: Request, body: PromptQuery) -> JSONResponse:
        """Messages for a chat model with numbered citations, of what the caller may read."""
        built = await self._index.prompt(principal=_principal(request), **body.keywords)
        citations = [citation.as_dict() for citation in built.citations]
        return JSONResponse({"messages": [dict(message) for message in built.messages], "citations": citations, "tokens": built.tokens})

    async def chunk(self, request: Request, chunk_id: str) -> JSONResponse:
        """One chunk by its id. One that the caller may not read is not found, as one that is not there."""
        hit = await self._index.chunk(chunk_id, principal=_principal(request))
        if hit is None:
            raise refused(404, "there is no such chunk", reason="no_chunk")
        return JSONResponse(hit.as_dict())

    async def alive(self) -> JSONResponse:
        """Whether the process answers at all."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> JSONResponse:
        """Whether a question could be answered now: ledger and store are there, the model is loaded, the policy can be read."""
        async with self._asking:
            if time.monotonic() - self._looked > _REMEMBERED:
                self._ready = await self._look()
                self._looked = time.monotonic()
        if not self._ready:
            raise refused(503, "not ready to answer; the log says why", reason="not_ready")
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        """For Prometheus, by a key that is for metrics."""
        if not self._authenticator.may_read_metrics(request.headers.get("authorization")):
            raise refused(401, "this needs a key that is for metrics", reason="no_metrics_key", headers=CHALLENGE)
        return Response(self._metrics.text(), media_type=METRICS_TYPE)

    async def _look(self) -> bool:
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self._index.ready()
        except (RagstoreError, DBAPIError, OSError) as error:
            detail = str(error) if isinstance(error, RagstoreError) else ""
            self._instruments.log("service.down", error=type(error).__name__, detail=detail)
            return False
        return True


def _principal(request: Request) -> Principal:
    """As the credential proved it. Without one it is an error, and never an answer."""
    principal = request.state.principal
    if not isinstance(principal, Principal):
        raise TypeError("a request came past its authentication")
    return principal


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {404: "there is no such page", 405: "this page does not take that method"}
    headers = dict(getattr(error, "headers", None) or {})
    if "allow" in {name.lower() for name in headers}:
        headers = {"Allow": ", ".join(_methods(request))}
    return _problem(request, Problem(status=status, detail=details.get(status, "the request cannot be read"), headers=headers))


def _methods(request: Request) -> list[str]:
    """What any route of this path takes; by itself an error names the methods of the first one alone."""
    routes = request.app.router.routes
    return [method for method in METHODS if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)]


async def _misunderstood(request: Request, error: Exception) -> Response:
    """Where and why, and not what stood there."""
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    told = tuple(
        {
            "at": ".".join(map(str, item["loc"]))[:_LONGEST_NAME],
            "problem": str(item["msg"]) if item["type"] != "json_invalid" else "no JSON",
        }
        for item in list(found)[:_SHOWN_ERRORS]
    )
    return _problem(request, Problem(status=422, detail="the request is not what is documented at /docs", errors=told))


def _problem(request: Request, problem: Problem) -> Response:
    body = problem.body(request.state.request_id, openai=route_of(request.url.path) in OPENAI)
    return JSONResponse(body, status_code=problem.status, headers=dict(problem.headers), media_type=MEDIA_TYPE)
