"""Requests for Azurite in; its answers, with the faults that a test asked for, out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked for."""

    method: str
    target: str
    """Path and query, as sent."""
    headers: Mapping[str, str]
    """Names in lower case."""

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.target).query, keep_blank_values=True).items()}

    @property
    def is_listing(self) -> bool:
        return self.query.get("comp") == "list"

    @property
    def is_tags(self) -> bool:
        return self.query.get("comp") == "tags"

    @property
    def is_download(self) -> bool:
        return self.method == "GET" and not self.query.get("comp")

    @property
    def range(self) -> str:
        return self.headers.get("x-ms-range", self.headers.get("range", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What the service answered, or a fault in its place."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def refusal(status: int, code: str, message: str = "refused by the test", headers: Mapping[str, str] | None = None) -> Response:
    """An error as the storage service words it."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()
    return Response(status=status, headers={"x-ms-error-code": code, "Content-Type": "application/xml", **(headers or {})}, body=body)


@dataclass(slots=True, kw_only=True)
class Fault:
    """What to do with requests that match, so many times."""

    matches: Callable[[Request], bool]
    times: int = 1
    answer: Response | None = None
    """Sent instead of asking the service."""
    before: Callable[[], Awaitable[None]] | None = None
    """Done before the service is asked."""
    rewrite: Callable[[Response], Response] | None = None
    """Applied to the service's answer."""
    cut_after: int | None = None
    """The connection is dropped after so many bytes of the body."""


class AzureProxy:
    """Listens on a free port of 127.0.0.1; a client uses it as the blob endpoint in Azurite's place."""

    def __init__(self, upstream_port: int) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.port = 0
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def add(self, fault: Fault) -> None:
        """The first fault that matches and is not used up is applied."""
        self.faults.append(fault)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(connection)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, then the connection ends: nothing here is about keep-alive."""
        first, headers = await _read_head(reader)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, _version = first.split(" ", 2)
        request = Request(method=method, target=target, headers=headers)
        self.requests.append(request)
        fault = next((one for one in self.faults if one.times > 0 and one.matches(request)), None)
        if fault is not None:
            fault.times -= 1
            if fault.before is not None:
                await fault.before()
        response = fault.answer if fault is not None and fault.answer is not None else await self._ask(first, headers, body, method)
        if fault is not None and fault.rewrite is not None:
            response = fault.rewrite(response)
        await _send(writer, response, method, cut_after=fault.cut_after if fault is not None else None)

    async def _ask(self, first: str, headers: Mapping[str, str], body: bytes, method: str) -> Response:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        try:
            sent = {**headers, "connection": "close"}
            writer.write(f"{first}\r\n{''.join(f'{name}: {value}{_EOL}' for name, value in sent.items())}\r\n".encode("latin-1") + body)
            await writer.drain()
            status, answered = await _read_head(reader)
            content = b"" if method == "HEAD" else await _read_body(reader, answered)
        finally:
            writer.close()
            await writer.wait_closed()
        return Response(status=int(status.split(" ")[1]), headers=answered, body=content)


_EOL = "\r\n"


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        return b"".join(pieces)
    return await reader.readexactly(int(headers.get("content-length", "0")))


async def _send(writer: asyncio.StreamWriter, response: Response, method: str, *, cut_after: int | None) -> None:
    framing = {"transfer-encoding", "connection", "keep-alive", *(() if method == "HEAD" else ("content-length",))}
    kept = {name: value for name, value in response.headers.items() if name.lower() not in framing}
    if method != "HEAD":
        kept["content-length"] = str(len(response.body))
    head = f"HTTP/1.1 {response.status} Proxied\r\n" + "".join(f"{name}: {value}\r\n" for name, value in kept.items())
    writer.write(f"{head}connection: close\r\n\r\n".encode("latin-1"))
    if method != "HEAD":
        writer.write(response.body if cut_after is None else response.body[:cut_after])
    await writer.drain()


def with_headers(extra: Mapping[str, str]) -> Callable[[Response], Response]:
    """A rewrite that adds headers."""
    return lambda response: replace(response, headers={**response.headers, **extra})


def with_text(old: str, new: str) -> Callable[[Response], Response]:
    """A rewrite that replaces text in the body."""
    return lambda response: replace(response, body=response.body.decode().replace(old, new).encode())
