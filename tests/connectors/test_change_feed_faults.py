from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ragstore.errors import ConfigError, FeedGapError, TransientError
from ragstore.plugins import build
from ragstore_azure import AzureBlobSource
from ragstore_azure.changefeed.feed import blob_endpoint
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, refusal
from tests.support.change_feed import SOURCE_OPTIONS, Open, paths, read, records
from tests.support.feed_writer import HOUR, START, ContainerSink, FeedWriter, record

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite


# -- gaps, and feeds that cannot be read


async def test_a_cursor_older_than_the_retention_names_the_gap_and_the_remedy(feed_writer: FeedWriter, open_feed: Open) -> None:
    for hours in range(3):
        feed_writer.segment(START + hours * HOUR, final=True)
        feed_writer.append(START + hours * HOUR, records("abc"[hours], 1))
    feed_writer.consumable(START)
    _events, cursor = await read(open_feed())
    feed_writer.consumable(START + 2 * HOUR)
    feed_writer.expire(START)
    with pytest.raises(FeedGapError, match=r"2026/11/30/2000.*oldest segment that it holds is 2026/11/30/2100.*ragstore index"):
        await read(open_feed(), cursor)
    assert paths((await read(open_feed()))[0]) == ["b0", "c0"]


async def test_a_chunk_that_is_gone_or_shorter_is_a_gap(feed_writer: FeedWriter, feed_sink: ContainerSink, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1)
    feed_writer.append(START, records("a", 5))
    feed_writer.consumable(START)
    _events, cursor = await read(open_feed())
    path = feed_writer.chunk_path(START)
    feed_sink.delete(path)
    with pytest.raises(FeedGapError, match="00000"):
        await read(open_feed(), cursor)
    feed_sink.append(path, feed_writer.header())
    with pytest.raises(FeedGapError, match="bytes, of which"):
        await read(open_feed(), cursor)


@pytest.mark.parametrize("change", [{"host": "other.blob.core.windows.net"}, {"container": "$other"}, {"version": 2}, {"open": None}])
async def test_a_cursor_of_another_feed_or_program_is_refused(feed_writer: FeedWriter, open_feed: Open, change: dict[str, object]) -> None:
    cursor = await open_feed().head()
    for text in (json.dumps({**json.loads(cursor), **change}), "not a cursor", "[]", ""):
        with pytest.raises(FeedGapError, match="ragstore index"):
            await read(open_feed(), text)


async def test_disabled_and_forbidden_feeds_say_what_to_do(
    azurite: Azurite, feed_writer: FeedWriter, open_feed: Open, feed_container: str, monkeypatch: pytest.MonkeyPatch
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


async def test_an_error_in_mid_read_is_never_the_end(
    azurite: Azurite, feed_writer: FeedWriter, open_feed: Open, feed_container: str
) -> None:
    for hours in range(4):
        feed_writer.segment(START + hours * HOUR, shards=1, final=True)
        feed_writer.append(START + hours * HOUR, records("abcd"[hours], 1))
    feed_writer.consumable(START + 3 * HOUR)

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
async def test_an_unreadable_document_of_the_feed_is_read_again_later(feed_sink: ContainerSink, open_feed: Open, body: bytes) -> None:
    feed_sink.put("meta/segments.json", body)
    with pytest.raises(TransientError, match=r"segments\.json"):
        await read(open_feed())


# -- which blobs


async def test_only_what_the_source_admits_is_told_and_the_rest_is_counted(feed_writer: FeedWriter, open_feed: Open) -> None:
    odd = ["a/blobs/b", "blobs/x", "ä€ 😀", "100%", "a//b", "q?x#y"]
    feed_writer.segment(START, shards=1)
    feed_writer.append(
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
    feed_writer.consumable(START)
    (batch,) = [batch async for batch in open_feed().read(None)]
    assert [event.blob.path for event in batch.events] == odd
    assert batch.skipped == {"another container": 3, "a path that the source leaves out": 1, "Control": 1, "no blob's name": 1}


# -- requests, endpoints, registration


async def test_a_poll_without_events_makes_few_requests_and_lists_no_history(
    azurite: Azurite, feed_writer: FeedWriter, open_feed: Open
) -> None:
    for hours in range(-30, 0):
        feed_writer.segment(START + hours * HOUR, shards=2, final=True)
    feed_writer.segment(START, shards=2)
    for shard in (0, 1):
        feed_writer.append(START, records("a", 3), shard=shard)
    feed_writer.consumable(START)
    async with AzureProxy(azurite.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        feed = open_feed(source_options={"url": url, "account_key_env": "AZURITE_KEY"})
        _events, cursor = await read(feed)
        proxy.requests.clear()
        assert await read(feed, cursor) == ([], cursor)
        asked = [request.query.get("prefix") or request.path.partition("/feed-")[2][21:] for request in proxy.requests]
        assert sorted(asked) == ["idx/segments/2026/11/30/", "log/00/2026/11/30/2000/", "log/01/2026/11/30/2000/", "meta/segments.json"]


async def test_a_grown_chunk_is_read_from_where_it_was_left(azurite: Azurite, feed_writer: FeedWriter, open_feed: Open) -> None:
    feed_writer.segment(START, shards=1)
    feed_writer.append(START, records("a", 1000))
    feed_writer.consumable(START)
    async with AzureProxy(azurite.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/docs"
        options = {"url": url, "account_key_env": "AZURITE_KEY"}
        feed = open_feed(source_options=options)
        _events, cursor = await read(feed)
        for reader in (feed, open_feed(source_options=options)):
            proxy.requests.clear()
            size = json.loads(cursor or "")["open"]["2026/11/30/2000"]["log/00/2026/11/30/2000/"][1]
            feed_writer.append(START, records("b", 1))
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


async def test_the_configuration_builds_it_and_refuses_nonsense(feed_source: AzureBlobSource, tmp_path: Path) -> None:
    context = {"base": tmp_path, "source": feed_source, "source_options": SOURCE_OPTIONS}
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
    azurite: Azurite, shared: Path, tmp_path: Path, feed_container: str, feed_source: AzureBlobSource, open_feed: Open, arguments: list[str]
) -> None:
    fastavro = pytest.importorskip("fastavro")
    for target in (["--out", str(tmp_path)], ["--conn", azurite.connection_string, "--container", feed_container]):
        generate(shared, *arguments, *target)
    feed_source.container = "cont01"
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
