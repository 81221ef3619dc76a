"""Answers of a model in, over a real HTTP server or as text; their words, and what is wrong with their citations, out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.answering import Endpoint, EndpointDownError, check
from ragstore.cli.outcome import Exit
from ragstore.errors import ConfigError, RagstoreError, TransientError
from tests.fakes.openai_server import Failure, OpenAIServer
from tests.support.commands import Ragstore

SOURCES = (
    "Rotate every **access key** after ninety days.",
    "The kitchen serves lentil soup on Mondays. It costs 3.50 euros.",
    "北京的天气今天很好。",
)
MESSAGES = ({"role": "system", "content": "Answer."}, {"role": "user", "content": "When?"})


# Citations and quotations.


@pytest.mark.parametrize(
    ("answer", "statements", "grounded", "wrong"),
    [
        ("Keys are rotated after ninety days [1].", 1, 1, []),
        ("Keys are rotated. [1] Soup is served. [2]", 2, 2, []),
        ("Keys are rotated [1]. Soup is free.", 2, 1, []),
        ("Both [1][2] and [1, 2] are cited.", 1, 1, []),
        ("The moon is cheese [7].", 1, 0, ["[7]"]),
        ("The moon is cheese [0]. It glows [1, 9].", 2, 0, ["[0]", "[1, 9]"]),
        ('It says "rotate every access key" [1].', 1, 1, []),
        ("It says “Rotate every ACCESS key, after  ninety days” [1].", 1, 1, []),
        ('It says "rotate ... ninety days" [1].', 1, 1, []),
        ('It says "ninety days ... rotate every" [1].', 1, 0, ["ninety days ... rotate every"]),
        ('It says "rotate every access key" [2].', 1, 0, ["rotate every access key"]),
        ('It says "rotate every access key" in [2] and in [1].', 1, 0, ["rotate every access key"]),
        ('It says "rotate every access key".', 1, 0, ["rotate every access key"]),
        ('By [1], "rotate every access key".', 1, 1, []),
        ('It says "rotate every access key" [8].', 1, 0, ["rotate every access key", "[8]"]),
        ('The "soup plan" is secret [2].', 1, 1, []),
        ('It says "it costs 3.5 euros" [2].', 1, 0, ["it costs 3.5 euros"]),
        ('It says "serves lentil soup on Mondays. It costs 3.50 euros." [2] So be it.', 2, 1, []),
        ('It says "erves lentil soup" [2].', 1, 0, ["erves lentil soup"]),
        ("天气很好「天气今天很好」[3]。汤很便宜[2]。", 2, 2, []),
        ("天气很好「天气明天很好」[3]。", 1, 0, ["天气明天很好"]),
        ("# Keys\n\nIn short:\n- Rotate them [1]\n- Eat soup\n\nAnything else?", 2, 1, []),
        ("", 0, 0, []),
        ("[1]", 0, 0, []),
    ],
)
def test_a_statement_is_grounded_where_its_sources_exist_and_its_quotations_stand_in_them(
    answer: str, statements: int, grounded: int, wrong: list[str]
) -> None:
    found = check(answer, SOURCES)
    assert (found.statements, found.grounded, [problem.text for problem in found.problems]) == (statements, grounded, wrong)
    assert found.share == (grounded / statements if statements else None)


@given(answer=st.text(st.sampled_from('ab .!?"[]123,;\n“”...'), max_size=80) | st.text())
def test_any_answer_can_be_checked(answer: str) -> None:
    found = check(answer, SOURCES)
    assert 0 <= found.grounded <= found.statements
    json.dumps(found.as_dict())


def test_a_long_answer_takes_no_long_time() -> None:
    for unit in ('"a b c d', "[1", "[1, 1", "a. ", '"a b c" [1] ', "...", "“"):
        check(unit * (20_000 // len(unit)), SOURCES)


@pytest.mark.parametrize(
    "answer",
    [
        "." * 100_000 + "x",
        "!" * 100_000 + '"' * 1000 + "x",
        '"a b c' + " " * 100_000 + 'd" [1]',
        '"a b c" ' * 5000 + "[" + ",".join(["1"] * 20_000) + "]",
        "\n" * 50_000,
    ],
)
def test_a_model_that_repeats_itself_is_checked_in_a_moment(answer: str) -> None:
    """A second is a hundred times what it takes; from each dot or blank anew, it was minutes, in which no other request was answered."""
    began = time.process_time()
    check(answer, SOURCES)
    assert time.process_time() - began < 2


def test_of_very_many_wrong_marks_the_first_are_told() -> None:
    found = check("Cheese [9]. " * 20_000, SOURCES)
    assert (found.statements, found.grounded, len(found.problems)) == (20_000, 0, 1000)


# The endpoint.


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("MODEL_KEY", "secret")
    with OpenAIServer() as server:
        yield server


async def said(server: OpenAIServer, *, base_url: str | None = None, model: str = "m", key: str | None = "MODEL_KEY") -> str:
    endpoint = Endpoint(base_url=base_url or server.base_url, model=model, api_key_env=key, timeout=10)
    return "".join([piece async for piece in endpoint.answer(MESSAGES)])


async def test_a_character_that_comes_in_two_halves_is_one(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n' for text in ("a \\ud83d", "", "\\ude00 b", "\\udc00 c \\ud83d")
    ]
    monkeypatch.setattr(server, "said", lambda _body: ("".join(events) + "data: [DONE]\n\n").encode())
    assert await said(server) == "a \U0001f600 b\ufffd c "


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_comes_whole_from_servers_that_stream_and_that_do_not(server: OpenAIServer, *, streams: bool) -> None:
    server.reply, server.streams = "Nach neunzig Tagen, größer\u2028als\x85 北京 [1].", streams
    assert await said(server) == server.reply
    assert server.requests == [{"model": "m", "messages": list(MESSAGES), "stream": True}]


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (Failure(status=401), ConfigError, "api_key_env"),
        (Failure(status=404), ConfigError, "knows no model"),
        (Failure(status=400, message="too many\ntokens"), ConfigError, "too many tokens"),
        (Failure(status=307, headers={"Location": "http://127.0.0.1:1/"}), ConfigError, "307"),
        (Failure(status=429), TransientError, "busy"),
        (Failure(status=503, body=b"<html>"), TransientError, "busy"),
        (Failure(status=200, body=b"no json"), TransientError, "no JSON"),
        (Failure(status=200, body=b'{"error": {"message": "overloaded"}}'), TransientError, "overloaded"),
    ],
)
async def test_a_failure_says_whether_to_try_again(server: OpenAIServer, failure: Failure, kind: type[RagstoreError], says: str) -> None:
    server.failures.append(failure)
    with pytest.raises(kind, match=says) as caught:
        await said(server)
    assert "secret" not in str(caught.value)


async def test_an_answer_that_ends_in_the_middle_is_no_answer(server: OpenAIServer) -> None:
    server.reply, server.cut = "Keys are rotated after ninety days [1].", True
    with pytest.raises(TransientError, match="middle"):
        await said(server)


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "text/event-stream", b"data: " + b"[" * 200_000 + b"\n\n"),
        (200, "text/event-stream", b"data: " + b"x" * 5_000_000),
        (200, "application/json", b"[" * 200_000),
        (200, "application/json", b" " * 5_000_000),
        (500, "application/json", b"[" * 60_000),
        (500, "application/json", b" " * 5_000_000),
    ],
)
async def test_what_is_no_answer_is_an_outage_however_deep_or_long_it_is(server: OpenAIServer, status: int, kind: str, body: bytes) -> None:
    server.failures = [Failure(status=status, headers={"Content-Type": kind}, body=body)]
    with pytest.raises(EndpointDownError):
        await said(server)


async def test_an_error_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor an answer that comes compressed, asked for."""
    monkeypatch.setenv("MODEL_KEY", "secret")
    asked: list[bytes] = []

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b" " * 65_536)
                await writer.drain()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as listener:
        place = listener.sockets[0].getsockname()[1]
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{place}/v1", model="m", api_key_env="MODEL_KEY", timeout=10)
        async with asyncio.timeout(10):
            with pytest.raises(EndpointDownError, match="HTTP 500"):
                _ = [piece async for piece in endpoint.answer(MESSAGES)]
    assert b"accept-encoding: identity" in asked[0].lower()


async def test_a_server_that_is_away_can_be_tried_again(server: OpenAIServer) -> None:
    with pytest.raises(TransientError, match="reached"):
        await said(server, base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(("base_url", "key"), [("127.0.0.1/v1", None), ("file:///etc", None), ("http://", None), (None, "NO_SUCH_KEY")])
async def test_a_wrong_set_up_is_told_before_anything_is_sent(server: OpenAIServer, base_url: str | None, key: str | None) -> None:
    with pytest.raises(ConfigError):
        await said(server, base_url=base_url, key=key)


# The command.


@pytest.fixture
def asking(server: OpenAIServer, ragstore: Ragstore, docs: Path, groups: None, monkeypatch: pytest.MonkeyPatch) -> Ragstore:
    for name, value in (("BASE_URL", server.base_url), ("MODEL", "m"), ("API_KEY_ENV", "MODEL_KEY")):
        monkeypatch.setenv(f"RAGSTORE_ASK__{name}", value)
    ragstore("index")
    return ragstore


def test_ask_shows_the_answer_and_what_it_cites(asking: Ragstore, server: OpenAIServer) -> None:
    server.reply = 'Soup: "lentil soup on Mondays" [1].'
    ran = asking("ask", "what soup?", "--as", "Bob")
    assert ran.code == Exit.DONE
    assert ran.out.splitlines()[:2] == [server.reply, "--- 1 of 1 statements cite a source (100%) ---"]
    assert "[1] docs/food.md" in ran.out
    found = asking("ask", "what soup?", "--as", "Bob", "--json").json
    assert (found["answer"], found["groundedness"], found["problems"]) == (server.reply, 1.0, [])
    assert found["citations"][0]["blob"] == "docs/food.md"


def test_ask_ends_with_5_where_a_citation_or_a_quotation_is_wrong(asking: Ragstore, server: OpenAIServer) -> None:
    server.reply = 'It is "pea soup on Fridays" [1] and \x1b[31mfree [4].'
    ran = asking("ask", "what soup?", "--as", "Bob")
    assert ran.code == Exit.DIFFERENT
    assert "wrong quotation: pea soup on Fridays: it does not stand in [1]" in ran.out
    assert "wrong citation: [4]" in ran.out
    assert "\x1b" not in ran.out


def test_no_model_sees_what_the_principal_may_not_read(asking: Ragstore, server: OpenAIServer) -> None:
    server.reply = "I do not know."
    asking("ask", "when are access keys rotated?", "--as", "Bob")
    assert "ninety days" not in json.dumps(server.requests)
    sent = len(server.requests)
    ran = asking("ask", "keys", "--as", "Bob", "--filter", "path = 'keys.md'", "--json")
    assert (ran.code, ran.json["answer"], len(server.requests)) == (Exit.DONE, None, sent)
    assert asking("ask", "keys", "--as", "mallory").code == Exit.USAGE
    assert len(server.requests) == sent


def test_ask_says_what_is_missing_or_down(asking: Ragstore, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.failures.append(Failure(status=503))
    ran = asking("ask", "soup", "--as", "Bob", "--json")
    assert (ran.code, ran.out) == (Exit.BUG, "")
    monkeypatch.delenv("RAGSTORE_ASK__MODEL")
    ran = asking("ask", "soup", "--as", "Bob", "--json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "[ask]" in ran.err
