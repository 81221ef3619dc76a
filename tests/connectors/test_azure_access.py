from __future__ import annotations

import logging

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError

from ragstore.errors import ConfigError, TransientError
from ragstore_azure import AzureBlobSource
from ragstore_azure.address import parse_container_url
from ragstore_azure.credentials import CredentialVariables, open_access
from ragstore_azure.errors import translate

PORTAL = "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"


# -- addresses


@pytest.mark.parametrize(
    ("url", "account", "endpoint", "container"),
    [
        ("https://acme.blob.core.windows.net/docs", "acme", "https://acme.blob.core.windows.net", "docs"),
        ("https://acme.blob.core.windows.net/docs/", "acme", "https://acme.blob.core.windows.net", "docs"),
        ("https://acme.blob.core.windows.net/$web", "acme", "https://acme.blob.core.windows.net", "$web"),
        ("https://acme.blob.core.chinacloudapi.cn/docs", "acme", "https://acme.blob.core.chinacloudapi.cn", "docs"),
        ("https://acme.z12.blob.storage.azure.net/docs", "acme", "https://acme.z12.blob.storage.azure.net", "docs"),
        ("https://acme.privatelink.blob.core.windows.net/docs", "acme", "https://acme.privatelink.blob.core.windows.net", "docs"),
        ("https://acme-secondary.blob.core.windows.net/docs", "acme", "https://acme-secondary.blob.core.windows.net", "docs"),
        ("http://127.0.0.1:10000/devstoreaccount1/docs", "devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1", "docs"),
        ("http://[::1]:10000/devstoreaccount1/docs", "devstoreaccount1", "http://[::1]:10000/devstoreaccount1", "docs"),
        ("http://azurite:10000/devstoreaccount1/docs", "devstoreaccount1", "http://azurite:10000/devstoreaccount1", "docs"),
    ],
)
def test_the_url_of_a_container_tells_its_parts(url: str, account: str, endpoint: str, container: str) -> None:
    address = parse_container_url(url)
    assert (address.account, address.endpoint, address.container) == (account, endpoint, container)


@pytest.mark.parametrize(
    "url",
    [
        "docs",
        "acme.blob.core.windows.net/docs",
        "ftp://acme.blob.core.windows.net/docs",
        "https://acme.blob.core.windows.net",
        "https://acme.blob.core.windows.net/",
        "https://acme.blob.core.windows.net/docs/folder",
        "https://acme.blob.core.windows.net/Docs",
        "https://acme.blob.core.windows.net/a--b",
        "https://acme.blob.core.windows.net/ab",
        "https://user:word@acme.blob.core.windows.net/docs",
        "http://127.0.0.1:10000/docs",
        "https://files.example.com/docs",
    ],
)
def test_what_is_not_the_url_of_a_container_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse_container_url(url)


def test_a_domain_of_ones_own_needs_the_account() -> None:
    with pytest.raises(ConfigError, match="set `account`"):
        parse_container_url("https://files.example.com/docs")
    assert parse_container_url("https://files.example.com/docs", account="acme").account == "acme"
    with pytest.raises(ConfigError, match="leave `account` out"):
        parse_container_url("https://acme.blob.core.windows.net/docs", account="other")


# -- credentials


def test_a_connection_string_may_go_with_a_bare_container_or_a_url_that_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", PORTAL)
    for url in ("docs", "https://acme.blob.core.windows.net/docs"):
        access = open_access(url, CredentialVariables(connection_string="CONNECTION"))
        assert (access.address.account, access.address.container) == ("acme", "docs")
        assert isinstance(access.credential, AzureNamedKeyCredential)
        assert access.credential.named_key == ("acme", "c2VjcmV0")


@pytest.mark.parametrize("url", ["https://other.blob.core.windows.net/docs", "http://127.0.0.1:10000/acme/docs"])
def test_a_url_that_does_not_agree_with_the_connection_string_is_refused(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("CONNECTION", PORTAL)
    with pytest.raises(ConfigError):
        open_access(url, CredentialVariables(connection_string="CONNECTION"))


def test_the_emulators_short_form_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTION", "UseDevelopmentStorage=true")
    access = open_access("docs", CredentialVariables(connection_string="CONNECTION"))
    assert access.address.endpoint == "http://127.0.0.1:10000/devstoreaccount1"


@pytest.mark.parametrize(
    "text", ["nonsense", "AccountName=acme", "BlobEndpoint=https://acme.blob.core.windows.net", "DefaultEndpointsProtocol=https"]
)
def test_a_malformed_connection_string_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CONNECTION", text)
    with pytest.raises(ConfigError, match="CONNECTION") as caught:
        open_access("docs", CredentialVariables(connection_string="CONNECTION"))
    assert text not in str(caught.value)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    url = "https://acme.blob.core.windows.net/docs"
    for option in ("connection_string", "sas", "account_key"):
        with pytest.raises(ConfigError, match=f"{option}_env.*'MISSING'"):
            open_access(url, CredentialVariables(**{option: "MISSING"}))


def test_two_credentials_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"one credential.*sas_env, account_key_env"):
        AzureBlobSource(url="https://acme.blob.core.windows.net/docs", sas_env="A", account_key_env="B")


def test_a_sas_in_the_url_is_used_and_warned_of_but_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        access = open_access("https://acme.blob.core.windows.net/docs?sv=2023&sig=SECRET", CredentialVariables())
    assert isinstance(access.credential, AzureSasCredential)
    assert access.credential.signature == "sv=2023&sig=SECRET"
    assert "sas_env" in caplog.text
    assert "SECRET" not in caplog.text + repr(access)
    with pytest.raises(ConfigError) as caught:
        open_access("https://acme.blob.core.windows.net/Docs?sig=SECRET", CredentialVariables())
    assert "SECRET" not in str(caught.value)


async def test_without_a_secret_the_identity_of_the_machine_is_asked() -> None:
    source = AzureBlobSource(url="https://acme.blob.core.windows.net/docs")
    assert (source.account, source.container) == ("acme", "docs")
    await source.close()


def test_an_identity_is_not_sent_over_plain_http() -> None:
    with pytest.raises(ConfigError, match="https"):
        AzureBlobSource(url="http://127.0.0.1:10000/devstoreaccount1/docs")


# -- errors without a response


def test_no_usable_identity_is_a_configuration_error() -> None:
    error = translate(
        ClientAuthenticationError("DefaultAzureCredential failed\nAttempted credentials:"), container="acme/docs", doing="listing it"
    )
    assert isinstance(error, ConfigError)
    assert "az login" in str(error)
    assert "Attempted" not in str(error)


def test_a_host_out_of_reach_is_transient() -> None:
    assert isinstance(translate(ServiceRequestError("no such host"), container="acme/docs", doing="listing it"), TransientError)


class Answer:
    """As much of a response as an error holds on to."""

    reason = "Busy"
    content_type = "text/plain"
    request: object = None

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.headers = headers

    def text(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"x-ms-retry-after-ms": "1500", "Retry-After": "7"}, 1.5, 1.5),
        ({"retry-after-ms": "20"}, 0.02, 0.02),
        ({"Retry-After": "Wed, 01 Jan 2020 00:00:00 GMT"}, 0, 0),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, 1e9, 1e12),
    ],
)
def test_every_form_of_retry_after_is_understood(headers: dict[str, str], low: float, high: float) -> None:
    error = translate(HttpResponseError("busy", response=Answer(503, headers)), container="acme/docs", doing="listing it")
    assert isinstance(error, TransientError)
    assert error.retry_after is not None
    assert low <= error.retry_after <= high


@pytest.mark.parametrize("headers", [{}, {"Retry-After": ""}, {"Retry-After": "soon"}, {"Retry-After": "-1"}])
def test_no_or_a_nonsensical_retry_after_is_none(headers: dict[str, str]) -> None:
    error = translate(HttpResponseError("busy", response=Answer(503, headers)), container="acme/docs", doing="listing it")
    assert isinstance(error, TransientError)
    assert error.retry_after is None
