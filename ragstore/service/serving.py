"""An index and a place to listen at in; a server that answers there until it is asked to end out."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError
from typing_extensions import override
from uvicorn import Config, Server

from ragstore.errors import ConfigError, RagstoreError
from ragstore.service.addresses import is_loopback
from ragstore.service.app import build
from ragstore.service.auth import Authenticator
from ragstore.service.connections import Connection
from ragstore.service.metrics import Metrics

if TYPE_CHECKING:
    from ragstore.index import AsyncIndex
    from ragstore.instrumentation import Instruments

_BACKLOG: Final = 2048
_PARTING: Final = 2.0
"""Seconds for those to say so whose answers are still being given when patience is over. Then they are cut off."""
_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


async def serve(
    index: AsyncIndex,
    *,
    instruments: Instruments,
    metrics: Metrics,
    host: str | None = None,
    port: int | None = None,
    allow_open: bool = False,
    listening: Callable[[str], None] = lambda _url: None,
) -> None:
    """Answer at `host` and `port` (default: `[service]`) until a signal asks to end; requests under way are answered first.

    `listening` is given the URL once questions can be put. Raises `ConfigError` where nobody could prove who asks, where everybody would
    read everything from other machines, and where the place is taken.
    """
    settings = index.settings.service
    authenticator = Authenticator(index, settings)
    with _listener(settings.host if host is None else host, settings.port if port is None else port) as listener:
        address, number = listener.getsockname()[:2]
        local = is_loopback(address)
        mode = index.settings.access.mode
        if mode == "open" and not local and not allow_open:
            raise ConfigError(
                f"access mode 'open' lets everybody who reaches {address} read everything; listen on 127.0.0.1, choose another "
                "[access] mode, or say --allow-open"
            )
        await _warm_up(index, instruments)
        ending = asyncio.Event()
        app = build(
            index,
            authenticator=authenticator,
            instruments=instruments,
            metrics=metrics,
            local=local and authenticator.anonymous,
            ending=ending,
        )
        # The time limit of a request is also how long the end waits for one. Whoever asks is never taken from headers of a proxy.
        server = _Server(
            Config(
                app,
                http=Connection,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=math.ceil(settings.timeout + _PARTING),
            ),
            ending=ending,
            patience=settings.timeout,
        )
        listener.listen(_BACKLOG)
        url = f"http://{f'[{address}]' if ':' in address else address}:{number}"
        instruments.log("service.started", url=url, mode=mode)
        listening(url)
        with _server_log(instruments):
            await server.serve(sockets=[listener])
        instruments.log("service.stopped")


async def _warm_up(index: AsyncIndex, instruments: Instruments) -> None:
    """Load the model before the first question. What is not there yet may come: `/readyz` goes on asking."""
    try:
        await index.ready()
    except (RagstoreError, DBAPIError, OSError) as error:
        detail = str(error) if isinstance(error, RagstoreError) else ""
        instruments.log("service.down", error=type(error).__name__, detail=detail)


class _ServerLog(logging.Handler):
    """What the server itself complains of, such as bytes that are no HTTP, as a line like any other: the words alone, no traceback."""

    def __init__(self, instruments: Instruments) -> None:
        super().__init__(logging.WARNING)
        self._instruments = instruments

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._instruments.log("service.server", said=record.getMessage())


@contextmanager
def _server_log(instruments: Instruments) -> Iterator[None]:
    logger, handler = logging.getLogger("uvicorn"), _ServerLog(instruments)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


class _Server(Server):
    """Ends on a signal as a command does: with its exit code. A second signal does what the system does with it."""

    def __init__(self, config: Config, *, ending: asyncio.Event, patience: float) -> None:
        super().__init__(config)
        self._ending = ending
        self._patience = patience

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        timer = asyncio.get_running_loop().call_later(self._patience, self._ending.set)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        taken = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]

        def stop() -> None:
            release()
            self.should_exit = True

        def release() -> None:
            while taken:
                loop.remove_signal_handler(taken.pop())

        for number in taken:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            release()


def _listener(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that the address is known, and does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"{host!r} is no address to listen at: {error.strerror or error}; name another --host") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise ConfigError(f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --port, or 0 for any") from error
    return made
