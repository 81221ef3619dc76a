from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from azure.storage.queue import generate_queue_sas
from azure.storage.queue.aio import QueueClient

from ragstore.errors import ConfigError, TransientError
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, refusal
from tests.support.event_grid import EventGridWriter, as_message
from tests.support.event_queue import Open, batches_of, received, until

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite


@pytest.fixture
async def proxy(azurite_queue: Azurite) -> AsyncIterator[AzureProxy]:
    assert azurite_queue.queue_port is not None
    async with AzureProxy(azurite_queue.queue_port) as running:
        yield running


@pytest.fixture
def through_proxy(open_queue: Open, azurite_queue: Azurite, proxy: AzureProxy, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setenv("AZURITE_KEY", azurite_queue.account_key)
    url = f"http://127.0.0.1:{proxy.port}/{azurite_queue.account_name}"
    return lambda **options: open_queue(queue_url=url, account_key_env="AZURITE_KEY", **options)


def anything(request: Request) -> bool:
    return True


def extension(request: Request) -> bool:
    return request.method == "PUT" and "visibilitytimeout" in request.query


def deletion(request: Request) -> bool:
    return request.method == "DELETE"


async def test_throttling_is_waited_out(through_proxy: Open, proxy: AzureProxy, queue_client: QueueClient, grid: EventGridWriter) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    proxy.add(Fault(matches=anything, answer=refusal(503, "ServerBusy")))
    proxy.add(Fault(matches=deletion, answer=refusal(503, "ServerBusy")))
    feed = through_proxy()
    (batch,) = await batches_of(feed)
    await feed.settle(batch)
    assert await feed.depth() == 0


async def test_an_outage_is_transient_and_settling_can_be_repeated(
    through_proxy: Open, proxy: AzureProxy, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    for n in range(40):
        await queue_client.send_message(as_message(grid.created(f"{n}.md")))
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
    through_proxy: Open, proxy: AzureProxy, queue_client: QueueClient, grid: EventGridWriter, caplog: pytest.LogCaptureFixture
) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
    proxy.add(Fault(matches=extension, answer=refusal(500, "InternalError")))
    feed = through_proxy(visibility_seconds=4)
    (batch,) = await batches_of(feed)
    await until(lambda: len([request for request in proxy.requests if extension(request)]) >= 5)
    assert await received(queue_client) == []
    await feed.settle(batch)
    assert feed.taken == 0
    assert "azure.queue.not_extended" in caplog.text


async def test_a_message_near_the_end_of_its_life_keeps_no_other_from_being_extended(
    through_proxy: Open, proxy: AzureProxy, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    # "The visibility timeout of a message can't be set to a value later than the expiry time" (Update Message).
    for n in range(3):
        await queue_client.send_message(as_message(grid.created(f"{n}.md")))
    proxy.add(Fault(matches=extension, answer=refusal(400, "OutOfRangeQueryParameterValue")))
    feed = through_proxy(visibility_seconds=2)
    (batch,) = await batches_of(feed)
    await until(lambda: len([request for request in proxy.requests if extension(request)]) >= 9)
    assert len(await received(queue_client)) == 1
    await feed.settle(batch)
    assert feed.taken == 1


async def test_closing_during_an_outage_ends_soon_and_raises_nothing(
    through_proxy: Open, proxy: AzureProxy, queue_client: QueueClient, grid: EventGridWriter
) -> None:
    await queue_client.send_message(as_message(grid.created("a.md")))
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
    open_queue: Open, azurite_queue: Azurite, queue_client: QueueClient, queue: str, grid: EventGridWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    sas = generate_queue_sas(
        azurite_queue.account_name, queue, azurite_queue.account_key, permission="raup", expiry=datetime.now(UTC) + timedelta(hours=1)
    )
    monkeypatch.setenv("QUEUE_SAS", f"?{sas}")
    await queue_client.send_message(as_message(grid.created("a.md")))
    feed = open_queue(sas_env="QUEUE_SAS", queue_url=azurite_queue.queue_endpoint)
    (batch,) = await batches_of(feed)
    await feed.settle(batch)
    assert await received(queue_client) == []
