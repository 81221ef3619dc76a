"""`rerank` of a query, over HTTP and MCP, in; that it reaches the service that reranks, and what a caller is told of its faults, out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from mcp import Client

from ragstore.service.mcp import mcp_server
from tests.fakes.rerank_server import Failure, RerankServer
from tests.service.conftest import ADA_CANARY, Serving
from tests.support.chatting import whole
from tests.support.workspace import Workspace


@pytest.fixture
def reranking(workspace: Workspace) -> Iterator[RerankServer]:
    with RerankServer("tei", key=None) as running:
        running.tamper = lambda ranks: [{**rank, "score": rank["index"] / 100} for rank in ranks]
        workspace.sections["reranker"] = {"type": "rerank-api", "style": "tei", "base_url": running.base_url, "attempts": 1}
        yield running


@pytest.mark.parametrize("route", ["search", "prompt"])
async def test_http_reranks_unless_it_is_told_not_to(serving: Serving, reranking: RerankServer, route: str) -> None:
    async with serving() as served:
        answers = [
            (await served.post(route, "bob", query="meets for soup", **said)).json() for said in ({}, {"rerank": True}, {"rerank": False})
        ]
    assert answers[0] == answers[1]
    assert len(reranking.requests) == 2
    assert not any(ADA_CANARY in text for text in reranking.texts)
    shown = "hits" if route == "search" else "citations"
    assert sorted(hit["blob"] for hit in answers[0][shown]) == sorted(hit["blob"] for hit in answers[2][shown])
    if route == "search":
        assert [hit["chunk"] for hit in answers[0]["hits"]] == [hit["chunk"] for hit in reversed(answers[2]["hits"])]


async def test_a_chat_reranks_unless_it_is_told_not_to(chatting: Serving, reranking: RerankServer) -> None:
    async with chatting() as talk:
        answers = [await whole(talk, "bob", "meets for soup", extra_body=said) for said in ({}, {"rerank": True}, {"rerank": False})]
    assert len(reranking.requests) == 2
    assert not any(ADA_CANARY in text for text in reranking.texts)
    orders = [[source["blob"] for source in answer.citations] for answer in answers]
    assert orders[0] == orders[1] == orders[2][::-1]


async def test_mcp_reranks_unless_it_is_told_not_to(serving: Serving, reranking: RerankServer) -> None:
    async with serving() as served, Client(mcp_server(served.index, lambda _context: served.index.principal("bob"))) as client:
        orders: list[list[Any]] = []
        for said in ({}, {"rerank": False}):
            result = await client.call_tool("search", {"query": "meets for soup", **said})
            assert result.structured_content is not None
            orders.append([hit["chunk"] for hit in result.structured_content["hits"]])
    assert orders[0] == orders[1][::-1]
    assert len(reranking.requests) == 1


async def test_a_caller_who_asks_for_what_is_not_there_is_told_so(serving: Serving) -> None:
    async with serving() as served:
        answer = await served.post("search", "bob", query="soup", rerank=True)
    assert answer.status_code == 400
    assert "no reranker" in answer.json()["detail"]


async def test_who_asks_for_it_in_a_chat_is_told_so_too(chatting: Serving) -> None:
    async with chatting() as talk:
        with pytest.raises(openai.BadRequestError, match="no reranker"):
            await whole(talk, "bob", "soup", extra_body={"rerank": True})
        with pytest.raises(openai.BadRequestError) as caught:
            await whole(talk, "bob", "soup", extra_body={"rerank": "yes"})
        assert caught.value.param == "rerank"
        assert talk.model.requests == []


async def test_a_service_that_is_down_is_not_the_callers_affair(serving: Serving, reranking: RerankServer) -> None:
    async with serving() as served:
        reranking.failures = [Failure(status=503)]
        down = (await served.post("search", "bob", query="meets for soup")).json()
        plain = (await served.post("search", "bob", query="meets for soup", rerank=False)).json()
    assert down == plain


async def test_a_refused_key_is_for_the_log_and_not_for_the_caller(serving: Serving, reranking: RerankServer) -> None:
    async with serving() as served:
        reranking.key = "secret"
        answer = await served.post("search", "bob", query="meets for soup")
    assert answer.status_code == 503
    assert reranking.base_url not in answer.text
    assert "ConfigError" in json.dumps(served.lines())


async def test_readiness_means_that_it_is_built(serving: Serving, reranking: RerankServer, workspace: Workspace) -> None:
    async with serving() as served:
        assert (await served.http.get("/readyz")).status_code == 200
        assert served.index._assembly._reranker is not None
    workspace.sections["reranker"] = {"type": "rerank-api", "style": "tei", "base_url": "nowhere"}
    async with serving() as served:
        assert (await served.http.get("/readyz")).status_code == 503
