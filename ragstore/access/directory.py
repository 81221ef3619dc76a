"""A directory in; the same directory out, asked once for many callers, and never for an answer that is older than allowed."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from typing_extensions import override

from ragstore.access.ids import parse_id, shorten
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError, ConfigError, OutageError, TransientError
from ragstore.models import AttributeScalar

Answer = TypeVar("Answer")


class CachedDirectory(GroupResolver):
    """Keeps each answer of a resolver for `seconds`, counted from when the question was put, and at most `most` of each kind.

    - Callers who ask the same at the same time share one question; one of them who goes away takes it from nobody.
    - A failure is kept for nobody, and an expired answer is never given, whatever has become of the resolver: `AccessError`, as for
      everything else that decides over access and cannot be reached. A `ConfigError` stays one.
    - So `seconds` is how long a revocation in the directory may go unnoticed.

    For one event loop. Raises `ConfigError` for limits that make no sense.
    """

    def __init__(
        self, resolver: GroupResolver, *, seconds: float = 300, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0 <= seconds <= 24 * 3600 or most < 1:
            raise ConfigError(f"a directory is cached for 0 to 86400 seconds and for 1 principal or more, not {seconds} and {most}")
        self._resolver = resolver
        self._groups = _Answers(resolver.groups, seconds=seconds, most=most, clock=clock)
        self._attributes = _Answers(resolver.attributes, seconds=seconds, most=most, clock=clock)

    @override
    async def groups(self, object_id: str) -> frozenset[str]:
        return await self._groups.get(object_id)

    @override
    async def attributes(self, object_id: str) -> Mapping[str, tuple[AttributeScalar, ...]]:
        return await self._attributes.get(object_id)

    def forget(self, object_id: str | None = None) -> None:
        """Ask again about this principal, or about all: for a host that was told of a change. Answers under way are not kept."""
        self._groups.forget(object_id)
        self._attributes.forget(object_id)

    @override
    async def close(self) -> None:
        await self._groups.stop()
        await self._attributes.stop()
        await self._resolver.close()


class _Answers(Generic[Answer]):
    """The answers to one kind of question, by object id."""

    def __init__(self, ask: Callable[[str], Awaitable[Answer]], *, seconds: float, most: int, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Answer]] = {}

    async def get(self, object_id: str) -> Answer:
        key = parse_id(object_id)
        if key is None:
            raise AccessError(f"{shorten(object_id)} is no object id, so no directory is asked about it")
        if key in self._known:
            expires, answer = self._known[key]
            if self._clock() < expires:
                self._known.move_to_end(key)
                return answer
            del self._known[key]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._answer(key), name="ask the directory")
            task.add_done_callback(lambda done: self._settle(key, done))
        try:
            return await asyncio.shield(task)
        except (TransientError, OutageError, OSError) as error:
            raise AccessError(f"the directory that knows the principal's groups cannot be reached: {error}; try again later") from error

    def forget(self, object_id: str | None) -> None:
        if object_id is None:
            self._known.clear()
            self._asking.clear()
        else:
            key = parse_id(object_id) or object_id
            self._known.pop(key, None)
            self._asking.pop(key, None)

    async def stop(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, key: str) -> Answer:
        expires = self._clock() + self._seconds
        answer = await self._ask(key)
        if self._asking.get(key) is asyncio.current_task():
            self._known[key] = (expires, answer)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return answer

    def _settle(self, key: str, task: asyncio.Task[Answer]) -> None:
        if self._asking.get(key) is task:
            del self._asking[key]
        if not task.cancelled():
            task.exception()  # seen by everybody who waits, and where nobody does, no warning is due
