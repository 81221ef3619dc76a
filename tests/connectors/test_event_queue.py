from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import generate_queue_sas
from azure.storage.queue.aio import QueueClient

from ragstore.errors import ConfigError, TransientError
from ragstore.models import EventBatch
from ragstore.plugins import build
from ragstore_azure import AzureBlobSource, EventQueue
from ragstore_azure.credentials import CredentialVariables
from ragstore_azure.event_queue import source_address
from ragstore_azure.queue_access import QueueAccess, open_queue_access
from ragstore_azure.retries import Patience
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, refusal
from tests.support.event_grid import EventGridWriter, as_message

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite

Open = Callable[..., EventQueue]


@pytest.fixture(autouse=True)
def _secrets(azurite_queue: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURITE_CONNECTION", azurite_queue.connection_string)
    monkeypatch.setenv("AZURITE_KEY", azurite_queue.account_key)


@pytest.fixture
def grid(azurite_queue: Azurite) -> EventGridWriter:
    return EventGridWriter(account=azurite_queue.account_name, container="docs", endpoint=azurite_queue.blob_endpoint)


@pytest.fixture
async def client(azurite_queue: Azurite, queue: str) -> AsyncIterator[QueueClient]:
    async with QueueClient.from_connection_string(azurite_queue.connection_string, queue) as client:
        yield client


@pytest.fixture
async def poison(azurite_queue: Azurite, queue: str) -> AsyncIterator[QueueClient]:
    async with QueueClient.from_connection_string(azurite_queue.connection_string, f"{queue}-poison") as client:
        yield client


@pytest.fixture
def source_options(azurite_queue: Azurite) -> dict[str, Any]:
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


async def batches_of(feed: EventQueue) -> list[EventBatch]:
    """What there is now, unsettled."""
    return [batch async for batch in feed.read(None)]


def paths(batch: EventBatch) -> list[str]:
    return [event.blob.path for event in batch.events]


async def received(client: QueueClient) -> list[str]:
    """What anybody else may receive at this moment."""
    return [message.content async for message in client.receive_messages(messages_per_page=32, visibility_timeout=1)]


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    for _look in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not within {seconds} s")


# -- from the queue to events


async def test_events_come_out_and_are_deleted_once_they_are_settled(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    for n in range(3):
        await client.send_message(as_message(grid.created(f"{n}.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert sorted(paths(batch)) == ["0.md", "1.md", "2.md"]
    assert batch.cursor is None
    assert await feed.depth() == 3
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert feed.taken == 0


async def test_events_of_a_batch_are_in_the_order_of_their_times(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    first, second = grid.created("a.md"), grid.deleted("a.md")
    await client.send_message(as_message(second))
    await client.send_message(as_message(first))
    (batch,) = await batches_of(open_queue())
    assert [event.hint for event in batch.events] == ["content", "gone"]


async def test_a_full_queue_comes_in_large_batches_until_it_is_empty(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await asyncio.gather(*(client.send_message(as_message(grid.created(f"{n}.md"))) for n in range(150)))
    batches = await batches_of(open_queue())
    assert [len(batch.events) for batch in batches] == [128, 22]


async def test_an_empty_queue_gives_nothing(open_queue: Open) -> None:
    feed = open_queue()
    assert await feed.head() is None
    assert await batches_of(feed) == []


async def test_plain_text_beside_base64_blocks_nothing(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    # The decode policy of the SDK fails the whole page for it.
    await client.send_message(as_message(grid.created("a.md"), base64_encoded=False))
    await client.send_message(as_message(grid.created("b.md")))
    (batch,) = await batches_of(open_queue())
    assert sorted(paths(batch)) == ["a.md", "b.md"]


async def test_what_says_nothing_of_the_source_is_deleted_and_counted(
    open_queue: Open, client: QueueClient, grid: EventGridWriter, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = EventGridWriter(account="other", container="docs")
    elsewhere = EventGridWriter(account=grid.account, container="other")
    for event in (foreign.created("a.md"), elsewhere.created("a.md"), grid.event("BlobPondered", "a.md", api="X")):
        await client.send_message(as_message(event))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert batch.events == ()
    assert batch.skipped == {"another account": 1, "another container": 1, "BlobPondered": 1}
    assert await feed.depth() == 0
    await feed.settle(batch)
    assert [record.levelname for record in caplog.records if "azure.queue.foreign" in record.message] == ["WARNING"]


async def test_skipped_events_are_counted_once_beside_others(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message([grid.created("a.md"), grid.event("DirectoryCreated", "d", api="CreateDirectory")]))
    await client.send_message(as_message(grid.created("b.md", api="CreateFile", size=0)))
    (batch,) = await batches_of(open_queue())
    assert paths(batch) == ["a.md"]
    assert batch.skipped == {"DirectoryCreated/CreateDirectory": 1, "BlobCreated/CreateFile (empty)": 1}


async def test_the_options_of_the_source_say_which_paths_count(
    open_queue: Open, client: QueueClient, grid: EventGridWriter, source_options: dict[str, Any]
) -> None:
    for path in ("in/a.md", "in/a.txt", "out/a.md"):
        await client.send_message(as_message(grid.created(path)))
    (batch,) = await batches_of(open_queue(source_options={**source_options, "prefix": "in/", "include": ["**/*.md"]}))
    assert paths(batch) == ["in/a.md"]
    assert batch.skipped == {"not admitted": 2}


# -- what cannot be read


async def test_an_unreadable_message_goes_to_the_poison_queue_with_the_reason(
    open_queue: Open, client: QueueClient, poison: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message("<not> json & no base64")
    await client.send_message(as_message(grid.created("a.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert paths(batch) == ["a.md"]
    assert batch.skipped == {"unreadable": 1}
    assert await feed.depth() == 1
    (text,) = await received(poison)
    told = json.loads(text)
    assert told["content"] == "<not> json & no base64"
    assert "neither JSON nor base64" in told["reasons"][0]


async def test_the_poison_queue_is_created_once_and_kept(open_queue: Open, client: QueueClient, poison: QueueClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        await poison.get_queue_properties()
    feed = open_queue()
    for _time in range(2):
        await client.send_message("?")
        await batches_of(feed)
    assert len(await received(poison)) == 2


async def test_of_a_message_of_many_events_the_readable_ones_are_applied_and_the_rest_is_set_aside_after_that(
    open_queue: Open, client: QueueClient, poison: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message(as_message([grid.created("a.md"), {"bad": True}]))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    assert paths(batch) == ["a.md"]
    assert await feed.depth() == 1
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert len(await received(poison)) == 1


async def test_the_largest_unreadable_message_fits_into_the_poison_queue(
    open_queue: Open, client: QueueClient, poison: QueueClient
) -> None:
    text = '"<ä' * (2**16 // 4)
    await client.send_message(text)
    await batches_of(open_queue())
    (found,) = await received(poison)
    told = json.loads(found)
    assert told["characters"] == len(text)
    assert text.startswith(told["content"])
    assert len(told["content"]) > 1000


# -- messages in hand


async def test_messages_in_hand_stay_invisible_for_as_long_as_there_is_work_on_them(
    open_queue: Open, client: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(visibility_seconds=1)
    (batch,) = await batches_of(feed)
    for _look in range(12):
        await asyncio.sleep(0.25)
        assert await received(client) == []
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert feed.taken == 0


async def test_messages_of_a_batch_that_was_given_up_come_back(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message(grid.created("a.md")))
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
    open_queue: Open, client: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    await client.send_message(as_message(grid.created("b.md")))
    feed = open_queue()
    (batch,) = await batches_of(feed)
    await steal(feed, client)
    await feed.settle(batch)
    assert feed.taken == 1
    assert await feed.depth() == 1


async def test_a_message_that_somebody_else_has_deleted_is_done_with(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(visibility_seconds=2)
    (batch,) = await batches_of(feed)
    await client.clear_messages()
    await until(lambda: feed.taken == 1)  # the extension finds out
    await feed.settle(batch)
    assert feed.taken == 1


async def steal(feed: EventQueue, client: QueueClient) -> None:
    """As if one of the feed's messages had been visible for a moment."""
    hand = next(hand for hand in feed._in_hand if hand.messages)
    message = hand.messages[0][0]
    await client.update_message(message.id, message.pop_receipt, visibility_timeout=0)
    assert len(await received(client)) == 1


async def test_competing_consumers_share_the_messages(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await asyncio.gather(*(client.send_message(as_message(grid.created(f"{n}.md"))) for n in range(200)))
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


async def test_a_message_that_was_tried_often_comes_first_and_alone(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message(grid.created("suspect.md")))
    for _attempt in range(2):
        async for message in client.receive_messages(visibility_timeout=60):
            await client.update_message(message, visibility_timeout=0, content=message.content)
            break
    for n in range(3):
        await client.send_message(as_message(grid.created(f"{n}.md")))
    feed = open_queue(max_attempts=2)
    alone, together = await batches_of(feed)
    assert paths(alone) == ["suspect.md"]
    assert sorted(paths(together)) == ["0.md", "1.md", "2.md"]
    await feed.settle(alone)
    await feed.settle(together)
    assert await feed.depth() == 0


async def test_a_reader_that_stops_early_returns_what_was_not_handed_out(
    open_queue: Open, client: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message(as_message(grid.created("suspect.md")))
    async for message in client.receive_messages(visibility_timeout=60):
        await client.update_message(message, visibility_timeout=0, content=message.content)
        break
    await client.send_message(as_message(grid.created("a.md")))
    reading = open_queue(max_attempts=1).read(None)
    assert paths(await anext(reading)) == ["suspect.md"]
    await reading.aclose()  # type: ignore[attr-defined]
    assert len(await received(client)) == 1


# -- the end


async def test_closing_returns_what_is_not_settled_at_once(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    for n in range(5):
        await client.send_message(as_message(grid.created(f"{n}.md")))
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


async def test_closing_ends_the_extension(open_queue: Open, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    feed = open_queue()
    batches = await batches_of(feed)
    await feed.close()
    assert len(batches) == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("extend ")]


# -- outages and refusals


@pytest.fixture
async def proxy(azurite_queue: Azurite) -> AsyncIterator[AzureProxy]:
    assert azurite_queue.queue_port is not None
    async with AzureProxy(azurite_queue.queue_port) as running:
        yield running


@pytest.fixture
def through_proxy(open_queue: Open, azurite_queue: Azurite, proxy: AzureProxy) -> Open:
    url = f"http://127.0.0.1:{proxy.port}/{azurite_queue.account_name}"
    return lambda **options: open_queue(queue_url=url, account_key_env="AZURITE_KEY", **options)


def anything(request: Request) -> bool:
    return True


def extension(request: Request) -> bool:
    return request.method == "PUT" and "visibilitytimeout" in request.query


def deletion(request: Request) -> bool:
    return request.method == "DELETE"


async def test_throttling_is_waited_out(through_proxy: Open, proxy: AzureProxy, client: QueueClient, grid: EventGridWriter) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    proxy.add(Fault(matches=anything, answer=refusal(503, "ServerBusy")))
    proxy.add(Fault(matches=deletion, answer=refusal(503, "ServerBusy")))
    feed = through_proxy()
    (batch,) = await batches_of(feed)
    await feed.settle(batch)
    assert await feed.depth() == 0


async def test_an_outage_is_transient_and_settling_can_be_repeated(
    through_proxy: Open, proxy: AzureProxy, client: QueueClient, grid: EventGridWriter
) -> None:
    for n in range(40):
        await client.send_message(as_message(grid.created(f"{n}.md")))
    feed = through_proxy()
    (batch,) = await batches_of(feed)
    down = Fault(matches=anything, times=10_000, answer=refusal(503, "ServerBusy"))
    proxy.add(down)
    asked = len(proxy.requests)
    with pytest.raises(TransientError, match="503"):
        await feed.settle(batch)
    assert len(proxy.requests) - asked <= 2 * 16  # an outage is not met once for each message
    with pytest.raises(TransientError, match="503"):
        await batches_of(feed)
    down.times = 0
    await feed.settle(batch)
    assert await feed.depth() == 0
    assert feed.taken == 0


async def test_an_extension_that_fails_is_tried_again_in_time(
    through_proxy: Open, proxy: AzureProxy, client: QueueClient, grid: EventGridWriter, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    proxy.add(Fault(matches=extension, answer=refusal(500, "InternalError")))
    feed = through_proxy(visibility_seconds=4)
    (batch,) = await batches_of(feed)
    await until(lambda: len([request for request in proxy.requests if extension(request)]) >= 5)
    assert await received(client) == []
    await feed.settle(batch)
    assert feed.taken == 0
    assert "azure.queue.not_extended" in caplog.text


async def test_a_message_near_the_end_of_its_life_keeps_no_other_from_being_extended(
    through_proxy: Open, proxy: AzureProxy, client: QueueClient, grid: EventGridWriter
) -> None:
    # "The visibility timeout of a message can't be set to a value later than the expiry time" (Update Message).
    for n in range(3):
        await client.send_message(as_message(grid.created(f"{n}.md")))
    proxy.add(Fault(matches=extension, answer=refusal(400, "OutOfRangeQueryParameterValue")))
    feed = through_proxy(visibility_seconds=2)
    (batch,) = await batches_of(feed)
    await until(lambda: len([request for request in proxy.requests if extension(request)]) >= 9)
    assert len(await received(client)) == 1
    await feed.settle(batch)
    assert feed.taken == 1


async def test_closing_during_an_outage_ends_soon_and_raises_nothing(
    through_proxy: Open, proxy: AzureProxy, client: QueueClient, grid: EventGridWriter
) -> None:
    await client.send_message(as_message(grid.created("a.md")))
    feed = through_proxy()
    batches = await batches_of(feed)
    proxy.add(Fault(matches=anything, times=1000, answer=refusal(503, "ServerBusy")))
    async with asyncio.timeout(10):
        await feed.close()
    assert len(batches) == 1


async def test_a_queue_that_does_not_exist_is_told_before_anything_is_listed(open_queue: Open) -> None:
    feed = open_queue(queue="not-there")
    with pytest.raises(ConfigError, match=r"not-there.*there is no such queue.*Event Grid subscription"):
        await feed.head()
    with pytest.raises(ConfigError, match="there is no such queue"):
        await batches_of(feed)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AuthorizationPermissionMismatch", "Storage Queue Data Contributor"),
        (403, "AuthorizationServiceMismatch", "ss=q"),
        (403, "AuthenticationFailed", "credential was not accepted"),
        (403, "KeyBasedAuthenticationNotPermitted", "Storage Queue Data Contributor"),
        (409, "QueueBeingDeleted", "being deleted"),
    ],
)
async def test_a_refusal_says_what_to_change(through_proxy: Open, proxy: AzureProxy, status: int, code: str, words: str) -> None:
    proxy.add(Fault(matches=anything, answer=refusal(status, code)))
    with pytest.raises(ConfigError, match=words):
        await batches_of(through_proxy())


async def test_a_sas_of_its_own_opens_the_queue(
    open_queue: Open, azurite_queue: Azurite, client: QueueClient, queue: str, grid: EventGridWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    sas = generate_queue_sas(
        azurite_queue.account_name, queue, azurite_queue.account_key, permission="raup", expiry=datetime.now(UTC) + timedelta(hours=1)
    )
    monkeypatch.setenv("QUEUE_SAS", f"?{sas}")
    await client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(sas_env="QUEUE_SAS", queue_url=azurite_queue.queue_endpoint)
    (batch,) = await batches_of(feed)
    await feed.settle(batch)
    assert await received(client) == []


# -- options


async def test_the_feed_is_built_by_its_name(queue: str, tmp_path: Path, source_options: dict[str, Any]) -> None:
    source = AzureBlobSource(**source_options)
    feed = build("feeds", "event-queue", {"queue": queue}, base=tmp_path, source=source, source_options=source_options)
    assert isinstance(feed, EventQueue)
    assert feed.name == f"event-queue devstoreaccount1/docs {queue}"
    assert feed.poll_seconds == 1
    await feed.close()
    await source.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "Bad_Name"}, "lower-case letters"),
        ({"queue": "q" * 57}, "3 to 56"),
        ({"visibility_seconds": 0.5}, "visibility_seconds"),
        ({"visibility_seconds": 8 * 24 * 3600}, "visibility_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"poll_seconds": -1}, "poll_seconds"),
        ({"topics": []}, "topics"),
        ({"source_options": {"path": "docs"}}, "azure-blob"),
        ({"account_key_env": "A", "sas_env": "B"}, "name one credential"),
        ({"account_key_env": "NOT_SET", "queue_url": "http://127.0.0.1:1/devstoreaccount1"}, "NOT_SET"),
        ({"queue_url": "http://127.0.0.1:1/devstoreaccount1?sig=secret"}, "carries a SAS"),
        ({"queue_url": "http://127.0.0.1:1/other"}, "https only"),
        ({"queue_url": "http://127.0.0.1:1/devstoreaccount1"}, "correct one of them"),
        ({"queue_url": "nonsense"}, "not the URL of a queue service"),
        ({"queue_url": "https://acme.queue.core.windows.net/another"}, "no name but that of `queue`"),
    ],
)
async def test_options_that_make_no_sense_are_refused(open_queue: Open, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_queue(**options)
    assert "sig=secret" not in str(caught.value)


# -- where the queue is


def access(monkeypatch: pytest.MonkeyPatch, source: Mapping[str, Any], **own: str) -> QueueAccess:
    monkeypatch.setenv("A_KEY", "a2V5")
    monkeypatch.setenv("A_SAS", "?sig=x")
    monkeypatch.setenv("A_STRING", "AccountName=acme;AccountKey=a2V5")
    options = {"url": "https://acme.blob.core.windows.net/docs", **source}
    variables = CredentialVariables(
        connection_string=own.get("connection_string_env"), sas=own.get("sas_env"), account_key=own.get("account_key_env")
    )
    return open_queue_access("events", own.get("queue_url"), variables, options, source_address(options))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://acme.blob.core.windows.net/docs", "https://acme.queue.core.windows.net"),
        ("https://acme.dfs.core.windows.net/docs", "https://acme.queue.core.windows.net"),
        ("https://acme-secondary.blob.core.windows.net/docs", "https://acme.queue.core.windows.net"),
        ("https://acme.blob.core.chinacloudapi.cn/docs", "https://acme.queue.core.chinacloudapi.cn"),
        ("https://acme.z12.blob.storage.azure.net/docs", "https://acme.z12.queue.storage.azure.net"),
        ("https://acme.privatelink.blob.core.windows.net/docs", "https://acme.privatelink.queue.core.windows.net"),
    ],
)
def test_the_queue_is_in_the_account_of_the_source(monkeypatch: pytest.MonkeyPatch, url: str, endpoint: str) -> None:
    found = access(monkeypatch, {"url": url})
    assert (found.account, found.endpoint, found.credential) == ("acme", endpoint, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:10000/acme/docs", "https://files.example.org/docs"])
def test_where_the_queue_cannot_be_guessed_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(ConfigError, match="set queue_url"):
        access(monkeypatch, {"url": url, "account": "acme", "account_key_env": "A_KEY"})


def test_the_secrets_of_the_source_open_a_queue_of_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(access(monkeypatch, {"account_key_env": "A_KEY"}).credential, AzureNamedKeyCredential)
    assert isinstance(access(monkeypatch, {"sas_env": "A_SAS"}).credential, AzureSasCredential)
    assert isinstance(access(monkeypatch, {"connection_string_env": "A_STRING"}).credential, AzureNamedKeyCredential)
    assert access(monkeypatch, {"url": "docs", "connection_string_env": "A_STRING"}).endpoint == "https://acme.queue.core.windows.net"


@pytest.mark.parametrize("source", [{"account_key_env": "A_KEY"}, {"sas_env": "A_SAS"}, {"connection_string_env": "A_STRING"}])
def test_the_secrets_of_the_source_are_not_sent_to_another_account(monkeypatch: pytest.MonkeyPatch, source: dict[str, str]) -> None:
    found = access(monkeypatch, source, queue_url="https://other.queue.core.windows.net/events")
    assert (found.account, found.endpoint, found.credential) == ("other", "https://other.queue.core.windows.net", None)
    own = access(monkeypatch, source, queue_url="https://other.queue.core.windows.net", sas_env="A_SAS")
    assert isinstance(own.credential, AzureSasCredential)


def test_the_queues_own_secret_comes_before_that_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    found = access(monkeypatch, {"connection_string_env": "A_STRING"}, sas_env="A_SAS")
    assert isinstance(found.credential, AzureSasCredential)
    assert "sig" not in repr(found)
