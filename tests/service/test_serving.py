"""Limits of a request, what is logged and measured, who may listen where, and the server as a process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from ragstore import config
from ragstore.cli.outcome import Exit, run
from ragstore.config import KeySettings
from ragstore.errors import ConfigError
from ragstore.instrumentation import Instruments
from ragstore.models import Hit
from ragstore.service.addresses import host_of, is_loopback
from ragstore.service.auth import Authenticator
from ragstore.service.keys import ApiKeys, digest_of, new_key
from ragstore.service.limits import RateLimit
from ragstore.service.metrics import Metrics
from ragstore.service.serving import serve
from tests.service.conftest import ADA_CANARY, Serving
from tests.support.workspace import Workspace


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    now = [0.0]
    limit = RateLimit(rate=60, burst=3, clock=lambda: now[0])
    assert [limit.wait("ada") for _ in range(3)] == [0, 0, 0]
    assert limit.wait("ada") == pytest.approx(1)
    assert limit.wait("bob") == 0
    now[0] = 0.5
    assert limit.wait("ada") == pytest.approx(0.5)
    now[0] = 1.0
    assert limit.wait("ada") == 0
    now[0] = 1000.0
    assert [limit.wait("ada") > 0 for _ in range(4)] == [False, False, False, True]


def test_a_rate_of_nothing_is_no_limit() -> None:
    limit = RateLimit(rate=0, burst=1)
    assert {limit.wait("ada") for _ in range(100)} == {0}


def test_a_key_is_known_by_its_digest_alone() -> None:
    key, digest = new_key()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    keys = ApiKeys([KeySettings(principal="ada", hash=digest)])
    assert keys.owner(key) == (True, "ada")
    assert keys.owner(digest) == keys.owner(new_key()[0]) == keys.owner(key.lower()) == keys.owner("") == (False, None)


def test_words_that_people_choose_are_no_keys() -> None:
    assert ApiKeys([KeySettings(principal="ada", hash=digest_of("secret"))]).owner("secret") == (False, None)


def test_a_key_belongs_to_one_principal() -> None:
    digest = new_key()[1]
    with pytest.raises(ConfigError, match="twice"):
        ApiKeys([KeySettings(principal="ada", hash=digest), KeySettings(principal="bob", hash=digest)])


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_this_machine_is_told_from_others(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_host_of_a_header_is_without_its_port() -> None:
    assert [host_of(header) for header in ("a:80", "a", "[::1]:80", "[::1]", "::1", "a:b")] == ["a", "a", "[::1]", "[::1]", "::1", "a:b"]


async def test_too_many_requests_of_one_principal_wait_and_those_of_another_do_not(serving: Serving) -> None:
    async with serving(rate=1, burst=2) as served:
        answers = [await served.post("search", "ada", query="x") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 61
        assert (await served.post("search", "bob", query="x")).status_code == 200


async def test_a_request_that_is_too_large_is_refused_whether_it_says_so_or_not(serving: Serving) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with serving(max_body=2048) as served:
        headers = {**served.bearer("ada"), "Content-Type": "application/json"}
        for content in (b'{"query": "' + b"x" * 5000 + b'"}', parts()):
            assert (await served.http.post("/v1/search", content=content, headers=headers)).status_code == 413
        for length in ("99999999999999999999", "-1", "1e3"):
            assert (await served.http.post("/v1/search", content=b"{}", headers={**headers, "Content-Length": length})).status_code == 413


async def test_an_answer_that_takes_too_long_is_given_up(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_args: object, **_options: object) -> list[Hit]:
        await asyncio.sleep(30)
        return []

    async with serving(timeout=0.2) as served:
        monkeypatch.setattr(served.index, "search", slow)
        answer = await served.post("search", "ada", query="x")
        assert (answer.status_code, answer.headers["content-type"]) == (504, "application/problem+json")


async def test_without_a_valid_credential_nothing_is_answered(serving: Serving) -> None:
    async with serving() as served:
        stranger = new_key()[0]
        for value in (None, "", "Bearer", "Bearer ", "Basic YWRhOg==", f"Bearer {stranger}", f"Bearer {served.keys['ada']}x", "Bearer ada"):
            headers = {} if value is None else {"Authorization": value}
            for answer in (
                await served.http.post("/v1/search", json={"query": "x"}, headers=headers),
                await served.http.post("/v1/prompt", json={"query": "x"}, headers=headers),
                await served.http.get("/v1/chunks/x", headers=headers),
            ):
                assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer"), value
        twice = [("Authorization", f"Bearer {served.keys['ada']}"), ("Authorization", f"Bearer {served.keys['bob']}")]
        assert (await served.http.post("/v1/search", json={"query": "x"}, headers=twice)).status_code == 401
        assert (await served.post("search", "metrics", query="x")).status_code == 403


async def test_metrics_are_for_a_key_that_is_for_metrics(serving: Serving) -> None:
    async with serving() as served:
        await served.post("search", "ada", query=f"board {ADA_CANARY}")
        assert (await served.http.get("/metrics")).status_code == 401
        assert (await served.http.get("/metrics", headers=served.bearer("ada"))).status_code == 401
        text = (await served.http.get("/metrics", headers=served.bearer("metrics"))).text
        assert 'ragstore_answers_total{kind="search"} 1.0' in text
        assert "ragstore_refused_chunks_total" in text
        assert "ragstore_filter_leaks_total 0.0" in text
        assert 'ragstore_http_request_seconds_count{route="/v1/search",status="200"} 1.0' in text
        assert ADA_CANARY not in text
        assert '"ada"' not in text


async def test_a_line_of_log_names_who_asked_and_what_route_and_nothing_that_was_asked(serving: Serving) -> None:
    async with serving() as served:
        answer = await served.http.post(
            "/v1/search?q=secret-word", json={"query": "secret-word"}, headers={**served.bearer("ada"), "X-Request-ID": "req-12345678"}
        )
        await served.http.get("/v1/chunks/secret-word", headers={**served.bearer("bob"), "X-Request-ID": "two words\\n"})
        await served.http.get("/secret-word")
        assert answer.headers["x-request-id"] == "req-12345678"
        lines = served.lines()
        told = [(line["route"], line["status"], line.get("principal")) for line in lines]
        assert told == [("/v1/search", 200, "ada"), ("/v1/chunks/{id}", 404, "bob"), ("other", 404, None)]
        assert lines[0]["id"] == "req-12345678"
        assert re.fullmatch("[0-9a-f]{32}", lines[1]["id"])
        assert "secret-word" not in served.log.getvalue()
        assert served.keys["ada"] not in served.log.getvalue()


async def test_without_credentials_only_this_machine_by_its_own_name_is_answered(serving: Serving, workspace: Workspace) -> None:
    workspace.sections["access"] = {"mode": "open"}
    async with serving(local=True, with_keys=False, tokens=False) as served:
        for host, status in [
            ("127.0.0.1:8000", 200),
            ("localhost", 200),
            ("[::1]:8000", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil", 421),
        ]:
            answer = await served.http.post("/v1/search", json={"query": "x"}, headers={"Host": host})
            assert answer.status_code == status, host


async def test_where_nobody_could_prove_who_asks_nothing_is_served(workspace: Workspace) -> None:
    async with workspace.open() as index:
        with pytest.raises(ConfigError, match="--new-key"):
            Authenticator(index, index.settings.service)
    workspace.sections["service"] = {"keys": [{"principal": "nobody", "hash": new_key()[1]}]}
    async with workspace.open() as index:
        with pytest.raises(ConfigError, match="nobody"):
            Authenticator(index, index.settings.service)


@pytest.mark.parametrize(
    "service",
    [{"keys": [{"hash": "secret"}]}, {"keys": [{"hash": digest_of("x"), "principl": "a"}]}, {"tokens": {"issuer": "x"}}, {"rat": 1}],
)
def test_a_section_that_is_wrong_is_told(tmp_path: Path, service: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="service"):
        config.from_mapping({"access": {"mode": "open"}, "service": service}, base=tmp_path, environ={})


def test_the_example_shows_each_person_what_that_person_may_read(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "http_service.py"
    runpy.run_path(str(example), run_name="__main__")
    out = capsys.readouterr().out
    assert "Ada finds docs/pay.md" in out
    assert "Bob finds docs/keys.md" in out
    assert "Bob asks for what Ada found: there is no such chunk" in out
    assert "Bob's prompt cites docs/keys.md\n" in out


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("alpha words")
    (tmp_path / "ragstore.toml").write_text(
        'source = {type = "folder", path = "docs"}\nembedder = {type = "hash"}\naccess = {mode = "open"}\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_open_access_is_not_given_to_other_machines_unless_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("0.0.0.0", "::"):
        assert run(["serve", "--host", host, "--port", "0"]) == Exit.USAGE
        assert "--allow-open" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_place_that_is_taken_is_an_error_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == Exit.USAGE
    assert "--port" in capsys.readouterr().err


def test_a_new_key_is_shown_once_with_the_digest_that_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--new-key", "--json"]) == Exit.DONE
    made = json.loads(capsys.readouterr().out)
    assert digest_of(made["key"]) == made["hash"]


async def asked_while_it_ends(base: Path) -> None:
    """A process that is told to end while it answers, and that asks itself."""
    workspace = Workspace(base)
    workspace.sections["access"] = {"mode": "open"}
    began, url = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def slow(*_args: object, **_options: object) -> list[Hit]:
        began.set()
        await asyncio.sleep(0.5)
        return []

    async with workspace.open() as index, httpx.AsyncClient() as http:
        index.search = slow  # type: ignore[method-assign]
        registry = CollectorRegistry()
        instruments = Instruments(json_lines=True, stream=io.StringIO(), registry=registry)
        serving = asyncio.create_task(serve(index, instruments=instruments, metrics=Metrics(registry), port=0, listening=url.set_result))
        asking = asyncio.create_task(http.post(f"{await url}/v1/search", json={"query": "x"}))
        await began.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await asking).json() == {"hits": []}
        await serving
        with pytest.raises(httpx.ConnectError):
            await http.get(f"{url.result()}/healthz")
    print("answered")


def test_a_request_under_way_is_answered_before_the_end(tmp_path: Path) -> None:
    """In a process of its own, which may be told to end."""
    code = "import asyncio, pathlib, sys; from tests.service.test_serving import asked_while_it_ends as go; "
    code += "asyncio.run(go(pathlib.Path(sys.argv[1])))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "answered\n", done.stderr


def test_a_server_answers_and_ends_in_good_order(here: Path) -> None:
    assert run(["index", "-q"]) == Exit.DONE
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAGSTORE_")}
    command = [sys.executable, "-c", "from ragstore.cli import main; main()", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert json.load(answer) == {"status": "ready"}
        request = urllib.request.Request(f"{url}/v1/search", b'{"query": "alpha"}', {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert [hit["blob"] for hit in json.load(answer)["hits"]] == ["docs/a.txt"]
        place = urllib.parse.urlsplit(url)
        with socket.create_connection((str(place.hostname), place.port or 0)) as raw:
            raw.sendall(b"no HTTP at all\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert time.monotonic() - began < 15
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == Exit.DONE, log
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert "service.server" in events
    assert (events[0], events[-1], len(events)) == ("service.started", "service.stopped", 5)
