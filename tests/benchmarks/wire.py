"""A PostgreSQL on a Unix socket in, another socket before it that counts the bytes of both directions out."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

_SOCKET = ".s.PGSQL.5432"


@dataclass(slots=True)
class Wire:
    """Where to connect to instead, and what has gone through since."""

    url: str
    sent: int = 0
    """Bytes, to the server."""
    received: int = 0

    def reset(self) -> None:
        """Count from here on."""
        self.sent = self.received = 0


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[Wire]:
    """The same database, watched."""
    server = Path(str(make_url(url).query["host"])) / _SOCKET
    with tempfile.TemporaryDirectory(prefix="ragstore-wire-") as folder:
        wire = Wire(make_url(url).update_query_dict({"host": folder}).render_as_string(hide_password=False))

        def out(number: int) -> None:
            wire.sent += number

        def back(number: int) -> None:
            wire.received += number

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            upstream, downstream = await asyncio.open_unix_connection(server)
            await asyncio.gather(_passed(reader, downstream, out), _passed(upstream, writer, back))

        async with await asyncio.start_unix_server(serve, Path(folder) / _SOCKET):
            yield wire


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    while data := await reader.read(2**16):
        count(len(data))
        writer.write(data)
        await writer.drain()
    writer.close()
