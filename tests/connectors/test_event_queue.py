from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue.aio import QueueClient

from ragstore_azure import EventQueue
from tests.support.event_grid import EventGridWriter, as_message
from tests.support.event_queue import Open, batches_of, paths, received, until

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.azurite


# -- from the queue to events


async def test_events_come_out_and_are_deleted_once_they_are_settled(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    for n in range(3):
        await queue_client.send_message(as_message(grid.created(f"{n}.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert sorted(paths(batch)) == ["0.md", "1.md", "2.md"]
    assert batch.cursor is None
    assert await feed.depth() == 3
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert feed.taken == 0


async def test_events_of_a_batch_are_in_the_order_of_their_times(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    first, second = grid.created("a.md"), grid.deleted("a.md")
    await queue_client.send_message(as_message(second))
    await queue_client.send_message(as_message(first))
    (batch,) = await batches_of(open_queue())
    assert [event.hint for event in batch.events] == ["content", "gone"]


async def test_a_full_queue_comes_in_large_batches_until_it_is_empty(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await asyncio.gather(*(queue_client.send_message(as_message(grid.created(f"{n}.md"))) for n in range(150)))
    batches = await batches_of(open_queue())
    assert [len(batch.events) for batch in batches] == [128, 22]


async def test_an_empty_queue_gives_nothing(open_queue: Open) -> None:
    feed = open_queue()
    assert await feed.head() is None
    assert await batches_of(feed) == []


async def test_plain_text_beside_base64_blocks_nothing(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    # The decode policy of the SDK fails the whole page for it.
    await queue_client.send_message(as_message(grid.created("a.md"), base64_encoded=False))
    await queue_client.send_message(as_message(grid.created("b.md")))
    (batch,) = await batches_of(open_queue())
    assert sorted(paths(batch)) == ["a.md", "b.md"]


async def test_what_says_nothing_of_the_source_is_deleted_and_counted(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = EventGridWriter(account="other", container="docs")
    elsewhere = EventGridWriter(account=grid.account, container="other")
    for event in (foreign.created("a.md"), elsewhere.created("a.md"), grid.event("BlobPondered", "a.md", api="X")):
        await queue_client.send_message(as_message(event))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert batch.events == ()
    assert batch.skipped == {"another account": 1, "another container": 1, "BlobPondered": 1}
    assert await feed.depth() == 0
    await feed.settle(batch)
    assert [record.levelname for record in caplog.records if "azure.queue.foreign" in record.message] == ["WARNING"]


async def test_skipped_events_are_counted_once_beside_others(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    await queue_client.send_message(as_message([grid.created("a.md"), grid.event("DirectoryCreated", "d", api="CreateDirectory")]))
    await queue_client.send_message(as_message(grid.created("b.md", api="CreateFile", size=0)))
    (batch,) = await batches_of(open_queue())
    assert paths(batch) == ["a.md"]
    assert batch.skipped == {"DirectoryCreated/CreateDirectory": 1, "BlobCreated/CreateFile (empty)": 1}


async def test_the_options_of_the_source_say_which_paths_count(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter, source_options: dict[str, Any]
) -> None:
    for path in ("in/a.md", "in/a.txt", "out/a.md"):
        await queue_client.send_message(as_message(grid.created(path)))
    (batch,) = await batches_of(open_queue(source_options={**source_options, "prefix": "in/", "include": ["**/*.md"]}))
    assert paths(batch) == ["in/a.md"]
    assert batch.skipped == {"not admitted": 2}


# -- what cannot be read


async def test_an_unreadable_message_goes_to_the_poison_queue_with_the_reason(
    open_queue: Open, queue_client: QueueClient, poison_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message("<not> json & no base64")
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert paths(batch) == ["a.md"]
    assert batch.skipped == {"unreadable": 1}
    assert await feed.depth() == 1
    (text,) = await received(poison_client)
    told = json.loads(text)
    assert told["content"] == "<not> json & no base64"
    assert "neither JSON nor base64" in told["reasons"][0]


async def test_the_poison_queue_is_created_once_and_kept(open_queue: Open, queue_client: QueueClient, poison_client: QueueClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        await poison_client.get_queue_properties()
    feed = open_queue()
    for _time in range(2):
        await queue_client.send_message("?")
        await batches_of(feed)
    assert len(await received(poison_client)) == 2


async def test_of_a_message_of_many_events_the_readable_ones_are_applied_and_the_rest_is_set_aside_after_that(
    open_queue: Open, queue_client: QueueClient, poison_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message([grid.created("a.md"), {"bad": True}]))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert paths(batch) == ["a.md"]
    assert await feed.depth() == 1
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert len(await received(poison_client)) == 1


async def test_the_largest_unreadable_message_fits_into_the_poison_queue(
    open_queue: Open, queue_client: QueueClient, poison_client: QueueClient
) -> None:
    text = '"<ä' * (2**16 // 7 - 100)  # a request of just under 64 KiB, as XML: of larger ones Azurite refuses some
    await queue_client.send_message(text)
    await batches_of(open_queue())
    (found,) = await received(poison_client)
    told = json.loads(found)
    assert told["characters"] == len(text)
    assert text.startswith(told["content"])
    assert len(told["content"]) > 1000


# -- messages in hand


async def test_messages_in_hand_stay_invisible_for_as_long_as_there_is_work_on_them(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(visibility_seconds=1)
    (batch,) = await batches_of(feed)
    for _look in range(12):
        await asyncio.sleep(0.25)
        assert await received(queue_client) == []
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert feed.taken == 0


async def test_messages_of_a_batch_that_was_given_up_come_back(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(visibility_seconds=1)
    assert len(await batches_of(feed)) == 1
    gc.collect()
    for _look in range(50):
        await asyncio.sleep(0.1)
        if batches := await batches_of(feed):
            assert paths(batches[0]) == ["a.md"]
            return
    pytest.fail("the message did not come back")


async def test_a_message_that_somebody_else_has_received_is_left_to_them(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    await queue_client.send_message(as_message(grid.created("b.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    await steal(feed, queue_client)
    await feed.settle(batch)
    assert feed.taken == 1
    assert await feed.depth() == 1


async def test_a_message_that_somebody_else_has_deleted_is_done_with(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(visibility_seconds=2)
    (batch,) = await batches_of(feed)
    await queue_client.clear_messages()
    await until(lambda: feed.taken == 1)  # the extension finds out
    await feed.settle(batch)
    assert feed.taken == 1


async def steal(feed: EventQueue, queue_client: QueueClient) -> None:
    """As if one of the feed's messages had been visible for a moment."""
    hand = next(hand for hand in feed._in_hand if hand.messages)
    message = hand.messages[0][0]
    await queue_client.update_message(message.id, message.pop_receipt, visibility_timeout=0)
    assert len(await received(queue_client)) == 1


async def test_competing_consumers_share_the_messages(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    await asyncio.gather(*(queue_client.send_message(as_message(grid.created(f"{n}.md"))) for n in range(200)))
    seen: Counter[str] = Counter()
    workers = Counter[int]()

    async def work(number: int, feed: EventQueue) -> None:
        async for batch in feed.read(None):
            await asyncio.sleep(0.05)
            seen.update(paths(batch))
            workers[number] += 1
            await feed.settle(batch)

    feeds = [open_queue(visibility_seconds=20) for _worker in range(3)]
    await asyncio.gather(*(work(number, feed) for number, feed in enumerate(feeds)))
    assert seen == {f"{n}.md": 1 for n in range(200)}
    assert len(workers) > 1
    assert await feeds[0].depth() == 0
    assert [feed.taken for feed in feeds] == [0, 0, 0]


async def test_a_message_that_was_tried_often_comes_first_and_alone(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("suspect.md")))
    for _attempt in range(2):
        async for message in queue_client.receive_messages(visibility_timeout=60):
            await queue_client.update_message(message, visibility_timeout=0, content=message.content)
            break
    for n in range(3):
        await queue_client.send_message(as_message(grid.created(f"{n}.md")))
    feed = open_queue(max_attempts=2)
    alone, together = await batches_of(feed)
    assert paths(alone) == ["suspect.md"]
    assert sorted(paths(together)) == ["0.md", "1.md", "2.md"]
    await feed.settle(alone)
    await feed.settle(together)
    assert await feed.depth() == 0


async def test_a_reader_that_stops_early_returns_what_was_not_handed_out(
    open_queue: Open, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("suspect.md")))
    async for message in queue_client.receive_messages(visibility_timeout=60):
        await queue_client.update_message(message, visibility_timeout=0, content=message.content)
        break
    await queue_client.send_message(as_message(grid.created("a.md")))
    reading = open_queue(max_attempts=1).read(None)
    assert paths(await anext(reading)) == ["suspect.md"]
    await reading.aclose()  # type: ignore[attr-defined]
    assert len(await received(queue_client)) == 1


# -- the end


async def test_closing_returns_what_is_not_settled_at_once(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    for n in range(5):
        await queue_client.send_message(as_message(grid.created(f"{n}.md")))
    feed, other = open_queue(), open_queue()
    batches = await batches_of(feed)
    assert await batches_of(other) == []
    await feed.close()
    (again,) = await batches_of(other)
    assert sorted(paths(again)) == sorted(paths(batches[0]))


async def test_closing_twice_and_without_reading_is_harmless(open_queue: Open) -> None:
    feed = open_queue()
    await feed.close()
    await feed.close()


async def test_closing_ends_the_extension(open_queue: Open, queue_client: QueueClient, grid: EventGridWriter) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue()
    batches = await batches_of(feed)
    await feed.close()
    assert len(batches) == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("extend ")]
