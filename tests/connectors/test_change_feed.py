from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ragstore.errors import ConfigError, FeedGapError
from ragstore_azure.changefeed import plan
from tests.support.change_feed import Open, paths, read, records
from tests.support.feed_schema import schema_of, varint
from tests.support.feed_writer import HOUR, START, SYNC, ContainerSink, FeedWriter, record

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.azurite


# -- schemas, codecs, shapes of files


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("codec", ["null", "deflate"])
async def test_every_schema_version_and_codec_is_read(feed_sink: ContainerSink, open_feed: Open, version: int, codec: str) -> None:
    feed_writer = FeedWriter.of(feed_sink, version=version, codec=codec)
    feed_writer.segment(START, shards=1, final=True)
    feed_writer.append(START, records("a", 25), per_block=10)
    feed_writer.consumable(START)
    events, _cursor = await read(open_feed())
    assert paths(events) == [f"a{number}" for number in range(25)]
    first = events[0]
    assert (first.hint, first.kind, first.blob.account) == ("content", "BlobCreated/PutBlob", "devstoreaccount1")
    assert (first.etag, first.moment) == ("0x8D0000000000000", START)
    assert first.sequencer == f"{0:016X}{683:016X}{0:016x}"


async def test_types_and_apis_that_nobody_knows_are_counted_and_never_an_error(feed_sink: ContainerSink, open_feed: Open) -> None:
    schema = schema_of(8, more_types=("BlobTeleported",), more_apis=("TeleportBlob",))
    feed_writer = FeedWriter.of(feed_sink, version=8, schema=schema)
    feed_writer.segment(START, shards=1)
    feed_writer.append(START, [record("a", type="BlobTeleported", api="TeleportBlob"), record("b", api="TeleportBlob"), record("c")])
    feed_writer.consumable(START)
    batches = [batch async for batch in open_feed().read(None)]
    assert [event.kind for batch in batches for event in batch.events] == ["BlobCreated/TeleportBlob", "BlobCreated/PutBlob"]
    assert batches[0].skipped == {"BlobTeleported": 1}


async def test_empty_header_only_and_torn_chunks_wait_for_more(feed_writer: FeedWriter, feed_sink: ContainerSink, open_feed: Open) -> None:
    feed_writer.segment(START, shards=4)
    feed_writer.raw(START, b"", shard=0, header=False)
    feed_writer.raw(START, b"", shard=1)
    block = feed_writer.block(records("c", 20))
    feed_writer.append(START, records("b", 3), shard=2)
    feed_writer.raw(START, block[: len(block) // 2], shard=2)
    feed_writer.raw(START, feed_writer.header()[:700], shard=3, header=False)
    feed_writer.consumable(START)
    feed = open_feed()
    events, cursor = await read(feed)
    assert paths(events) == ["b0", "b1", "b2"]
    assert await read(feed, cursor) == ([], cursor)
    feed_writer.raw(START, feed_writer.header(), shard=0, header=False)
    feed_writer.append(START, records("a", 1), shard=0)
    feed_writer.raw(START, block[len(block) // 2 :], shard=2)
    feed_writer.raw(START, feed_writer.header()[700:] + feed_writer.block(records("d", 2)), shard=3, header=False)
    events, _cursor = await read(open_feed(), cursor)
    assert paths(events) == ["a0", *(f"c{number}" for number in range(20)), "d0", "d1"]


@pytest.mark.parametrize("first", ["size", "count", "negative", "field", "sync", "schema"])
async def test_hostile_and_damaged_chunks_say_where_they_are_and_take_no_memory(
    feed_writer: FeedWriter, feed_sink: ContainerSink, open_feed: Open, first: str
) -> None:
    feed_writer.segment(START, shards=1)
    good = feed_writer.block(records("a", 1))
    field_ = varint(1) + varint(30) + varint(10) + varint(2**40) + b"x" * 16
    damage = {
        "size": varint(1, padded=True) + varint(2**50, padded=True) + b"x" * 64,
        "count": varint(2**50, padded=True) + varint(8, padded=True) + b"x" * 8 + SYNC,
        "negative": varint(-3, padded=True) + varint(8, padded=True) + b"x" * 8 + SYNC,
        "field": varint(1, padded=True) + varint(len(field_), padded=True) + field_ + SYNC,
        "sync": good[:-1] + b"!",
        "schema": b"",
    }
    if first == "schema":
        feed_writer.raw(START, b"Obj\x01" + varint(1) + varint(11) + b"avro.schema" + varint(2) + b"{}" + b"\0" + SYNC, header=False)
    else:
        feed_writer.append(START, records("a", 1))
    feed_writer.raw(START, damage[first])
    feed_writer.consumable(START)
    with pytest.raises(FeedGapError, match=r"00000\.avro' cannot be read from byte \d+ on.*ragstore index"):
        await read(open_feed())


async def test_a_final_segment_that_ends_within_a_block_is_a_gap_and_not_silence(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1, final=True)
    feed_writer.append(START, records("a", 1))
    feed_writer.raw(START, feed_writer.block(records("b", 5))[:-20])
    feed_writer.consumable(START)
    with pytest.raises(FeedGapError, match="ends within a block"):
        await read(open_feed())


async def test_chunks_longer_than_one_request_are_read_in_pieces(
    feed_writer: FeedWriter, open_feed: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PIECE", 1000)
    feed_writer.segment(START, shards=2)
    for shard in (0, 1):
        feed_writer.append(START, records("ab"[shard], 60), shard=shard, per_block=7)
    feed_writer.consumable(START)
    events, _cursor = await read(open_feed(parallel=3))
    assert paths(events) == [f"{letter}{number}" for letter in "ab" for number in range(60)]


async def test_a_block_larger_than_a_batch_is_given_in_parts_and_resumed_within(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1, final=True)
    feed_writer.append(START, records("a", 4500), per_block=4500)
    feed_writer.consumable(START)
    batches = [batch async for batch in open_feed().read(None)]
    assert [len(batch.events) for batch in batches] == [2000, 2000, 500]
    for number, batch in enumerate(batches):
        events, _cursor = await read(open_feed(), batch.cursor)
        assert paths(events) == [f"a{n}" for n in range(min(4500, 2000 * (number + 1)), 4500)]


# -- segments


async def test_nothing_beyond_last_consumable_is_read(feed_writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        feed_writer.segment(START + hours * HOUR, shards=1)
        feed_writer.append(START + hours * HOUR, records("abc"[hours], 1))
    feed_writer.consumable(START + HOUR, fraction=".000")
    feed = open_feed()
    events, cursor = await read(feed)
    assert paths(events) == ["a0", "b0"]
    feed_writer.consumable(START + 2 * HOUR)
    assert paths((await read(feed, cursor))[0]) == ["c0"]


async def test_what_is_appended_late_to_an_earlier_publishing_segment_is_read(feed_writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        feed_writer.segment(START + hours * HOUR, final=hours == 1)
        feed_writer.append(START + hours * HOUR, records("abc"[hours], 2))
    feed_writer.consumable(START + 2 * HOUR)
    events, cursor = await read(open_feed())
    assert paths(events) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    feed_writer.append(START, records("late", 7), shard=1)
    feed_writer.append(START, records("a", 1, first=2), shard=0)
    events, cursor = await read(open_feed(), cursor)
    assert paths(events) == ["a2", *(f"late{number}" for number in range(7))]
    for hours in (0, 2):
        feed_writer.finalize(START + hours * HOUR)
    events, cursor = await read(open_feed(), cursor)
    assert events == []
    assert json.loads(cursor or "")["done"] == "2026/11/30/2200"


async def test_segments_of_a_quarter_a_half_and_a_whole_hour_in_any_number_of_shards_follow_each_other(
    feed_writer: FeedWriter, open_feed: Open
) -> None:
    begins = [START + timedelta(minutes=minutes) for minutes in (0, 15, 30, 60, 75)]
    for number, begin in enumerate(begins):
        feed_writer.segment(begin, shards=number, minutes=[15, 15, 30, 15, 60][number], final=True)
        for shard in range(number):
            feed_writer.append(begin, [record(f"{number}-{shard}")], shard=shard)
    feed_writer.consumable(begins[-1])
    events, cursor = await read(open_feed())
    assert paths(events) == [f"{number}-{shard}" for number in range(5) for shard in range(number)]
    assert await read(open_feed(), cursor) == ([], cursor)


async def test_a_year_ends(feed_sink: ContainerSink, open_feed: Open) -> None:
    feed_writer = FeedWriter.of(feed_sink)
    eve = datetime(2026, 12, 31, 23, tzinfo=UTC)
    begins = [eve - timedelta(days=40), eve, eve + HOUR, eve + timedelta(days=70)]
    for number, begin in enumerate(begins[:2]):
        feed_writer.segment(begin, shards=1, final=True)
        feed_writer.append(begin, records("ab"[number], 1))
    feed_writer.consumable(begins[1])
    events, cursor = await read(open_feed())
    for number, begin in enumerate(begins[2:]):
        feed_writer.segment(begin, shards=1, final=True)
        feed_writer.append(begin, records("cd"[number], 1))
    feed_writer.consumable(begins[-1])
    events += (await read(open_feed(), cursor))[0]
    assert paths(events) == ["a0", "b0", "c0", "d0"]


async def test_chunks_are_sorted_by_their_number_whatever_its_width(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1, final=True)
    for chunk in (0, 9, 10, 100000):
        feed_writer.append(START, [record(f"{chunk}")], chunk=chunk)
    feed_writer.consumable(START)
    assert paths((await read(open_feed()))[0]) == ["0", "9", "10", "100000"]


async def test_a_used_up_segment_leads_to_the_next(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1, final=True)
    feed_writer.append(START, records("a", 1))
    feed_writer.consumable(START)
    _events, cursor = await read(open_feed())
    feed_writer.segment(START + 5 * HOUR, shards=1)
    feed_writer.append(START + 5 * HOUR, records("b", 1))
    feed_writer.consumable(START + 5 * HOUR)
    assert paths((await read(open_feed(), cursor))[0]) == ["b0"]


async def test_a_shard_without_a_chunk_does_not_stop_a_resume(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=3)
    feed_writer.append(START, records("a", 3), shard=1)
    feed_writer.consumable(START)
    _events, cursor = await read(open_feed())
    feed_writer.append(START, records("b", 1), shard=2)
    assert paths((await read(open_feed(), cursor))[0]) == ["b0"]


# -- start


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+02:00", "-07:30"])
async def test_start_is_exact_to_the_event_in_any_time_zone(feed_writer: FeedWriter, open_feed: Open, zone: str) -> None:
    for hours in range(6):
        feed_writer.segment(START + hours * HOUR, shards=1, final=True)
        # The first event of each segment is ten minutes early: its segment is right to a quarter of an hour only.
        moments = [START + hours * HOUR + timedelta(minutes=minutes) for minutes in (-10, 5, 30, 31)]
        feed_writer.append(START + hours * HOUR, [record(f"{moment:%H%M}", moment=moment) for moment in moments])
    feed_writer.consumable(START + 5 * HOUR)
    offset = datetime.fromisoformat(f"2026-01-01T00:00:00{zone}").tzinfo
    start = (START + 2 * HOUR + timedelta(minutes=30, microseconds=1)).astimezone(offset).isoformat()
    first = open_feed(start=start)
    batches = [batch async for batch in first.read(None)]
    found = paths([event for batch in batches for event in batch.events])
    assert found == ["2231", "2250", "2305", "2330", "2331", "2350", "0005", "0030", "0031", "0050", "0105", "0130", "0131"]
    assert await read(open_feed(), batches[-1].cursor) == ([], batches[-1].cursor)


@pytest.mark.parametrize("start", ["2026-11-30T10:00:00", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_start_without_a_zone_is_refused(open_feed: Open, start: str) -> None:
    with pytest.raises(ConfigError, match="start ="):
        open_feed(start=start)


# -- the position at the end


async def test_head_reads_no_event_and_misses_none_that_comes_after_it(feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, final=True)
    feed_writer.append(START, records("old", 5))
    feed_writer.segment(START + HOUR, shards=3)
    feed_writer.append(START + HOUR, records("seen", 5), shard=0)
    torn = feed_writer.block(records("torn", 3))
    feed_writer.append(START + HOUR, records("seen", 5), shard=1)
    feed_writer.raw(START + HOUR, torn[:50], shard=1)
    feed_writer.consumable(START + HOUR)
    cursor: str | None = await open_feed().head()
    assert await read(open_feed(), cursor) == ([], cursor)
    feed_writer.raw(START + HOUR, torn[50:], shard=1)
    feed_writer.append(START + HOUR, records("new", 1), shard=0)
    feed_writer.append(START + HOUR, records("other", 1), shard=2)
    feed_writer.append(START + HOUR, records("next", 1), shard=0, chunk=1)
    events, cursor = await read(open_feed(), cursor)
    assert paths(events) == ["new0", "next0", "torn0", "torn1", "torn2", "other0"]
    assert await read(open_feed(), cursor) == ([], cursor)


async def test_the_head_of_a_feed_that_is_not_created_yet_is_its_beginning(feed_sink: ContainerSink, open_feed: Open) -> None:
    cursor: str | None = await open_feed().head()
    events, first = await read(open_feed())
    assert events == []
    assert first == cursor, "a resume point, though there was nothing"
    feed_writer = FeedWriter.of(feed_sink)
    feed_writer.segment(START, shards=1)
    feed_writer.append(START, records("a", 1))
    assert await read(open_feed(), cursor) == ([], cursor)
    feed_writer.consumable(START)
    assert paths((await read(open_feed(), cursor))[0]) == ["a0"]
