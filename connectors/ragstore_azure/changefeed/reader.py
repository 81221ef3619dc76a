"""A cursor and a feed's storage in; batches of events, each with the cursor that stands behind it, out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from ragstore.errors import FeedGapError
from ragstore.models import Event, EventBatch
from ragstore_azure.changefeed.ahead import ahead
from ragstore_azure.changefeed.avro import ChunkReader, Header
from ragstore_azure.changefeed.cursor import Cursor, CursorError, Position
from ragstore_azure.changefeed.decoder import DamagedError
from ragstore_azure.changefeed.events import AdmittingSource, EventMapper
from ragstore_azure.changefeed.layout import (
    INDEX,
    SEGMENTS_PATH,
    Entry,
    Manifest,
    begin_of,
    index_prefixes,
    months_back,
    parse_last_consumable,
    segment_of,
)
from ragstore_azure.changefeed.plan import PIECE, Piece, Planner, SegmentEnd, SegmentPlan, VanishedError
from ragstore_azure.changefeed.storage import FeedStorage

BATCH_EVENTS: Final = 2000
BATCH_RECORDS: Final = 20_000
"""So many records without an event in them, and a batch tells how far it went all the same."""
_EARLY: Final = timedelta(days=1)
"""An event is in a segment that begins less than this before it: a segment is of an hour at most, and its times are right to 15 minutes."""
_NEWEST: Final = 4
"""So many of the newest segments are looked at for those that are not final."""
_REMEDY: Final = (
    "Run `ragstore index`, which finds by listing what changed meanwhile; a worker does so by itself and goes on from the feed's end"
)


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where a pass stands; becomes a cursor at any time."""

    cursor: Cursor
    done: str | None
    open: dict[str, dict[str, Position]] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: Cursor) -> Progress:
        """To go on from a cursor."""
        return cls(cursor=cursor, done=cursor.done, open={segment: dict(shards) for segment, shards in cursor.open.items()})

    def text(self) -> str:
        """The cursor."""
        before = self.cursor
        return Cursor(host=before.host, container=before.container, start=before.start, done=self.done, open=self.open).to_json()

    def finish(self, segment: str) -> None:
        """The segment is final and read; it is forgotten, unless one before it may still grow."""
        if all(segment <= other for other in self.open):
            self.open.pop(segment, None)
            self.done = segment


class FeedReader:
    """Reads a feed for one source. Nothing that it remembers between passes matters, except for the number of requests."""

    def __init__(
        self, storage: FeedStorage, source: AdmittingSource, *, host: str, container: str, start: datetime | None, parallel: int
    ) -> None:
        self._storage = storage
        self._source = source
        self._host = host
        self._container = container
        self._start = start
        self._parallel = parallel
        self._manifests: dict[str, Manifest] = {}
        self._headers: dict[str, Header] = {}

    async def head(self) -> str:
        """The cursor at the present end, found without reading an event."""
        first = Cursor(host=self._host, container=self._container)
        consumable = await self._last_consumable()
        entries = await self._newest(consumable) if consumable is not None else []
        planner = self._planner()
        tail: list[Manifest] = []
        while entries and not (len(tail) >= _NEWEST and tail[0].is_final):
            entries, more = entries[:-_NEWEST], entries[-_NEWEST:]
            tail = await planner.read_manifests(more) + tail
        settled = 0
        while settled < len(tail) and tail[settled].is_final:
            settled += 1
        progress = Progress(cursor=first, done=tail[settled - 1].segment if settled else None)
        for manifest in tail[settled:]:
            chunks = await planner.chunks(manifest)
            progress.open[manifest.segment] = {
                shard: Position(chunk=found[-1].name, offset=0, passed=found[-1].size) for shard, found in chunks.items() if found
            }
        return progress.text()

    async def read(self, text: str | None) -> AsyncIterator[EventBatch]:
        """As of `Feed.read`."""
        progress = Progress.of(self._cursor(text))
        mapper = EventMapper(self._source, progress.cursor.start)
        pass_ = _Pass(progress, mapper, self._headers)
        told = text
        index = await self._index(progress)
        planner = self._planner()
        try:
            async with ahead(planner.pieces(index, progress.cursor.open), self._parallel * PIECE) as steps:
                async for step in steps:
                    for _full in pass_.take(step):
                        batch = pass_.batch()
                        told = batch.cursor
                        yield batch
                        await asyncio.sleep(0)  # what is on its way shall come in while this goes on
        except VanishedError as error:
            raise self._gap(f"{error} is not there any more", index) from error
        except DamagedError as error:
            raise self._gap(str(error), index) from error
        self._forget(progress)
        if pass_.pending or progress.text() != told:
            yield pass_.batch()

    def _planner(self) -> Planner:
        return Planner(self._storage, manifests=self._manifests, headers=self._headers)

    def _cursor(self, text: str | None) -> Cursor:
        if text is None:
            return Cursor(host=self._host, container=self._container, start=self._start)
        try:
            return Cursor.from_json(text, host=self._host, container=self._container)
        except CursorError as error:
            raise FeedGapError(f"nobody can go on from the stored cursor of the change feed: {error}. {_REMEDY}") from error

    async def _last_consumable(self) -> datetime | None:
        content = await self._storage.document(SEGMENTS_PATH)
        return parse_last_consumable(content) if content is not None else None

    async def _index(self, progress: Progress) -> list[Entry]:
        """The manifests' entries of all segments to read, the cursor's among them. Raises `FeedGapError` where those are gone."""
        known = sorted(progress.open) or ([progress.done] if progress.done is not None else [])
        consumable = await self._last_consumable()
        if consumable is None:
            if known:
                raise self._gap(f"{SEGMENTS_PATH} and the segment {known[0]}, where the cursor stands, are not there any more", [])
            return []
        lower = progress.done or (known[0] if known else None)
        if lower is None and progress.cursor.start is not None:
            lower = f"{progress.cursor.start - _EARLY:%Y/%m/%d/%H%M}"
        entries = await self._entries(index_prefixes(lower, max([consumable, *map(begin_of, known)])))
        found = {_segment(entry): entry for entry in entries}
        if missing := [segment for segment in known if segment not in found]:
            raise self._gap(f"the segment {missing[0]}, where the cursor stands, is not there any more", await self._entries([INDEX]))
        wanted = [segment for segment in found if segment in progress.open or (begin_of(segment) <= consumable)]
        if progress.done is not None:
            wanted = [segment for segment in wanted if segment > progress.done or segment in progress.open]
        elif progress.cursor.start is not None and not progress.open:
            # The one that holds the start, and the one before: segments are right to 15 minutes.
            earlier = [segment for segment in wanted if begin_of(segment) <= progress.cursor.start]
            wanted = [*earlier[-2:], *wanted[len(earlier) :]]
            progress.done = earlier[-3] if len(earlier) > 2 else None  # noqa: PLR2004 - the last one left out
        return [found[segment] for segment in sorted(wanted)]

    async def _newest(self, consumable: datetime) -> list[Entry]:
        """Entries of the newest segments that may be read, some months of them."""
        entries: list[Entry] = []
        for prefix in months_back(consumable):
            listed = [entry for entry in await self._entries([prefix]) if begin_of(_segment(entry)) <= consumable]
            entries = listed if prefix == INDEX else listed + entries
            if len(entries) >= _NEWEST:
                break
        return entries

    async def _entries(self, prefixes: Sequence[str]) -> list[Entry]:
        listed = [entry for prefix in prefixes for entry in await self._storage.entries(prefix)]
        return sorted((entry for entry in listed if segment_of(entry.path) is not None), key=lambda entry: entry.path)

    def _gap(self, what: str, index: Sequence[Entry]) -> FeedGapError:
        oldest = f"the oldest segment that it holds is {_segment(index[0])}" if index else "it holds no segment"
        return FeedGapError(
            f"the change feed {self._host}/{self._container} has a gap: {what} ({oldest}; retention removes old ones). Events between are "
            f"lost to it. {_REMEDY}"
        )

    def _forget(self, progress: Progress) -> None:
        """Remember only what belongs to segments that are polled again."""
        for segment in [segment for segment in self._manifests if segment not in progress.open]:
            del self._manifests[segment]
        chunks = {f"{folder}{position.chunk}" for shards in progress.open.values() for folder, position in shards.items()}
        for path in [path for path in self._headers if path not in chunks]:
            del self._headers[path]


def _segment(entry: Entry) -> str:
    segment = segment_of(entry.path)
    assert segment is not None  # noqa: S101 - only such entries are kept
    return segment


class _Pass:
    """Takes the pieces of a pass in their order, and gathers events."""

    def __init__(self, progress: Progress, mapper: EventMapper, headers: dict[str, Header]) -> None:
        self._progress = progress
        self._mapper = mapper
        self._headers = headers
        self._events: list[Event] = []
        self._records = 0
        self._reader: ChunkReader | None = None
        self._path = ""
        self._passed = 0
        self._stuck: set[str] = set()
        """Folders of the shards that cannot be read further for now."""

    @property
    def pending(self) -> bool:
        """Whether there is something that no batch told of."""
        return self._records > 0

    def batch(self) -> EventBatch:
        """What was gathered since the last one."""
        events, self._events, self._records = self._events, [], 0
        return EventBatch(events=events, cursor=self._progress.text(), skipped=self._mapper.take_skipped())

    def take(self, step: Piece | SegmentEnd) -> Iterator[None]:
        """Take one step; stops each time when enough for a batch has come together. Raises `DamagedError`."""
        if isinstance(step, SegmentEnd):
            self._end(step.plan)
            return
        if step.shard.folder in self._stuck:
            return
        path = f"{step.shard.folder}{step.chunk.name}"
        if self._reader is None or path != self._path:
            self._begin(step, path)
        assert self._reader is not None  # noqa: S101 - begun above
        reader, begin = self._reader, begin_of(step.plan.segment)
        try:
            reader.add(step.begin, step.data)
            while rows := reader.rows(BATCH_EVENTS - len(self._events)):
                self._note(step)
                self._events += self._mapper.events(rows, begin)
                self._records += len(rows)
                if len(self._events) >= BATCH_EVENTS or self._records >= BATCH_RECORDS:
                    yield
        except DamagedError as error:
            raise DamagedError(f"the chunk {path!r} cannot be read from byte {reader.offset} on: {error}") from error
        self._note(step)
        if step.begin + len(step.data) >= step.chunk.size > reader.offset:
            if step.plan.is_final:
                raise DamagedError(f"the chunk {path!r} ends within a block that begins at byte {reader.offset}, and its segment is final")
            self._stuck.add(step.shard.folder)  # the rest of the block is still to be written; what follows waits for it

    def _begin(self, step: Piece, path: str) -> None:
        position = step.shard.position
        here = position if position is not None and position.chunk == step.chunk.name else Position(chunk=step.chunk.name, offset=0)
        header = self._headers.get(path) or step.header
        self._reader = ChunkReader(offset=here.offset, index=here.index, passed=here.passed, header=header)
        self._path, self._passed = path, here.passed

    def _note(self, step: Piece) -> None:
        reader = self._reader
        assert reader is not None  # noqa: S101 - called while one reads
        passed = self._passed if reader.offset < self._passed else 0
        position = Position(chunk=step.chunk.name, offset=reader.offset, index=reader.index, passed=passed)
        self._progress.open.setdefault(step.plan.segment, {})[step.shard.folder] = position
        if reader.header is not None and not step.plan.is_final:
            self._headers[self._path] = reader.header

    def _end(self, plan: SegmentPlan) -> None:
        self._progress.open.setdefault(plan.segment, {})
        if plan.is_final and not self._stuck:
            self._progress.finish(plan.segment)
        self._stuck.clear()
        self._reader = None
