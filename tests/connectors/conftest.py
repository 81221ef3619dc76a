"""A queue of Event Grid's in; feeds on it, and whoever else writes to it and reads from it, out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ragstore_azure import AzureBlobSource, EventQueue
from ragstore_azure.retries import Patience
from tests.support.event_grid import EventGridWriter
from tests.support.event_queue import Open

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
