"""Clients that are slow, say what is no HTTP, or go on after they were answered, in; their connections, cut off in time, out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import uvicorn

from ragstore.service import connections
from ragstore.service.connections import Connection
from tests.service.conftest import Serving, listening

_HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
_LARGE = 50_000_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As patient as it takes on a busy machine; and, as `ragstore serve` has it, with connections of ours."""
    config = uvicorn.Config
    monkeypatch.setattr(connections, "_PATIENCE", 0.5)
    monkeypatch.setattr(uvicorn, "Config", lambda app, **options: config(app, http=Connection, **options))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server ends the connection."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("said", [b"", b"GET / HT", _HEAD + b"X: "])
async def test_a_client_that_never_finishes_the_head_of_a_request_is_cut_off(serving: Serving, said: bytes) -> None:
    async with serving() as served, listening(served.app) as url, connected(url) as (reader, writer):
        writer.write(said)
        assert await ended(reader) == b""


async def test_a_head_that_comes_byte_by_byte_does_not_keep_a_connection(serving: Serving) -> None:
    async with serving() as served, listening(served.app) as url, connected(url) as (reader, writer):
        writer.write(_HEAD + b"\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")

        async def drip() -> None:
            writer.write(_HEAD)
            while True:
                writer.write(b"X: a\r\n")
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        await ended(reader)
        dripping.cancel()


async def test_who_goes_on_sending_after_the_answer_is_cut_off(serving: Serving) -> None:
    async with serving() as served, listening(served.app) as url, connected(url) as (reader, writer):
        writer.write(b"POST /v1/search HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n{")
        assert (await ended(reader)).startswith(b"HTTP/1.1 401")


async def test_a_connection_in_use_is_left_alone(serving: Serving) -> None:
    async with serving() as served, listening(served.app) as url, connected(url) as (reader, writer):
        for _ in range(8):
            writer.write(_HEAD + b"\r\n")
            assert (await reader.readuntil(b'{"status":"ok"}')).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.2)


async def test_a_client_that_takes_nothing_of_an_answer_is_cut_off_and_a_slow_one_is_not(serving: Serving) -> None:
    async def application(_scope: object, _receive: object, send: Callable[..., object]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[misc]
        await send({"type": "http.response.body", "body": b"x" * _LARGE})  # type: ignore[misc]

    async with listening(application) as url:  # type: ignore[arg-type]
        place = urlsplit(url)

        async def taken(each: float) -> int:
            """How much arrives, where so many seconds go by before each megabyte."""
            loop, size = asyncio.get_running_loop(), 0
            with socket.socket() as client:
                client.settimeout(0)
                await loop.sock_connect(client, (str(place.hostname), place.port or 0))
                await loop.sock_sendall(client, _HEAD + b"\r\n")
                await asyncio.sleep(each)
                try:
                    while part := await loop.sock_recv(client, 1_000_000):
                        size += len(part)
                        await asyncio.sleep(0.05)
                except ConnectionError:
                    pass
            return size

        silent, slow = await asyncio.gather(taken(3), taken(0))
        assert silent < _LARGE < slow


async def test_bytes_that_are_no_http_behind_an_answer_end_the_connection_without_an_error(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as served, listening(served.app) as url, connected(url) as (reader, writer):
        writer.write(b"POST /v1/search HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401")
        writer.write(b"no size of a chunk\r\n")
        await ended(reader)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_what_needs_no_credential_takes_no_large_body_and_leads_nowhere_else(serving: Serving) -> None:
    async with serving() as served:
        assert (await served.http.post("/healthz", content=b"x" * 2000)).status_code == 413
        assert (await served.http.post("/nothing", content=b"x" * 2000)).status_code == 413
        for path in ("/metrics/", "/healthz/", "/docs/"):
            assert (await served.http.get(path)).status_code == 404
