"""A feed or a queue in; what it holds at this moment out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ragstore.models import EventBatch

if TYPE_CHECKING:
    from azure.storage.queue.aio import QueueClient

    from ragstore_azure import EventQueue

Open = Callable[..., "EventQueue"]
"""Opens a feed with these options; the fixture `open_queue`."""


async def batches_of(feed: EventQueue) -> list[EventBatch]:
    """What there is now, unsettled."""
    return [batch async for batch in feed.read(None)]


def paths(batch: EventBatch) -> list[str]:
    return [event.blob.path for event in batch.events]


async def received(queue_client: QueueClient) -> list[str]:
    """What anybody else may receive at this moment."""
    return [message.content async for message in queue_client.receive_messages(messages_per_page=32, visibility_timeout=1)]


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    for _look in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not within {seconds} s")
