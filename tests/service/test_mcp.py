"""`ragstore mcp` as a process, asked by the SDK's own client over stdin and stdout: one principal, three tools, no word of the rest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

import ragstore
from ragstore.cli.outcome import Exit, run
from ragstore.errors import AccessError, ConfigError, StoreDamagedError, TransientError
from ragstore.models import Principal
from ragstore.service.mcp import mcp_server, serve_stdio

CANARY = "canary-4711"
QUESTION = "when do salaries rise?"
_PROGRAM = ["-c", "from ragstore.cli import main; main()"]


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("mcp")
    (base / "docs").mkdir()
    (base / "docs" / "keys.md").write_text(
        "# Keys\n\nEvery access key is replaced after ninety days; salaries rise elsewhere. \u4f60\u597d \u202e\n"
    )
    (base / "docs" / "pay.md").write_text(f"# Pay\n\nSalaries rise by three percent in April. {CANARY}\n")
    (base / "tags.json").write_text(json.dumps({"keys.md": {"allow": "staff"}, "pay.md": {"allow": "hr"}}))
    _let_ask(base, "ada", "bob")
    file = base / "ragstore.toml"
    file.write_text(
        'source = {type = "folder", path = "docs", tags = "tags.json"}\nembedder = {type = "hash"}\n'
        'access = {mode = "groups", tag_key = "allow", principals = "principals.json"}\n'
    )
    with ragstore.open(file) as index:
        index.sync()
    return file


def _let_ask(base: Path, *names: str) -> None:
    groups = {"ada": ["staff", "hr"], "bob": ["staff"], "eve": []}
    people = [{"id": name, "name": name.title(), "groups": groups[name]} for name in names]
    (base / "principals.json").write_text(json.dumps(people))


@pytest.fixture
def pay(configuration: Path) -> str:
    """The id of the chunk that Bob may not read."""
    with ragstore.open(configuration) as index:
        return index.search(QUESTION, principal=index.principal("Ada"))[0].chunk


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "log").open("w+", encoding="utf-8") as file:
        yield file


@asynccontextmanager
async def client(configuration: Path, who: str, log: TextIO) -> AsyncIterator[Client]:
    """Connected to a server that was started as a desktop starts one: in a folder of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAGSTORE_")}
    server = StdioServerParameters(
        command=sys.executable,
        args=[*_PROGRAM, "mcp", "--as", who, "--config", str(configuration)],
        env=environment,
        cwd=tempfile.gettempdir(),
    )
    async with Client(stdio_client(server, errlog=log), read_timeout_seconds=60) as connected:
        yield connected


def _text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


async def test_three_tools_answer_as_the_principal_and_as_search_does(configuration: Path, log: TextIO) -> None:
    async with client(configuration, "Ada", log) as ada:
        tools = {tool.name: tool for tool in (await ada.list_tools()).tools}
        assert list(tools) == ["search", "fetch", "prompt"]
        assert all(tool.annotations and tool.annotations.read_only_hint and tool.output_schema for tool in tools.values())
        assert not any("principal" in tool.input_schema["properties"] for tool in tools.values())
        found = (await ada.call_tool("search", {"query": QUESTION})).structured_content
        with ragstore.open(configuration) as index:
            assert found == {"hits": [hit.as_dict() for hit in index.search(QUESTION, principal=index.principal("Ada"))]}
        assert [hit["blob"] for hit in found["hits"]] == ["docs/pay.md", "docs/keys.md"]
        one = await ada.call_tool("fetch", {"id": found["hits"][0]["chunk"]})
        assert CANARY in one.structured_content["text"]
        assert json.loads(_text(one)) == one.structured_content
        prompt = (await ada.call_tool("prompt", {"query": QUESTION, "max_tokens": 900})).structured_content
        assert [message["role"] for message in prompt["messages"]] == ["system", "user"]
        assert prompt["citations"][0]["blob"] == "docs/pay.md"
        assert prompt["tokens"] <= 900
        narrowed = (await ada.call_tool("search", {"query": QUESTION, "limit": 1, "filter": "path = 'keys.md'"})).structured_content
        assert [hit["blob"] for hit in narrowed["hits"]] == ["docs/keys.md"]


async def test_no_answer_no_error_and_no_line_of_log_holds_what_the_principal_may_not_read(
    configuration: Path, pay: str, log: TextIO
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": QUESTION, "limit": 50}),
        ("search", {"query": CANARY}),
        ("search", {"query": "pay", "filter": "path = 'pay.md'"}),
        ("search", {"query": "pay", "filter": "path ="}),
        ("search", {"query": " ", "limit": 1}),
        ("search", {"query": "pay", "limit": 0}),
        ("search", {"query": "pay", "principal": "ada"}),
        ("search", {}),
        ("fetch", {"id": pay}),
        ("fetch", {"id": "no such chunk"}),
        ("fetch", {"id": "'; --"}),
        ("prompt", {"query": QUESTION}),
        ("prompt", {"query": QUESTION, "max_tokens": 1}),
    ]
    async with client(configuration, "Bob", log) as bob:
        results = await asyncio.gather(*(bob.call_tool(name, arguments) for name, arguments in calls))
        with pytest.raises(MCPError, match="known: search, fetch, prompt"):
            await bob.call_tool("purge", {"blob": "docs/pay.md"})
        listed = await bob.list_tools()
    log.seek(0)
    everything = f"{[result.model_dump_json() for result in results]} {listed} {log.read()}"
    assert CANARY not in everything.replace(json.dumps(CANARY), "")
    assert "pay.md" not in everything
    assert [result.is_error for result in results] == [False, False, False, True, True, True, True, True, True, True, True, False, True]
    absent, forbidden = _text(results[9]), _text(results[8])
    assert absent == forbidden
    assert "limit: " in _text(results[5])
    assert "principal: Extra inputs are not permitted" in _text(results[6])


async def test_whoever_is_taken_out_of_the_file_of_principals_is_shown_nothing_from_then_on(configuration: Path, log: TextIO) -> None:
    try:
        async with client(configuration, "Ada", log) as ada:
            assert not (await ada.call_tool("search", {"query": QUESTION})).is_error
            _let_ask(configuration.parent, "bob")
            refused = await ada.call_tool("search", {"query": QUESTION})
    finally:
        _let_ask(configuration.parent, "ada", "bob")
    assert refused.is_error
    assert CANARY not in _text(refused)
    log.seek(0)
    assert "Ada" in log.read()  # the log says why; the client is told to look there
    assert "Ada" not in _text(refused)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TransientError(f"the store at https://store.example is away, {CANARY}"), "not there now"),
        (AccessError(f"assignments.json line 7, {CANARY}"), "not there now"),
        (StoreDamagedError(f"lost, {CANARY}"), "not there now"),
        (ValueError(CANARY), "nobody foresaw"),
    ],
)
async def test_an_error_that_is_not_the_questions_is_told_without_its_text(
    configuration: Path, error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise error

    async with ragstore.open_async(configuration) as index:
        monkeypatch.setattr(index, "search", fails)
        async with Client(mcp_server(index, lambda _context: index.principal("Ada"))) as ada:
            result = await ada.call_tool("search", {"query": QUESTION})
    assert result.is_error
    assert told in _text(result)
    assert CANARY not in _text(result)


async def test_a_call_of_nobody_is_an_error(configuration: Path) -> None:
    def nobody(_context: object) -> Principal:
        raise AccessError("nobody asks")

    async with ragstore.open_async(configuration) as index, Client(mcp_server(index, nobody)) as anybody:
        for name, arguments in {"search": {"query": QUESTION}, "prompt": {"query": QUESTION}, "fetch": {"id": "0" * 32}}.items():
            result = await anybody.call_tool(name, arguments)
            assert (result.is_error, result.structured_content) == (True, None)


def _run(configuration: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *_PROGRAM, "mcp", "--config", str(configuration), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


async def test_a_client_of_the_protocol_before_2026_is_served_too(configuration: Path) -> None:
    async with ragstore.open_async(configuration) as index:
        server = mcp_server(index, lambda _context: index.principal("Bob"))
        async with Client(server, mode="legacy") as bob:
            found = (await bob.call_tool("search", {"query": QUESTION})).structured_content
    assert [hit["blob"] for hit in found["hits"]] == ["docs/keys.md"]


async def test_without_a_principal_nothing_is_served(configuration: Path) -> None:
    async with ragstore.open_async(configuration) as index:
        with pytest.raises(ConfigError):
            await serve_stdio(index, None)


def test_an_unknown_principal_is_a_wrong_usage_in_one_line(configuration: Path) -> None:
    ran = _run(configuration, "--as", "Mallory", given='{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n')
    assert (ran.returncode, ran.stdout) == (Exit.USAGE, "")
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(
    configuration: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ragstore.service.mcp")
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert run(["mcp", "--as", "Ada", "--config", str(configuration)]) == Exit.USAGE
    assert "pip install 'ragstore[mcp]'" in capsys.readouterr().err


def test_it_ends_when_the_client_goes_whatever_it_said(configuration: Path) -> None:
    ran = _run(configuration, "--as", "Ada", given="no JSON\n{}\n[]\n\x00\n")
    assert ran.returncode == Exit.DONE
    assert CANARY not in ran.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_waits(configuration: Path, number: signal.Signals) -> None:
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heed + _PROGRAM[1], "mcp", "--config", str(configuration), "--as", "Ada"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n")
            process.stdin.flush()
            assert "ragstore" in process.stdout.readline()
            process.send_signal(number)
            assert process.wait(timeout=30) == -number
        finally:
            process.kill()
