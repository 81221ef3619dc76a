"""Answers and failures of a source in; whether it is worth asking again before long, out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from ragstore.contracts import Source
from ragstore.errors import TransientError
from ragstore.models import BlobState, FetchedBlob

Answer = TypeVar("Answer")

_IN_A_ROW: Final = 8
"""After so many failures without an answer in between, a source counts as down."""
_SECONDS: Final = 10.0
"""So long nobody waits for it then; each attempt would try for as long by itself, and a batch has hundreds of blobs."""


class Reach:
    """The sources of one batch of work. What one of them is not asked, because it is down, fails at once, as what it was asked did."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sources: dict[tuple[str, str], _Standing] = {}

    @property
    def down(self) -> str:
        """What a source said that answered nothing, or nothing any more; empty where all of them answer."""
        return next((standing.reason for standing in self._sources.values() if standing.is_down), "")

    async def state(self, source: Source, path: str) -> BlobState | None:
        """`Source.state`. Raises `TransientError` also where too many questions before had no answer."""
        return await self._of(source).ask(lambda: source.state(path))

    async def fetch(self, source: Source, path: str, spool: Path) -> FetchedBlob | None:
        """`Source.fetch`, which raises as `state` does."""
        return await self._of(source).ask(lambda: source.fetch(path, spool))

    def _of(self, source: Source) -> _Standing:
        return self._sources.setdefault((source.account, source.container), _Standing(self._clock))


class _Standing:
    """Of one source."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._answers = 0
        self.reason = ""
        self._ask_again = 0.0

    @property
    def is_down(self) -> bool:
        """It did not answer a few questions in a row, or none at all."""
        return self._failures >= _IN_A_ROW or (self._failures > 0 and not self._answers)

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        if self._failures >= _IN_A_ROW:
            if self._clock() < self._ask_again:
                raise TransientError(self.reason)
            self._ask_again = self._clock() + _SECONDS  # one of them tries
        try:
            answer = await question()
        except TransientError as error:
            self._failures += 1
            self.reason = str(error)
            self._ask_again = self._clock() + _SECONDS
            raise
        self._failures = 0
        self._answers += 1
        return answer
