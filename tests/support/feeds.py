"""A feed whose events a test gives, and which can be down, have a gap, or say what it already said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from typing_extensions import override

from ragstore.contracts import Feed, Source
from ragstore.models import BlobId, Event, EventBatch, Hint


class ScriptedFeed(Feed):
    """Events by position: a cursor is the number of events before it. What was settled is told."""

    def __init__(self, source: Source, *, name: str = "scripted docs", per_batch: int = 10) -> None:
        self.name = name
        self.poll_seconds = 0.01
        self.events: list[Event] = []
        self.settled: list[str | None] = []
        self.failures: list[Exception] = []
        """Raised by the next reads, one each."""
        self.reads = 0
        self.closed = False
        self._source = source
        self._per_batch = per_batch

    def tell(self, path: str, hint: Hint = "content", *, sequencer: str | None = None, moment: datetime | None = None) -> None:
        """Add an event."""
        blob = BlobId(account=self._source.account, container=self._source.container, path=path)
        self.events.append(Event(blob=blob, hint=hint, moment=moment or datetime.now(UTC), sequencer=sequencer, kind="Test"))

    @override
    async def head(self) -> str | None:
        return str(len(self.events))

    @override
    async def read(self, cursor: str | None) -> AsyncIterator[EventBatch]:
        self.reads += 1
        if self.failures:
            raise self.failures.pop(0)
        position = int(cursor or 0)
        while position < len(self.events):
            some: Sequence[Event] = self.events[position : position + self._per_batch]
            position += len(some)
            yield EventBatch(events=some, cursor=str(position))

    @override
    async def settle(self, batch: EventBatch) -> None:
        self.settled.append(batch.cursor)

    @override
    async def close(self) -> None:
        self.closed = True
