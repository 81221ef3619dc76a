"""More requests than there are places, and a server that is told to end while answers are given, in; what each caller is told, out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest

import ragstore
from ragstore.config import ServiceSettings
from tests.fakes.openai_server import OpenAIServer
from tests.service.conftest import Serving
from tests.support.chatting import REPLY, logged, streamed, user, whole

_RAGSTORE = [sys.executable, "-c", "from ragstore.cli import main; main()"]


# More than there are places.


async def test_requests_beyond_the_places_are_told_to_come_again_and_health_and_metrics_are_not(chatting: Serving) -> None:
    async with chatting(concurrency=2) as talk:
        talk.model.reply, talk.model.pause = "word " * 20, 0.1
        held = [asyncio.create_task((streamed if stream else whole)(talk, "ada")) for stream in (True, False)]
        while len(talk.model.requests) < 2:  # noqa: ASYNC110 - it is asked in other threads
            await asyncio.sleep(0.01)
        headers, http = talk.served.bearer("bob"), talk.served.http
        stranger = {"Authorization": "Bearer " + "x" * 50}
        for answer in (
            await http.post("/v1/search", json={"query": "x"}, headers=headers),
            await http.post("/v1/search", json={"query": "x"}, headers=stranger),
            await http.get("/v1/models", headers=headers),
        ):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["error"]["code"] == "busy"
        with pytest.raises(openai.InternalServerError, match="come again"):
            await whole(talk, "bob")
        for path in ("/healthz", "/readyz", "/metrics", "/"):
            who = "metrics" if path == "/metrics" else "ada"
            assert (await http.get(path, headers=talk.served.bearer(who))).status_code == 200
        assert {line["reason"] for line in talk.served.lines() if line.get("status") == 503} == {"concurrency"}
        await asyncio.gather(*held)
        await logged(talk)
        assert (await http.post("/v1/search", json={"query": "x"}, headers=headers)).status_code == 200


async def test_who_leaves_or_fails_gives_the_place_back(chatting: Serving) -> None:
    async with chatting(concurrency=1) as talk:
        talk.model.reply, talk.model.pause = "word " * 1000, 0.05
        asked = asyncio.create_task(streamed(talk, "ada"))
        while not talk.model.requests:  # noqa: ASYNC110 - it is asked in another thread
            await asyncio.sleep(0.01)
        asked.cancel()
        assert (await logged(talk))["reason"] == "gone"
        for _ in range(3):
            assert (await talk.served.post("search", "ada", query="x", filter="=")).status_code == 400
            assert (await talk.served.post("search", "eve", query="x")).status_code == 200


def test_fifty_clients_fit_by_default() -> None:
    assert ServiceSettings().concurrency >= 4 * 50


# A server that is told to end.


@contextmanager
def _process(base: Path, model: OpenAIServer) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with a second of patience, and its URL."""
    (base / "docs").mkdir()
    (base / "docs" / "board.md").write_text("# Board\n\nThe board meets on Friday.\n")
    lines = ['source = {type = "folder", path = "docs"}', 'embedder = {type = "hash"}', 'access = {mode = "open"}']
    lines += ["[service]", "timeout = 1", "[ask]", f'base_url = "{model.base_url}"', 'model = "m"', 'api_key_env = "MODEL_KEY"']
    (base / "ragstore.toml").write_text("\n".join(lines))
    with ragstore.open(base / "ragstore.toml") as index:
        index.sync()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")} | {"MODEL_KEY": "secret"}
    command = [*_RAGSTORE, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=base, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        finally:
            process.kill()


def test_an_answer_that_outlasts_the_patience_of_the_end_says_so(tmp_path: Path) -> None:
    with OpenAIServer() as model, _process(tmp_path, model) as (process, url):
        model.reply, model.pause = "word " * 1000, 0.1
        told: dict[bool, tuple[int, str]] = {}

        def ask(*, stream: bool) -> None:
            body = {"messages": user("board"), "stream": stream}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
            told[stream] = answer.status_code, answer.text

        asking = [threading.Thread(target=ask, kwargs={"stream": stream}) for stream in (True, False)]
        for thread in asking:
            thread.start()
        while len(model.requests) < 2:
            time.sleep(0.05)
        time.sleep(1)  # some of it has come
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        for thread in asking:
            thread.join(30)
        assert 0.9 < time.monotonic() - began < 15
        assert process.returncode == 0, log
        status, text = told[True]
        *_, last = text.rstrip("\n").split("\n\n")
        assert status == 200
        assert "word" in text
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
        assert "[DONE]" not in text
        assert '"finish_reason": "stop"' not in text
        status, text = told[False]
        assert (status, json.loads(text)["error"]["code"]) == (503, "shutting_down")
        events = [json.loads(line) for line in log.splitlines()]
        assert [event["reason"] for event in events if event["event"] == "http.request"] == ["shutting_down"] * 2
        assert [event["event"] for event in events if event["event"] == "service.server"] == []
        assert events[-1]["event"] == "service.stopped"


def test_an_answer_that_ends_within_that_patience_is_a_whole_one(tmp_path: Path) -> None:
    with OpenAIServer() as model, _process(tmp_path, model) as (process, url):
        model.reply, model.pause = REPLY[:20], 0.05
        found: list[str] = []
        asking = threading.Thread(
            target=lambda: found.append(httpx.post(f"{url}/v1/chat/completions", json={"messages": user("x"), "stream": True}).text)
        )
        asking.start()
        while not model.requests:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        asking.join(30)
        assert found[0].endswith("data: [DONE]\n\n")
