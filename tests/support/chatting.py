"""Questions put to a running service by OpenAI's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk

    from tests.service.conftest import Chatting

REPLY = "The board meets on Friday [1]. “The board meets on Friday” is what it says [1]. It is 北京 \U0001f600 there [9]."


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def streamed(talk: Chatting, who: str, text: str = "When does the board meet?", **options: Any) -> list[ChatCompletionChunk]:
    async with talk.client(who) as client:
        return [chunk async for chunk in await client.chat.completions.create(model="m", messages=user(text), stream=True, **options)]


async def whole(talk: Chatting, who: str, text: str = "When does the board meet?", **options: Any) -> Any:
    async with talk.client(who) as client:
        return await client.chat.completions.create(model="m", messages=user(text), **options)


async def collect(stream: AsyncIterable[ChatCompletionChunk], seen: list[ChatCompletionChunk]) -> None:
    """What comes before an error, too."""
    async for chunk in stream:
        seen.append(chunk)  # noqa: PERF401


def said(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def logged(talk: Chatting) -> dict[str, Any]:
    """The line of log about the last request; it is written when the caller has the answer already."""
    for _ in range(500):
        if lines := [line for line in talk.served.lines() if line["event"] == "http.request"]:
            return lines[-1]
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was logged")
