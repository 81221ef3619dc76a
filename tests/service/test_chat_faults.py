"""What is wrong with a request, or goes wrong with the model, in; errors that OpenAI's own client understands out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.fakes.openai_server import Failure
from tests.service.conftest import ADA_CANARY, Serving
from tests.support.chatting import REPLY, collect, logged, said, streamed, user, whole

_REFUSED: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "response_format.type", "unsupported_parameter"),
    ({"modalities": ["text", "audio"], "audio": {"voice": "x"}}, "modalities", "unsupported_parameter"),
    ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages.0.content", None),
    ({"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]}, "messages.0.role", "unsupported_role"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages.0.tool_calls", "unsupported_parameter"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, None, None),
    ({"messages": [{"role": "user", "content": "  "}]}, None, None),
    ({"messages": [{"role": "user", "content": "x" * 9000}]}, None, None),
    ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages.0.content", None),
    ({"messages": [{"role": "user", "content": "x" * 70_000}]}, "messages.0.content", None),
    ({"messages": [{"role": "system", "content": "word " * 5000}, *user("x")]}, None, None),
    ({"messages": [{"role": "developer", "content": "word " * 12_000}, *user("x")]}, None, None),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "x"}, "messages", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"max_tokens": 10**400}, "max_tokens", "invalid_value"),
    ({"seed": 2**70}, "seed", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"filter": "path ="}, None, None),
    ({"conversation": "../x"}, "conversation", "invalid_value"),
]


# What is refused.


async def test_what_is_not_supported_or_wrong_is_told_as_openai_tells_it(chatting: Serving) -> None:
    async with chatting() as talk:
        headers = {**talk.served.bearer("ada"), "Content-Type": "application/json"}
        for body, param, code in _REFUSED:
            content = json.dumps({"model": "m", "messages": user("x"), **body})
            answer = await talk.served.http.post("/v1/chat/completions", content=content, headers=headers)
            error = answer.json()["error"]
            assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), (body, answer.text)
            assert (error["param"] or "").startswith(param or "")
            assert param is None or error["param"] is not None
            assert code is None or error["code"] == code
            assert error.keys() == {"message", "type", "param", "code"}
        assert talk.model.requests == []


async def test_a_body_that_is_no_text_is_no_fault_of_the_service(chatting: Serving) -> None:
    async with chatting() as talk:
        headers = {**talk.served.bearer("ada"), "Content-Type": "application/json"}
        lone = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
        for content in (b"", b"{", b"[" * 5000, b"\xff\xfe", lone, b'{"messages": [], "temperature": NaN}', b"null", b"[]"):
            answer = await talk.served.http.post("/v1/chat/completions", content=content, headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error"), answer.text
        headers["Content-Type"] = "text/plain"
        assert (await talk.served.http.post("/v1/chat/completions", content=b"{}", headers=headers)).status_code == 415


async def test_limits_of_the_service_hold_and_are_told_as_openai_tells_them(chatting: Serving) -> None:
    async with chatting(chat={"max_body": 2048}, rate=1, burst=2) as talk:
        async with talk.client("ada") as client:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(model="m", messages=user("x" * 3000))
            assert caught.value.status_code == 413
            await client.chat.completions.create(model="m", messages=user("x"))
            with pytest.raises(openai.RateLimitError, match="too many requests"):
                await client.chat.completions.create(model="m", messages=user("x"))
        talk.served.keys["stranger"] = "rs_" + "x" * 43
        for who, error in (("stranger", openai.AuthenticationError), ("metrics", openai.PermissionDeniedError)):
            with pytest.raises(error):
                await whole(talk, who)


async def test_earlier_messages_may_be_longer_than_a_question(chatting: Serving) -> None:
    async with chatting() as talk, talk.client("ada") as client:
        long: list[Any] = [{"role": role, "content": f"{role} " + "word " * 10_000} for role in ("user", "assistant")] * 5
        talk.model.reply = "Yes."
        short: list[Any] = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "second"}]
        await client.chat.completions.create(model="m", messages=[*long, *short, *user("When does the board meet?")])
        assert [message["content"] for message in talk.model.requests[-1]["messages"][1:3]] == ["first", "second"]


# What can go wrong with the model.


@pytest.mark.parametrize(
    ("status", "told", "code"),
    [(429, 429, "model_busy"), (500, 502, "model_unavailable"), (503, 502, "model_unavailable"), (401, 502, "model_refused"),
     (404, 502, "model_refused"), (400, 400, "model_refused"), (302, 400, None)],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_of_the_model_is_told_without_its_words(
    chatting: Serving, status: int, told: int, code: str | None, *, stream: bool
) -> None:
    async with chatting() as talk:
        headers = {"Retry-After": "17", "Location": "http://127.0.0.1:9/"}
        talk.model.failures.append(Failure(status=status, message="sk-upstream-key and halyard", headers=headers))
        with pytest.raises(openai.APIStatusError) as caught:
            await (streamed if stream else whole)(talk, "ada")
        assert (caught.value.status_code, caught.value.code) == (told if status != 302 else 502, code or "model_refused")
        everything = caught.value.response.text + talk.served.log.getvalue()
        assert not any(word in everything for word in ("halyard", "sk-upstream", "127.0.0.1", "MODEL_KEY", ADA_CANARY))
        assert caught.value.response.headers.get("retry-after") == ("17" if status in {429, 500, 503} else None)
        line = await logged(talk)
        assert (line["route"], line["status"], line["reason"]) == ("/v1/chat/completions", caught.value.status_code, f"model_{status}")
        [down] = [line for line in talk.served.lines() if line["event"] == "chat.down"]
        assert (down["kind"], down["status"]) == ("busy" if status == 429 or status >= 500 else "refused", status)


@pytest.mark.parametrize("how", ["cut", "torn"])
async def test_a_model_that_dies_in_the_middle_ends_the_stream_with_an_error_and_no_finish(chatting: Serving, how: str) -> None:
    async with chatting() as talk:
        talk.model.reply = REPLY
        setattr(talk.model, how, True)
        if how == "torn":
            talk.model.cut = True
        seen: list[ChatCompletionChunk] = []
        async with talk.client("ada") as client:
            stream = await client.chat.completions.create(model="m", messages=user("board"), stream=True)
            with pytest.raises(openai.APIError, match="broke off"):
                await collect(stream, seen)
        assert said(seen)
        assert REPLY.startswith(said(seen))
        assert not any(chunk.choices[0].finish_reason for chunk in seen)
        assert (await logged(talk))["reason"].startswith("model_")
        with pytest.raises(openai.InternalServerError, match="broke off"):
            await whole(talk, "ada")


async def test_a_model_that_repeats_one_mark_makes_no_answer_of_many_times_its_size(chatting: Serving) -> None:
    async with chatting() as talk:
        talk.model.reply = "[1]" * 5000 + "[" + ",".join(["1"] * 5000) + "]"
        answer = await whole(talk, "ada")
        assert (answer.choices[0].message.content, answer.citations[0]["cited"]) == (talk.model.reply, True)
        assert len(answer.choices[0].message.annotations) == 1000


async def test_an_answer_that_takes_too_long_is_given_up_and_the_model_is_left(chatting: Serving) -> None:
    async with chatting(chat={"timeout": 1.0}) as talk:
        talk.model.reply, talk.model.pause = "word " * 100, 0.1
        with pytest.raises(openai.APIError, match="too long"):
            await streamed(talk, "ada")
        with pytest.raises(openai.InternalServerError) as caught:
            await whole(talk, "ada")
        assert (caught.value.status_code, caught.value.code) == (504, "timeout")
        assert await asyncio.to_thread(talk.model.gone.wait, 5)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_who_leaves_ends_the_models_answer(chatting: Serving, *, stream: bool) -> None:
    async with chatting() as talk:
        talk.model.reply, talk.model.pause = "word " * 1000, 0.05
        asked = asyncio.create_task((streamed if stream else whole)(talk, "ada"))
        await asyncio.sleep(0.7)
        asked.cancel()
        assert await asyncio.to_thread(talk.model.gone.wait, 5)
        line = await logged(talk)
        assert (line["reason"], line["status"]) == ("gone", 200 if stream else 499)


async def test_an_error_of_ours_in_the_middle_is_no_finish_either(chatting: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_args: object) -> None:
        raise RuntimeError(ADA_CANARY)

    async with chatting() as talk:
        monkeypatch.setattr("ragstore.service.chat.check", failing)
        talk.model.reply = "Yes [1]."
        with pytest.raises(openai.APIError, match="nobody foresaw") as caught:
            await streamed(talk, "ada")
        await logged(talk)
        assert ADA_CANARY not in str(caught.value)
        assert ADA_CANARY not in talk.served.log.getvalue()
        assert "test_chat_faults.py" in talk.served.log.getvalue()


async def test_why_an_answer_ended_is_told(chatting: Serving) -> None:
    async with chatting() as talk:
        talk.model.reply = "Half of it"
        for reason, told in (("length", "length"), ("content_filter", "content_filter"), ("tool_calls", "stop"), (None, "stop")):
            talk.model.finish = reason
            assert (await whole(talk, "ada")).choices[0].finish_reason == told
            assert (await streamed(talk, "ada"))[-1].choices[0].finish_reason == told


async def test_a_server_that_does_not_stream_is_a_model_too(chatting: Serving) -> None:
    async with chatting() as talk:
        talk.model.reply, talk.model.streams = REPLY, False
        assert (await whole(talk, "ada")).usage.total_tokens == 13
        assert said(await streamed(talk, "ada")) == REPLY


async def test_an_answer_of_nothing_is_a_whole_answer(chatting: Serving) -> None:
    async with chatting() as talk:
        assert (await whole(talk, "ada")).grounding["groundedness"] is None
        chunks = await streamed(talk, "ada")
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "stop"]


async def test_metrics_name_the_routes_and_no_ids(chatting: Serving) -> None:
    async with chatting() as talk:
        await whole(talk, "ada")
        await logged(talk)
        await talk.served.http.get("/v1/models/secret-word", headers=talk.served.bearer("ada"))
        text = (await talk.served.http.get("/metrics", headers=talk.served.bearer("metrics"))).text
        assert 'route="/v1/chat/completions",status="200"} 1.0' in text
        assert 'route="/v1/models/{id}",status="404"} 1.0' in text
        assert "secret-word" not in text
