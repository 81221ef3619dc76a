"""Work in; its result, or an error as soon as it is not worth going on: the caller has gone, or the service ends, out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ragstore.service.front import GoneError
from ragstore.service.problems import Problem, RefusedError

if TYPE_CHECKING:
    from starlette.types import Receive

Result = TypeVar("Result")


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work while the caller is there. Raises `GoneError`, and ends the work, where the caller goes away first."""
    await _unless(_gone(receive), work, GoneError())


async def until_the_end(ending: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result:
    """Do the work until the service cannot wait any longer. Raises `RefusedError` then, and ends the work."""
    detail, wait = "the service is being stopped, and the answer would take longer; ask again", {"Retry-After": "1"}
    problem = Problem(status=503, detail=detail, code="shutting_down", headers=wait)
    return await _unless(ending.wait(), work, RefusedError(problem, reason="shutting_down"))


async def _unless(happens: Coroutine[Any, Any, object], work: Coroutine[Any, Any, Result], error: Exception) -> Result:
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(happens)
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise error
        return await working
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
