"""Any interleaving of appends, new segments, finalisation and restarts in; every event, once and in the order of its blob, out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from ragstore.errors import ConfigError
from ragstore_azure.changefeed import plan, reader
from ragstore_azure.changefeed.avro import ChunkReader
from ragstore_azure.changefeed.cursor import Cursor, Position
from ragstore_azure.changefeed.decoder import DamagedError, read_long
from ragstore_azure.changefeed.reader import FeedReader
from tests.connectors.test_change_feed_events import Docs
from tests.support.feed_schema import varint
from tests.support.feed_writer import START, FeedWriter, MemorySink, record

QUARTER = timedelta(minutes=15)


class ChangeFeedMachine(RuleBasedStateMachine):
    """A service that writes a feed, and a reader that is stopped, restarted and sent back at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = MemorySink()
        self.writer = FeedWriter.of(self.sink)
        self.open: list[int] = []
        self.segments = 0
        self.consumable = -1
        self.written: list[tuple[str, int]] = []
        self.last_segment: dict[str, int] = {}
        self.chunk: dict[tuple[int, int], int] = {}
        self.torn: dict[tuple[int, int], bytes] = {}
        self.reader = self.fresh()
        self.cursors: list[tuple[str | None, int]] = [(None, 0)]
        self.seen: list[tuple[str, int]] = []
        self.head: tuple[str, int] | None = None

    def fresh(self) -> FeedReader:
        return FeedReader(self.sink, Docs(), host="host", container="feed", start=None, parallel=3)

    # -- the service

    @rule(shards=st.integers(1, 3))
    def begin_segment(self, shards: int) -> None:
        self.writer.segment(START + self.segments * QUARTER, shards=shards)
        self.chunk.update({(self.segments, shard): 0 for shard in range(shards)})
        self.open.append(self.segments)
        self.segments += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data(), count=st.integers(1, 12), per_block=st.integers(1, 6), roll=st.booleans(), cut=st.integers(0, 400))
    def append(self, data: st.DataObject, count: int, per_block: int, roll: bool, cut: int) -> None:  # noqa: FBT001
        segment = data.draw(st.sampled_from(self.open))
        shards = sum(1 for of, _shard in self.chunk if of == segment)
        records = []
        shard = data.draw(st.integers(0, shards - 1))
        for _record in range(count):
            # A blob is in one shard of a segment, and does not go back to an earlier one.
            path = f"{shard}-{data.draw(st.integers(0, 2))}"
            if self.last_segment.get(path, 0) > segment:
                continue
            self.last_segment[path] = segment
            number = len(self.written)
            self.written.append((path, number))
            records.append(record(path, number=number))
        place = (segment, shard)
        begin = START + segment * QUARTER
        # What a blob did in an earlier segment is there before what it does in a later one.
        self.mend({place} | {(of, one) for of, one in self.torn if of < segment})
        if roll:
            self.chunk[place] += 1
        blocks = b"".join(self.writer.block(records[at : at + per_block]) for at in range(0, len(records), per_block))
        whole = max(0, len(blocks) - cut)
        self.writer.raw(begin, blocks[:whole], shard=shard, chunk=self.chunk[place])
        if blocks[whole:]:
            self.torn[place] = blocks[whole:]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finalize(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.open))
        self.open.remove(segment)
        self.mend({place for place in self.torn if place[0] == segment})
        self.writer.finalize(START + segment * QUARTER)

    def mend(self, places: set[tuple[int, int]]) -> None:
        """Write the rest of the blocks that were half written."""
        for segment, shard in sorted(places & set(self.torn)):
            rest = self.torn.pop((segment, shard))
            self.writer.raw(START + segment * QUARTER, rest, shard=shard, chunk=self.chunk[segment, shard])

    @precondition(lambda self: self.segments > self.consumable + 1)
    @rule()
    def let_consume(self) -> None:
        self.consumable += 1
        self.writer.consumable(START + self.consumable * QUARTER)

    # -- the reader

    @rule(batches=st.integers(0, 3), restart=st.booleans())
    def read(self, batches: int, restart: bool) -> None:  # noqa: FBT001
        """Some batches of a pass, or all of it (0)."""
        if restart:
            self.reader = self.fresh()
        asyncio.run(self._read(batches))

    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        """A crash: what came after a cursor that was saved is forgotten."""
        place = data.draw(st.integers(0, len(self.cursors) - 1))
        del self.cursors[place + 1 :]
        del self.seen[self.cursors[-1][1] :]
        self.reader = self.fresh()

    @precondition(lambda self: self.head is None)
    @rule()
    def take_head(self) -> None:
        self.head = (asyncio.run(self.reader.head()), len(self.written))

    async def _read(self, batches: int) -> None:
        async with aclosing(self.reader.read(self.cursors[-1][0])) as found:  # type: ignore[type-var]
            async for batch in found:
                self.seen += [(event.blob.path, int(event.sequencer or "", 16) & 0xFFFFFFFF) for event in batch.events]
                self.cursors.append((batch.cursor, len(self.seen)))
                batches -= 1
                if batches == 0:
                    return

    # -- what holds

    @invariant()
    def nothing_comes_twice_and_each_blob_keeps_its_order(self) -> None:
        assert len(self.seen) == len(set(self.seen))
        last: dict[str, int] = {}
        for path, number in self.seen:
            assert last.get(path, -1) < number
            last[path] = number

    @override
    def teardown(self) -> None:
        for segment in list(self.open):
            self.open.remove(segment)
            self.mend({place for place in self.torn if place[0] == segment})
            self.writer.finalize(START + segment * QUARTER)
        if self.segments:
            self.writer.consumable(START + self.segments * QUARTER)
        asyncio.run(self._read(0))
        assert sorted(self.seen) == sorted(self.written)
        self.nothing_comes_twice_and_each_blob_keeps_its_order()
        if self.head is not None:
            cursor, before = self.head
            self.seen, self.cursors = [], [(cursor, 0)]
            asyncio.run(self._read(0))
            assert set(self.seen) >= set(self.written[before:]), "events after `head` are all delivered"
            assert len(self.seen) == len(set(self.seen))


TestChangeFeed = ChangeFeedMachine.TestCase
TestChangeFeed.settings = settings(max_examples=30, stateful_step_count=40)


@pytest.fixture(autouse=True)
def _small_batches_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BATCH_EVENTS", 5)
    monkeypatch.setattr(plan, "PIECE", 700)


# -- files


@given(cuts=st.lists(st.integers(0, 6000), max_size=6), per_block=st.integers(1, 9), codec=st.sampled_from(["null", "deflate"]))
def test_a_file_is_read_alike_however_it_is_cut(cuts: list[int], per_block: int, codec: str) -> None:
    writer = FeedWriter.of(MemorySink(), codec=codec)
    records = [record(f"a{number}", number=number) for number in range(12)]
    blocks = [writer.block(records[at : at + per_block]) for at in range(0, 12, per_block)]
    content = writer.header() + b"".join(blocks)
    reading = ChunkReader(offset=0, index=0)
    subjects = []
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    for begin, end in pairwise(edges):
        reading.add(begin, content[begin:end])
        while rows := reading.rows(4):
            subjects += [row[0] for row in rows]
    assert subjects == [one["subject"].encode() for one in records]
    assert (reading.offset, reading.index) == (len(content), 0)


@given(damage=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_bytes_are_an_error_of_ours_or_other_rows_never_anything_else(damage: list[tuple[int, int]]) -> None:
    writer = FeedWriter.of(MemorySink())
    content = bytearray(writer.header() + writer.block([record(f"a{number}") for number in range(5)]))
    for place, value in damage:
        content[len(content) - 1 - place % len(content)] = value
    reading = ChunkReader(offset=0, index=0)
    reading.add(0, bytes(content))
    with suppress(DamagedError, ConfigError):
        while reading.rows(100):
            pass


@given(number=st.integers(-(2**62), 2**62), padded=st.booleans())
def test_a_number_is_read_whether_it_is_padded_or_not(number: int, padded: bool) -> None:  # noqa: FBT001
    data = varint(number, padded=padded)
    assert read_long(data + b"x", 0) == (number, len(data))


names = st.integers(0, 10**7).map(lambda number: f"{number:05d}.avro")
positions = st.builds(Position, chunk=names, offset=st.integers(0), index=st.integers(0), passed=st.integers(0))


@given(
    open=st.dictionaries(st.sampled_from(["2026/11/30/2100", "2026/12/31/2345"]), st.dictionaries(st.text(), positions)),
    done=st.none() | st.just("2026/11/30/2000"),
    start=st.none() | st.datetimes(timezones=st.timezones()),
)
def test_a_cursor_comes_back_as_it_was(open: dict[str, dict[str, Position]], done: str | None, start: Any) -> None:
    start = start.replace(tzinfo=START.tzinfo) if start is not None else None
    cursor = Cursor(host="h", container="c", start=start, done=done, open=open)
    again = Cursor.from_json(cursor.to_json(), host="h", container="c")
    assert again == cursor
    assert again.to_json() == cursor.to_json()
