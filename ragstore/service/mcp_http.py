"""An HTTP request whose caller is known in; the answer of the Model Context Protocol server (streamable HTTP) out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ragstore.models import Principal

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext
    from starlette.types import Receive, Scope, Send

    from ragstore.index import AsyncIndex

PATH: Final = "/v1/mcp"


class McpRoute:
    """An ASGI application for one route, behind `Front`, which has put the principal of the credential into the request's state.

    It keeps no sessions: each request stands alone, is answered as JSON and proves anew who asks, so that no credential can go on with what
    another one began. The SDK, which takes a second, is imported at the first request.
    """

    def __init__(self, index: AsyncIndex) -> None:
        self._index = index
        self._server: Server[Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._server is None:
            self._server = await asyncio.to_thread(_server, self._index)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # One for each request, because one that is shared must be run for as long as the application.
        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def _server(index: AsyncIndex) -> Server[Any]:
    from ragstore.service.mcp import mcp_server

    return mcp_server(index, _principal)


def _principal(context: ServerRequestContext[Any, Any]) -> Principal:
    """As the credential of this request proved it. Without one it is an error, and never an answer."""
    request = context.request
    principal = getattr(getattr(request, "state", None), "principal", None)
    if not isinstance(principal, Principal):
        raise TypeError("a request came past its authentication")
    return principal
