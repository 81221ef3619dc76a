from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from ragstore.errors import ConfigError
from ragstore.plugins import build
from ragstore_azure import AzureBlobSource, EventQueue
from ragstore_azure.credentials import CredentialVariables
from ragstore_azure.event_queue import source_address
from ragstore_azure.queue_access import QueueAccess, open_queue_access
from tests.support.event_queue import Open

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.azurite


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
