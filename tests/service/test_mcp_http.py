"""The tools over streamable HTTP, with the SDK's own client: each request as the principal that its credential proves, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ragstore.index import AsyncIndex
from ragstore.service.mcp_http import McpRoute
from tests.service.conftest import ADA_CANARY, BOB_CANARY, Served, Serving, token

QUESTION = "who meets when?"
_HELLO = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@asynccontextmanager
async def client(served: Served, authorization: str, mode: Any = "auto") -> AsyncIterator[Client]:
    app: Any = served.http._transport.app  # type: ignore[attr-defined]
    async with (
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), headers={"Authorization": authorization}) as http,
        Client(streamable_http_client("http://ragstore.test/v1/mcp", http_client=http), mode=mode) as connected,
    ):
        yield connected


async def _ask_everything(asker: Client, foreign: str) -> str:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": QUESTION}),
        ("search", {"query": f"{ADA_CANARY} {BOB_CANARY}"}),
        ("search", {"query": "x", "filter": "path = "}),
        ("prompt", {"query": QUESTION}),
        ("fetch", {"id": foreign}),
        ("fetch", {"id": "0" * 32}),
    ]
    results = await asyncio.gather(*(asker.call_tool(name, arguments) for name, arguments in calls))
    assert [result.is_error for result in results] == [False, False, True, False, True, True]
    assert results[4].content == results[5].content
    return repr(results)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_two_who_ask_at_once_never_see_what_the_other_may_read(serving: Serving, mode: str) -> None:
    async with serving() as served:
        index: AsyncIndex = served.index
        of_ada = (await index.search(ADA_CANARY, principal=index.principal("Ada"), filter="path = 'ada.md'"))[0].chunk
        of_bob = (await index.search(BOB_CANARY, principal=index.principal("Bob"), filter="path = 'bob.md'"))[0].chunk
        async with (
            client(served, f"Bearer {token()}", mode) as ada,  # a token of the issuer
            client(served, served.bearer("bob")["Authorization"], mode) as bob,  # an API key
        ):
            asked = [_ask_everything(*each) for each in [(ada, of_bob), (bob, of_ada)] * 3]
            answers = await asyncio.gather(*asked)
        log = served.log.getvalue()
    assert all(ADA_CANARY in answer and "bob.md" not in answer and BOB_CANARY not in answer for answer in answers[::2])
    assert all(BOB_CANARY in answer and "ada.md" not in answer and ADA_CANARY not in answer for answer in answers[1::2])
    assert ADA_CANARY not in log
    assert BOB_CANARY not in log
    assert '"route": "/v1/mcp"' in log


@pytest.mark.parametrize("authorization", ["", "Bearer nonsense", "Bearer " + "x" * 40_000])
async def test_without_a_credential_that_counts_nothing_is_answered(serving: Serving, authorization: str) -> None:
    async with serving() as served:
        headers = {"Authorization": authorization, "Accept": "application/json, text/event-stream", "X-Principal": "ada"}
        answer = await served.http.post("/v1/mcp", json=_HELLO, headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
        assert "tools" not in answer.text


async def test_only_requests_are_taken_and_no_session_is_kept(serving: Serving) -> None:
    async with serving() as served:
        for method in ("GET", "DELETE"):
            assert (await served.http.request(method, "/v1/mcp", headers=served.bearer("ada"))).status_code == 405
        accept = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": "0" * 32, "MCP-Protocol-Version": "2025-06-18"}
        answer = await served.http.post("/v1/mcp", json=_HELLO, headers={**served.bearer("ada"), **accept})
        assert answer.status_code == 200
        assert [tool["name"] for tool in answer.json()["result"]["tools"]] == ["search", "fetch", "prompt"]
        assert "mcp-session-id" not in answer.headers
        large = await served.http.post("/v1/mcp", json={**_HELLO, "params": {"x": "x" * 70_000}}, headers=served.bearer("ada"))
        assert large.status_code == 413


async def test_a_request_that_came_past_the_authentication_is_an_error(serving: Serving) -> None:
    async with serving() as served:
        transport = httpx2.ASGITransport(app=McpRoute(served.index))
        async with (
            httpx2.AsyncClient(transport=transport) as http,
            Client(streamable_http_client("http://ragstore.test/v1/mcp", http_client=http)) as nobody,
        ):
            result = await nobody.call_tool("search", {"query": QUESTION})
    assert result.is_error
    assert ADA_CANARY not in repr(result)
    assert BOB_CANARY not in repr(result)
