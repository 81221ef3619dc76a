"""A connection in; one that is cut off where its client neither finishes a request nor takes an answer out.

The server by itself waits without end for the head of a request, and for the client to take what is left of an answer. What happens
between the two, `Front` ends in time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from h11 import LocalProtocolError
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

_PATIENCE: Final = 10.0
"""Seconds. A head that is not there then, or the next time, does not come; nor is an answer taken of which nothing was meanwhile."""


class Connection(H11Protocol):
    """HTTP/1.1 with limits. h11 bounds the head of a request (64 KiB) and needs no compiler; httptools bounds nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the server's affair
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._before: tuple[object, int] | None = (None, 0)

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the server has it: of its own kind
        super().connection_made(transport)
        self._timer = self.loop.call_later(_PATIENCE, self._look)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @override
    def send_400_response(self, msg: str) -> None:
        """The answer to bytes that are no HTTP; where one has been given already, as to a request without a credential, just the end."""
        try:
            super().send_400_response(msg)
        except LocalProtocolError:
            self.transport.close()

    def _look(self) -> None:
        """Cut the connection off where it still waits for the same client as at the last look, and no byte has gone out since."""
        now: tuple[object, int] | None = None
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        if self.transport.is_closing() or cycle is None or cycle.response_complete:
            now = (cycle, self.transport.get_write_buffer_size())
        if now is not None and self._before is not None and now[0] is self._before[0] and now[1] >= self._before[1]:
            self.transport.abort()
            return
        self._before = now
        self._timer = self.loop.call_later(_PATIENCE, self._look)
