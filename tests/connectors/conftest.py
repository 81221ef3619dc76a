"""A queue of Event Grid's, or a container for a change feed, in; feeds on it, and whoever else writes to it and reads from it, out."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ragstore.testing.rows import DIMENSIONS
from ragstore_azure import AzureBlobSource, ChangeFeed, EventQueue
from ragstore_azure.retries import Patience
from ragstore_azure.search import AzureSearchStore
from ragstore_folder import WatchFeed
from ragstore_pinecone import PineconeStore
from tests.fakes.azure_search import AzureSearch
from tests.fakes.pinecone import PineconeServer
from tests.support import azure_search, change_feed
from tests.support.certificates import without_authorities
from tests.support.event_grid import EventGridWriter
from tests.support.event_queue import Open
from tests.support.feed_writer import ContainerSink, FeedWriter
from tests.support.pinecone_stores import OpenPinecone
from tests.support.watching import Start, feed_of

if TYPE_CHECKING:
    from azure.storage.queue.aio import QueueClient

    from tests.conftest import Azurite


@pytest.fixture
def grid(azurite_queue: Azurite) -> EventGridWriter:
    """Writes events of the container that `source_options` names."""
    return EventGridWriter(account=azurite_queue.account_name, container="docs", endpoint=azurite_queue.blob_endpoint)


@pytest.fixture
async def queue_client(azurite_queue: Azurite, queue: str) -> AsyncIterator[QueueClient]:
    """Somebody else at the queue."""
    from azure.storage.queue.aio import QueueClient

    async with QueueClient.from_connection_string(azurite_queue.connection_string, queue) as client:
        yield client


@pytest.fixture
async def poison_client(azurite_queue: Azurite, queue: str) -> AsyncIterator[QueueClient]:
    """The queue beside it, which may not be there."""
    from azure.storage.queue.aio import QueueClient

    async with QueueClient.from_connection_string(azurite_queue.connection_string, f"{queue}-poison") as client:
        yield client


@pytest.fixture
def source_options(azurite_queue: Azurite, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of the source of which the queue is a feed."""
    monkeypatch.setenv("AZURITE_CONNECTION", azurite_queue.connection_string)
    return {"url": f"{azurite_queue.blob_endpoint}/docs", "connection_string_env": "AZURITE_CONNECTION"}


@pytest.fixture
async def open_queue(queue: str, tmp_path: Path, source_options: Mapping[str, Any]) -> AsyncIterator[Open]:
    """Opens any number of feeds on the queue; closes them in the end."""
    opened: list[EventQueue] = []
    source = AzureBlobSource(**source_options)

    def open_(**options: Any) -> EventQueue:
        given = {"queue": queue, "source_options": source_options, **options}
        feed = EventQueue(base=tmp_path, source=source, **given)
        feed.patience = Patience(attempts=2, first_pause=0.01)
        opened.append(feed)
        return feed

    yield open_
    for feed in opened:
        await feed.close()
    await source.close()


@pytest.fixture
async def feed_source(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureBlobSource]:
    """That of the container `docs`, of which the change feed is one."""
    monkeypatch.setenv("AZURITE_CONNECTION", azurite.connection_string)
    monkeypatch.setenv("AZURITE_KEY", azurite.account_key)
    source = AzureBlobSource(**change_feed.SOURCE_OPTIONS, exclude=["private/**"])
    yield source
    await source.close()


@pytest.fixture
def feed_container() -> str:
    """The name of a container that is not there yet."""
    return f"feed-{uuid.uuid4().hex[:20]}"


@pytest.fixture
def feed_sink(azurite: Azurite, feed_container: str) -> ContainerSink:
    """The container: a feed that is enabled, and not created yet."""
    from azure.storage.blob import ContainerClient

    return ContainerSink(ContainerClient.from_connection_string(azurite.connection_string, feed_container))


@pytest.fixture
def feed_writer(feed_sink: ContainerSink) -> FeedWriter:
    """A feed whose first, empty segment is there, and nothing yet to be consumed."""
    return FeedWriter.of(feed_sink)


@pytest.fixture
async def open_feed(feed_source: AzureBlobSource, feed_container: str) -> AsyncIterator[change_feed.Open]:
    """Opens any number of readers of the change feed; closes them in the end."""
    opened: list[ChangeFeed] = []

    def open_(**options: Any) -> ChangeFeed:
        given = {"source_options": change_feed.SOURCE_OPTIONS, "container": feed_container, **options}
        feed = ChangeFeed(base=Path(), source=feed_source, **given)
        feed.patience = Patience(attempts=2, first_pause=0.01)
        opened.append(feed)
        return feed

    yield open_
    for feed in opened:
        await feed.close()


@pytest.fixture
async def start(root: Path) -> AsyncIterator[Start]:
    """For tests with a `root`: makes feeds that already watch, and closes them in the end."""
    feeds: list[WatchFeed] = []

    async def make(*, debounce_seconds: float = 0.1, poll: bool = False, **options: Any) -> WatchFeed:
        feeds.append(feed_of(root, debounce_seconds=debounce_seconds, poll=poll, **options))
        await feeds[-1].head()
        return feeds[-1]

    yield make
    for feed in feeds:
        await feed.close()


@pytest.fixture
def pinecone_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PineconeServer]:
    """A fake of Pinecone with an index `ragstore`; every request and answer is checked against the vendor's contract."""
    monkeypatch.setenv("PINECONE_API_KEY", "secret")
    without_authorities(monkeypatch, tmp_path)
    with PineconeServer(dimension=DIMENSIONS) as running:
        yield running


@pytest.fixture
async def open_pinecone(pinecone_server: PineconeServer) -> AsyncIterator[OpenPinecone]:
    """Opens any number of stores in it."""
    opened: list[PineconeStore] = []

    def open_(
        collection: str = "chunks", dimensions: int = DIMENSIONS, *, kind: type[PineconeStore] = PineconeStore, **options: Any
    ) -> Any:
        given = {"index": "ragstore", "endpoint": pinecone_server.host, "wait_seconds": 10.0, **options}
        opened.append(kind(collection=collection, dimensions=dimensions, **given))
        return opened[-1]

    yield open_
    for store in opened:
        await store.close()


@pytest.fixture
def search_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureSearch]:
    """A fake of Azure AI Search, which in the end has answered as the real one would."""
    with AzureSearch() as service:
        monkeypatch.setenv(azure_search.KEY_VARIABLE, service.key)
        yield service
    assert service.broken == []


@pytest.fixture
async def open_search(search_service: AzureSearch) -> AsyncIterator[azure_search.Open]:
    """Opens any number of stores at that service; closes them in the end."""
    opened: list[AzureSearchStore] = []

    def open_(kind: type[AzureSearchStore] = azure_search.HastyStore, **options: Any) -> AzureSearchStore:
        given = {"endpoint": search_service.url, "key_env": azure_search.KEY_VARIABLE, "collection": "chunks", "dimensions": DIMENSIONS}
        opened.append(kind(**{**given, **options}))
        return opened[-1]

    yield open_
    for store in opened:
        await store.close()
