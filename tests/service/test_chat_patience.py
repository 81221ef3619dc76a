"""A model's service that is away, silent or endlessly slow in; that its callers wait no longer than is set, and why it was, out."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import openai
import pytest

from tests.service.conftest import Chatting, Serving
from tests.support.chatting import REPLY, logged, streamed, user, whole


def _down(talk: Chatting) -> list[tuple[str, Any]]:
    return [(line["kind"], line["status"]) for line in talk.served.lines() if line["event"] == "chat.down"]


async def _raw(talk: Chatting) -> str:
    """All of a stream as it comes, comments included."""
    async with httpx.AsyncClient(timeout=30) as http:
        body = {"messages": user("board"), "stream": True}
        return (await http.post(f"{talk.url}/v1/chat/completions", json=body, headers=talk.served.bearer("ada"))).text


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_says_nothing_is_waited_for_as_long_as_ask_timeout(chatting: Serving, *, stream: bool) -> None:
    async with chatting(ask={"timeout": 1.5}, concurrency=1) as talk:
        talk.model.silent = 1
        began = asyncio.get_running_loop().time()
        with pytest.raises(openai.InternalServerError) as caught:
            await (streamed if stream else whole)(talk, "ada")
        assert asyncio.get_running_loop().time() - began < 10
        assert (caught.value.status_code, caught.value.code) == (504, "model_timeout")
        assert _down(talk) == [("timeout", None)]
        assert await asyncio.to_thread(talk.model.gone.wait, 5)
        await logged(talk)
        talk.model.reply = REPLY
        assert (await whole(talk, "ada")).choices[0].message.content == REPLY  # its place is free again


@pytest.mark.parametrize("how", ["silent", "trickles"])
async def test_a_model_that_never_ends_is_left_after_chat_timeout_and_its_caller_sees_signs_of_life_until_then(
    chatting: Serving, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("ragstore.service.chat._PULSE", 0.2)
    async with chatting(chat={"timeout": 3.0}, concurrency=1) as talk:
        setattr(talk.model, how, 1)
        talk.model.pause = 0.1
        raw = await asyncio.wait_for(_raw(talk), 20)
        assert raw.count(": still there\n\n") >= 3
        assert raw.endswith("}\n\n")
        assert '"code": "timeout"' in raw.splitlines()[-2]
        assert "[DONE]" not in raw
        assert await asyncio.to_thread(talk.model.gone.wait, 5)
        assert (await logged(talk))["reason"] == "timeout"
        talk.model.pause, talk.model.reply = 0, REPLY
        assert (await whole(talk, "ada")).choices[0].message.content == REPLY


async def test_a_model_that_trickles_is_left_where_the_answer_is_wanted_whole(chatting: Serving) -> None:
    async with chatting(chat={"timeout": 3.0}, ask={"timeout": 1.5}) as talk:
        talk.model.trickles, talk.model.pause = 1, 0.1  # never silent for long enough to be given up for that
        with pytest.raises(openai.InternalServerError) as caught:
            await whole(talk, "ada")
        assert (caught.value.status_code, caught.value.code) == (504, "timeout")
        assert await asyncio.to_thread(talk.model.gone.wait, 5)


async def test_the_log_says_whether_a_model_is_away_or_broke_off_and_quotes_nothing(chatting: Serving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        nobody = f"http://127.0.0.1:{place.getsockname()[1]}/v1"
    async with chatting(ask={"base_url": nobody}) as talk:
        with pytest.raises(openai.InternalServerError, match="cannot answer now"):
            await whole(talk, "ada")
        assert _down(talk) == [("connect", None)]
        assert "127.0.0.1" not in talk.served.log.getvalue()
        assert (await logged(talk))["reason"] == "model_connect"
    async with chatting() as talk:
        talk.model.reply, talk.model.cut = REPLY, True
        for torn in (False, True):
            talk.model.torn = torn
            with pytest.raises(openai.InternalServerError, match="broke off"):
                await whole(talk, "ada")
        assert _down(talk) == [("broke_off", None)] * 2
