from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.storage.blob import ContainerClient

from ragstore.errors import ConfigError, FeedGapError, TransientError
from ragstore.models import Event
from ragstore.plugins import build
from ragstore_azure import AzureBlobSource, ChangeFeed
from ragstore_azure.changefeed import plan
from ragstore_azure.changefeed.feed import blob_endpoint
from ragstore_azure.retries import Patience
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, refusal
from tests.support.feed_schema import schema_of, varint
from tests.support.feed_writer import HOUR, START, SYNC, ContainerSink, FeedWriter, record

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite
Open = Callable[..., ChangeFeed]
OPTIONS: dict[str, Any] = {"url": "docs", "connection_string_env": "AZURITE_CONNECTION"}


@pytest.fixture(autouse=True)
def _secret(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURITE_CONNECTION", azurite.connection_string)
    monkeypatch.setenv("AZURITE_KEY", azurite.account_key)


@pytest.fixture
async def source() -> AsyncIterator[AzureBlobSource]:
    source = AzureBlobSource(**OPTIONS, exclude=["private/**"])
    yield source
    await source.close()


@pytest.fixture
def name() -> str:
    return f"feed-{uuid.uuid4().hex[:20]}"


@pytest.fixture
def sink(azurite: Azurite, name: str) -> ContainerSink:
    return ContainerSink(ContainerClient.from_connection_string(azurite.connection_string, name))


@pytest.fixture
def writer(sink: ContainerSink) -> FeedWriter:
    """An enabled feed, whose first segment can be consumed and has nothing yet."""
    return FeedWriter.of(sink)


@pytest.fixture
async def open_feed(source: AzureBlobSource, name: str) -> AsyncIterator[Open]:
    opened: list[ChangeFeed] = []

    def open_(**options: Any) -> ChangeFeed:
        given = {"source_options": OPTIONS, "container": name, **options}
        feed = ChangeFeed(base=Path(), source=source, **given)
        feed.patience = Patience(attempts=2, first_pause=0.01)
        opened.append(feed)
        return feed

    yield open_
    for feed in opened:
        await feed.close()


async def read(feed: ChangeFeed, cursor: str | None = None) -> tuple[list[Event], str | None]:
    """All events that there are now, and the cursor behind them."""
    events: list[Event] = []
    async for batch in feed.read(cursor):
        events += batch.events
        cursor = batch.cursor
    return events, cursor


def paths(events: list[Event]) -> list[str]:
    return [event.blob.path for event in events]


def records(letter: str, count: int, first: int = 0) -> list[dict[str, Any]]:
    return [record(f"{letter}{number}", number=number) for number in range(first, first + count)]


# -- schemas, codecs, shapes of files


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("codec", ["null", "deflate"])
async def test_every_schema_version_and_codec_is_read(sink: ContainerSink, open_feed: Open, version: int, codec: str) -> None:
    writer = FeedWriter.of(sink, version=version, codec=codec)
    writer.segment(START, shards=1, final=True)
    writer.append(START, records("a", 25), per_block=10)
    writer.consumable(START)
    events, _cursor = await read(open_feed())
    assert paths(events) == [f"a{number}" for number in range(25)]
    first = events[0]
    assert (first.hint, first.kind, first.blob.account) == ("content", "BlobCreated/PutBlob", "devstoreaccount1")
    assert (first.etag, first.moment) == ("0x8D0000000000000", START)
    assert first.sequencer == f"{0:016X}{683:016X}{0:016x}"


async def test_types_and_apis_that_nobody_knows_are_counted_and_never_an_error(sink: ContainerSink, open_feed: Open) -> None:
    schema = schema_of(8, more_types=("BlobTeleported",), more_apis=("TeleportBlob",))
    writer = FeedWriter.of(sink, version=8, schema=schema)
    writer.segment(START, shards=1)
    writer.append(START, [record("a", type="BlobTeleported", api="TeleportBlob"), record("b", api="TeleportBlob"), record("c")])
    writer.consumable(START)
    batches = [batch async for batch in open_feed().read(None)]
    assert [event.kind for batch in batches for event in batch.events] == ["BlobCreated/TeleportBlob", "BlobCreated/PutBlob"]
    assert batches[0].skipped == {"BlobTeleported": 1}


async def test_empty_header_only_and_torn_chunks_wait_for_more(writer: FeedWriter, sink: ContainerSink, open_feed: Open) -> None:
    writer.segment(START, shards=4)
    writer.raw(START, b"", shard=0, header=False)
    writer.raw(START, b"", shard=1)
    block = writer.block(records("c", 20))
    writer.append(START, records("b", 3), shard=2)
    writer.raw(START, block[: len(block) // 2], shard=2)
    writer.raw(START, writer.header()[:700], shard=3, header=False)
    writer.consumable(START)
    feed = open_feed()
    events, cursor = await read(feed)
    assert paths(events) == ["b0", "b1", "b2"]
    assert await read(feed, cursor) == ([], cursor)
    writer.raw(START, writer.header(), shard=0, header=False)
    writer.append(START, records("a", 1), shard=0)
    writer.raw(START, block[len(block) // 2 :], shard=2)
    writer.raw(START, writer.header()[700:] + writer.block(records("d", 2)), shard=3, header=False)
    events, _cursor = await read(open_feed(), cursor)
    assert paths(events) == ["a0", *(f"c{number}" for number in range(20)), "d0", "d1"]


@pytest.mark.parametrize("first", ["size", "count", "negative", "field", "sync", "schema"])
async def test_hostile_and_damaged_chunks_say_where_they_are_and_take_no_memory(
    writer: FeedWriter, sink: ContainerSink, open_feed: Open, first: str
) -> None:
    writer.segment(START, shards=1)
    good = writer.block(records("a", 1))
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
        writer.raw(START, b"Obj\x01" + varint(1) + varint(11) + b"avro.schema" + varint(2) + b"{}" + b"\0" + SYNC, header=False)
    else:
        writer.append(START, records("a", 1))
    writer.raw(START, damage[first])
    writer.consumable(START)
    with pytest.raises(FeedGapError, match=r"00000\.avro' cannot be read from byte \d+ on.*ragstore index"):
        await read(open_feed())


async def test_a_final_segment_that_ends_within_a_block_is_a_gap_and_not_silence(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=1, final=True)
    writer.append(START, records("a", 1))
    writer.raw(START, writer.block(records("b", 5))[:-20])
    writer.consumable(START)
    with pytest.raises(FeedGapError, match="ends within a block"):
        await read(open_feed())


async def test_chunks_longer_than_one_request_are_read_in_pieces(
    writer: FeedWriter, open_feed: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PIECE", 1000)
    writer.segment(START, shards=2)
    for shard in (0, 1):
        writer.append(START, records("ab"[shard], 60), shard=shard, per_block=7)
    writer.consumable(START)
    events, _cursor = await read(open_feed(parallel=3))
    assert paths(events) == [f"{letter}{number}" for letter in "ab" for number in range(60)]


async def test_a_block_larger_than_a_batch_is_given_in_parts_and_resumed_within(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=1, final=True)
    writer.append(START, records("a", 4500), per_block=4500)
    writer.consumable(START)
    batches = [batch async for batch in open_feed().read(None)]
    assert [len(batch.events) for batch in batches] == [2000, 2000, 500]
    for number, batch in enumerate(batches):
        events, _cursor = await read(open_feed(), batch.cursor)
        assert paths(events) == [f"a{n}" for n in range(min(4500, 2000 * (number + 1)), 4500)]


# -- segments


async def test_nothing_beyond_last_consumable_is_read(writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        writer.segment(START + hours * HOUR, shards=1)
        writer.append(START + hours * HOUR, records("abc"[hours], 1))
    writer.consumable(START + HOUR, fraction=".000")
    feed = open_feed()
    events, cursor = await read(feed)
    assert paths(events) == ["a0", "b0"]
    writer.consumable(START + 2 * HOUR)
    assert paths((await read(feed, cursor))[0]) == ["c0"]


async def test_what_is_appended_late_to_an_earlier_publishing_segment_is_read(writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        writer.segment(START + hours * HOUR, final=hours == 1)
        writer.append(START + hours * HOUR, records("abc"[hours], 2))
    writer.consumable(START + 2 * HOUR)
    events, cursor = await read(open_feed())
    assert paths(events) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    writer.append(START, records("late", 7), shard=1)
    writer.append(START, records("a", 1, first=2), shard=0)
    events, cursor = await read(open_feed(), cursor)
    assert paths(events) == ["a2", *(f"late{number}" for number in range(7))]
    for hours in (0, 2):
        writer.finalize(START + hours * HOUR)
    events, cursor = await read(open_feed(), cursor)
    assert events == []
    assert json.loads(cursor or "")["done"] == "2026/11/30/2200"


async def test_segments_of_a_quarter_a_half_and_a_whole_hour_in_any_number_of_shards_follow_each_other(
    writer: FeedWriter, open_feed: Open
) -> None:
    begins = [START + timedelta(minutes=minutes) for minutes in (0, 15, 30, 60, 75)]
    for number, begin in enumerate(begins):
        writer.segment(begin, shards=number, minutes=[15, 15, 30, 15, 60][number], final=True)
        for shard in range(number):
            writer.append(begin, [record(f"{number}-{shard}")], shard=shard)
    writer.consumable(begins[-1])
    events, cursor = await read(open_feed())
    assert paths(events) == [f"{number}-{shard}" for number in range(5) for shard in range(number)]
    assert await read(open_feed(), cursor) == ([], cursor)


async def test_a_year_ends(sink: ContainerSink, open_feed: Open) -> None:
    writer = FeedWriter.of(sink)
    eve = datetime(2026, 12, 31, 23, tzinfo=UTC)
    begins = [eve - timedelta(days=40), eve, eve + HOUR, eve + timedelta(days=70)]
    for number, begin in enumerate(begins[:2]):
        writer.segment(begin, shards=1, final=True)
        writer.append(begin, records("ab"[number], 1))
    writer.consumable(begins[1])
    events, cursor = await read(open_feed())
    for number, begin in enumerate(begins[2:]):
        writer.segment(begin, shards=1, final=True)
        writer.append(begin, records("cd"[number], 1))
    writer.consumable(begins[-1])
    events += (await read(open_feed(), cursor))[0]
    assert paths(events) == ["a0", "b0", "c0", "d0"]


async def test_chunks_are_sorted_by_their_number_whatever_its_width(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=1, final=True)
    for chunk in (0, 9, 10, 100000):
        writer.append(START, [record(f"{chunk}")], chunk=chunk)
    writer.consumable(START)
    assert paths((await read(open_feed()))[0]) == ["0", "9", "10", "100000"]


async def test_a_used_up_segment_leads_to_the_next(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=1, final=True)
    writer.append(START, records("a", 1))
    writer.consumable(START)
    _events, cursor = await read(open_feed())
    writer.segment(START + 5 * HOUR, shards=1)
    writer.append(START + 5 * HOUR, records("b", 1))
    writer.consumable(START + 5 * HOUR)
    assert paths((await read(open_feed(), cursor))[0]) == ["b0"]


async def test_a_shard_without_a_chunk_does_not_stop_a_resume(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=3)
    writer.append(START, records("a", 3), shard=1)
    writer.consumable(START)
    _events, cursor = await read(open_feed())
    writer.append(START, records("b", 1), shard=2)
    assert paths((await read(open_feed(), cursor))[0]) == ["b0"]


# -- start


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+02:00", "-07:30"])
async def test_start_is_exact_to_the_event_in_any_time_zone(writer: FeedWriter, open_feed: Open, zone: str) -> None:
    for hours in range(6):
        writer.segment(START + hours * HOUR, shards=1, final=True)
        # The first event of each segment is ten minutes early: its segment is right to a quarter of an hour only.
        moments = [START + hours * HOUR + timedelta(minutes=minutes) for minutes in (-10, 5, 30, 31)]
        writer.append(START + hours * HOUR, [record(f"{moment:%H%M}", moment=moment) for moment in moments])
    writer.consumable(START + 5 * HOUR)
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


async def test_head_reads_no_event_and_misses_none_that_comes_after_it(writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, final=True)
    writer.append(START, records("old", 5))
    writer.segment(START + HOUR, shards=3)
    writer.append(START + HOUR, records("seen", 5), shard=0)
    torn = writer.block(records("torn", 3))
    writer.append(START + HOUR, records("seen", 5), shard=1)
    writer.raw(START + HOUR, torn[:50], shard=1)
    writer.consumable(START + HOUR)
    cursor: str | None = await open_feed().head()
    assert await read(open_feed(), cursor) == ([], cursor)
    writer.raw(START + HOUR, torn[50:], shard=1)
    writer.append(START + HOUR, records("new", 1), shard=0)
    writer.append(START + HOUR, records("other", 1), shard=2)
    writer.append(START + HOUR, records("next", 1), shard=0, chunk=1)
    events, cursor = await read(open_feed(), cursor)
    assert paths(events) == ["new0", "next0", "torn0", "torn1", "torn2", "other0"]
    assert await read(open_feed(), cursor) == ([], cursor)


async def test_the_head_of_a_feed_that_is_not_created_yet_is_its_beginning(sink: ContainerSink, open_feed: Open) -> None:
    cursor: str | None = await open_feed().head()
    events, first = await read(open_feed())
    assert events == []
    assert first == cursor, "a resume point, though there was nothing"
    writer = FeedWriter.of(sink)
    writer.segment(START, shards=1)
    writer.append(START, records("a", 1))
    assert await read(open_feed(), cursor) == ([], cursor)
    writer.consumable(START)
    assert paths((await read(open_feed(), cursor))[0]) == ["a0"]


# -- gaps, and feeds that cannot be read


async def test_a_cursor_older_than_the_retention_names_the_gap_and_the_remedy(writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        writer.segment(START + hours * HOUR, final=True)
        writer.append(START + hours * HOUR, records("abc"[hours], 1))
    writer.consumable(START)
    _events, cursor = await read(open_feed())
    writer.consumable(START + 2 * HOUR)
    writer.expire(START)
    with pytest.raises(FeedGapError, match=r"2026/11/30/2000.*oldest segment that it holds is 2026/11/30/2100.*ragstore index"):
        await read(open_feed(), cursor)
    assert paths((await read(open_feed()))[0]) == ["b0", "c0"]


async def test_a_chunk_that_is_gone_or_shorter_is_a_gap(writer: FeedWriter, sink: ContainerSink, open_feed: Open) -> None:
    writer.segment(START, shards=1)
    writer.append(START, records("a", 5))
    writer.consumable(START)
    _events, cursor = await read(open_feed())
    path = writer.chunk_path(START)
    sink.delete(path)
    with pytest.raises(FeedGapError, match="00000"):
        await read(open_feed(), cursor)
    sink.append(path, writer.header())
    with pytest.raises(FeedGapError, match="bytes, of which"):
        await read(open_feed(), cursor)


@pytest.mark.parametrize("change", [{"host": "other.blob.core.windows.net"}, {"container": "$other"}, {"version": 2}, {"open": None}])
async def test_a_cursor_of_another_feed_or_program_is_refused(writer: FeedWriter, open_feed: Open, change: dict[str, object]) -> None:
    cursor = await open_feed().head()
    for text in (json.dumps({**json.loads(cursor), **change}), "not a cursor", "[]", ""):
        with pytest.raises(FeedGapError, match="ragstore index"):
            await read(open_feed(), text)


async def test_disabled_and_forbidden_feeds_say_what_to_do(
    azurite: Azurite, writer: FeedWriter, open_feed: Open, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in (open_feed(container="$missing").head(), read(open_feed(container="$missing"))):
        with pytest.raises(ConfigError, match=r"not enabled.*enable it"):
            await attempt
    async with AzureProxy(azurite.port) as proxy:
        proxy.add(Fault(matches=lambda _request: True, times=99, answer=refusal(403, "AuthorizationPermissionMismatch")))
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        feed = open_feed(source_options={"url": url, "account_key_env": "AZURITE_KEY"})
        with pytest.raises(ConfigError, match="Storage Blob Data Reader"):
            await feed.head()


async def test_an_error_in_mid_read_is_never_the_end(azurite: Azurite, writer: FeedWriter, open_feed: Open, name: str) -> None:
    for hours in range(4):
        writer.segment(START + hours * HOUR, shards=1, final=True)
        writer.append(START + hours * HOUR, records("abcd"[hours], 1))
    writer.consumable(START + 3 * HOUR)

    def asks(part: str) -> Callable[[Request], bool]:
        return lambda request: part in request.path + request.query.get("prefix", "")

    async with AzureProxy(azurite.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        for part in ("meta/segments.json", "idx/segments/", "2026/11/30/2200/meta.json", "log/00/2026/11/30/", "30/2200/00000.avro"):
            feed = open_feed(source_options={"url": url, "account_key_env": "AZURITE_KEY"})
            proxy.faults = [Fault(matches=asks(part), times=2, answer=refusal(503, "ServerBusy"))]
            with pytest.raises(TransientError, match="503"):
                await read(feed)
            assert len((await read(feed))[0]) == 4
        proxy.faults = [Fault(matches=asks("2200/meta.json"), answer=refusal(404, "BlobNotFound"))]
        with pytest.raises(FeedGapError, match="2200"):
            await read(feed)
        proxy.faults = [Fault(matches=asks("2200/00000.avro"), answer=refusal(416, "InvalidRange"))]
        with pytest.raises(TransientError, match="0 bytes"):
            await read(feed)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"lastConsumable": "soon"}'])
async def test_an_unreadable_document_of_the_feed_is_read_again_later(sink: ContainerSink, open_feed: Open, body: bytes) -> None:
    sink.put("meta/segments.json", body)
    with pytest.raises(TransientError, match=r"segments\.json"):
        await read(open_feed())


# -- which blobs


async def test_only_what_the_source_admits_is_told_and_the_rest_is_counted(writer: FeedWriter, open_feed: Open) -> None:
    odd = ["a/blobs/b", "blobs/x", "ä€ 😀", "100%", "a//b", "q?x#y"]
    writer.segment(START, shards=1)
    writer.append(
        START,
        [
            *(record(path) for path in odd),
            record("x", container="other"),
            record("x", container="docs2"),
            record("private/x"),
            record("", type="Control", api="ControlEvent", subject=""),
            record("", subject="/blobServices/default/containers/docs"),
            record("", subject=b"/blobServices/default/containers/docs/blobs/\xff"),
        ],
    )
    writer.consumable(START)
    (batch,) = [batch async for batch in open_feed().read(None)]
    assert [event.blob.path for event in batch.events] == odd
    assert batch.skipped == {"another container": 3, "a path that the source leaves out": 1, "Control": 1, "no blob's name": 1}


# -- requests, endpoints, registration


async def test_a_poll_without_events_makes_few_requests_and_lists_no_history(azurite: Azurite, writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(-30, 0):
        writer.segment(START + hours * HOUR, shards=2, final=True)
    writer.segment(START, shards=2)
    for shard in (0, 1):
        writer.append(START, records("a", 3), shard=shard)
    writer.consumable(START)
    async with AzureProxy(azurite.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        feed = open_feed(source_options={"url": url, "account_key_env": "AZURITE_KEY"})
        _events, cursor = await read(feed)
        proxy.requests.clear()
        assert await read(feed, cursor) == ([], cursor)
        asked = [request.query.get("prefix") or request.path.partition("/feed-")[2][21:] for request in proxy.requests]
        assert sorted(asked) == ["idx/segments/2026/11/30/", "log/00/2026/11/30/2000/", "log/01/2026/11/30/2000/", "meta/segments.json"]


async def test_a_grown_chunk_is_read_from_where_it_was_left(azurite: Azurite, writer: FeedWriter, open_feed: Open) -> None:
    writer.segment(START, shards=1)
    writer.append(START, records("a", 1000))
    writer.consumable(START)
    async with AzureProxy(azurite.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        options = {"url": url, "account_key_env": "AZURITE_KEY"}
        feed = open_feed(source_options=options)
        _events, cursor = await read(feed)
        for reader in (feed, open_feed(source_options=options)):
            proxy.requests.clear()
            size = json.loads(cursor or "")["open"]["2026/11/30/2000"]["log/00/2026/11/30/2000/"][1]
            writer.append(START, records("b", 1))
            events, cursor = await read(reader, cursor)
            assert paths(events) == ["b0"]
            ranges = [request.range for request in proxy.requests if request.path.endswith(".avro")]
            begins = [int(asked.partition("=")[2].partition("-")[0]) for asked in ranges]
            assert begins == ([size] if reader is feed else [size, 0]), "a new reader asks for the header besides"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://acct.dfs.core.windows.net", "https://acct.blob.core.windows.net"),
        ("https://acct.blob.core.windows.net", "https://acct.blob.core.windows.net"),
        ("https://files.example.org", "https://files.example.org"),
        ("http://127.0.0.1:10000/devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1"),
    ],
)
def test_the_dfs_endpoint_is_replaced_by_that_of_blobs(given: str, wanted: str) -> None:
    assert blob_endpoint(given) == wanted


async def test_the_configuration_builds_it_and_refuses_nonsense(source: AzureBlobSource, tmp_path: Path) -> None:
    context = {"base": tmp_path, "source": source, "source_options": OPTIONS}
    feed = build("feeds", "change-feed", {"poll_seconds": 5}, **context)
    assert (feed.name, feed.poll_seconds) == ("change-feed devstoreaccount1/docs", 5)
    await feed.close()
    for wrong in ({"parallel": 0}, {"poll_seconds": 0}, {"container": "A"}, {"until": "now"}):
        with pytest.raises(ConfigError):
            build("feeds", "change-feed", wrong, **context)


# -- the shared generator, where it is there


def generate(shared: Path, *arguments: str) -> None:
    tool = [sys.executable, str(shared / "tools" / "gen_feed.py"), "--events=1200", "--hours=4", "--blobs=100"]
    subprocess.run([*tool, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize(
    "arguments",
    [
        *([f"--schema={version}"] for version in (1, 3, 4, 5, 6, 7, 8)),
        ["--codec=deflate", "--block-events=7"],
        ["--publishing=2", "--empty-shards=2", "--no-url"],
        ["--control=0.2", "--dup=0.1", "--versioning", "--every=5"],
        ["--chunk-events=50", "--skew=0"],
    ],
    ids=" ".join,
)
async def test_feeds_of_the_shared_generator_are_read_event_for_event(
    azurite: Azurite, shared: Path, tmp_path: Path, name: str, source: AzureBlobSource, open_feed: Open, arguments: list[str]
) -> None:
    fastavro = pytest.importorskip("fastavro")
    for target in (["--out", str(tmp_path)], ["--conn", azurite.connection_string, "--container", name]):
        generate(shared, *arguments, *target)
    source.container = "cont01"
    events, _cursor = await read(open_feed())
    last = json.loads((tmp_path / "meta" / "segments.json").read_text())["lastConsumable"][:13]
    expected = []
    for path in sorted((tmp_path / "log").glob("*/*/*/*/*/*.avro"), key=lambda path: (path.parts[-5:-1], path.parts[-6], path.name)):
        if f"{path.parts[-5]}-{path.parts[-4]}-{path.parts[-3]}T{path.parts[-2][:2]}" <= last:
            with path.open("rb") as file:
                expected += list(fastavro.reader(file))
    wanted = [
        (one["subject"].partition("/blobs/")[2], one["data"]["sequencer"], one["eventTime"][:26])
        for one in expected
        if "/cont01/" in one["subject"] and one["eventType"] not in {"Control", "BlobSnapshotCreated"}
    ]
    assert wanted
    assert [(event.blob.path, event.sequencer, event.moment.strftime("%Y-%m-%dT%H:%M:%S.%f")) for event in events] == wanted
