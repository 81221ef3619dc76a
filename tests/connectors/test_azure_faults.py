from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.storage.blob.aio import ContainerClient

from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.testing.sources import files_in, listed
from ragstore_azure import AzureBlobSource
from ragstore_azure.download import RANGE_BYTES
from ragstore_azure.retries import Patience
from tests.fakes.azure_proxy import AzureProxy, Fault, Request, Response, refusal, with_text

if TYPE_CHECKING:
    from tests.conftest import Azurite

pytestmark = pytest.mark.azurite

MANY = 1000


@pytest.fixture
async def proxy(azurite: Azurite) -> AsyncIterator[AzureProxy]:
    async with AzureProxy(azurite.port) as running:
        yield running


@pytest.fixture
async def blobs(azurite: Azurite, container: str) -> AsyncIterator[ContainerClient]:
    """The container without the proxy."""
    async with ContainerClient.from_connection_string(
        azurite.connection_string, container, max_single_put_size=2**19, max_block_size=2**19
    ) as client:
        yield client


@pytest.fixture
async def source(azurite: Azurite, container: str, proxy: AzureProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AzureBlobSource]:
    """The container through the proxy."""
    monkeypatch.setenv("A_KEY", azurite.account_key)
    source = AzureBlobSource(url=f"http://127.0.0.1:{proxy.port}/{azurite.account_name}/{container}", account_key_env="A_KEY", parallel=2)
    source.patience = Patience(first_pause=0.01)
    yield source
    await source.close()


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def anything(request: Request) -> bool:
    return True


def listing(request: Request) -> bool:
    return request.is_listing


def download(request: Request) -> bool:
    return request.is_download


def reading_tags(request: Request) -> bool:
    return request.is_tags


# -- throttling and outages


@pytest.mark.parametrize("status", [429, 503])
async def test_throttling_waits_as_long_as_it_is_asked_to(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path, status: int
) -> None:
    await blobs.upload_blob("a.md", b"x")
    proxy.add(Fault(matches=listing, answer=refusal(status, "ServerBusy", headers={"Retry-After": "1"})))
    for matches in (download, reading_tags):
        proxy.add(Fault(matches=matches, answer=refusal(status, "ServerBusy", headers={"x-ms-retry-after-ms": "150"})))
    started = time.monotonic()
    assert list(await listed(source)) == ["a.md"]
    assert time.monotonic() - started >= 1.0
    started = time.monotonic()
    assert await source.fetch("a.md", spool) is not None
    assert time.monotonic() - started >= 0.3


async def test_patience_ends_with_a_transient_error(source: AzureBlobSource, proxy: AzureProxy) -> None:
    proxy.add(Fault(matches=anything, times=MANY, answer=refusal(503, "ServerBusy")))
    with pytest.raises(TransientError, match="503 ServerBusy"):
        await listed(source)
    assert len(proxy.requests) == source.patience.attempts


async def test_being_asked_to_stay_away_for_long_is_handed_on_at_once(source: AzureBlobSource, proxy: AzureProxy) -> None:
    proxy.add(Fault(matches=anything, times=MANY, answer=refusal(429, "TooManyRequests", headers={"Retry-After": "3600"})))
    with pytest.raises(TransientError) as caught:
        await listed(source)
    assert caught.value.retry_after == 3600.0
    assert len(proxy.requests) == 1


async def test_a_connection_dropped_in_the_middle_is_taken_up_again(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    content = os.urandom(RANGE_BYTES + 1000)
    await blobs.upload_blob("a.bin", content)
    proxy.add(Fault(matches=lambda request: request.is_download and request.range.startswith("bytes=0-"), cut_after=5000))
    proxy.add(Fault(matches=listing, cut_after=50))
    fetched = await source.fetch("a.bin", spool)
    assert fetched is not None
    assert fetched.content.read_bytes() == content
    downloads = [request for request in proxy.requests if request.is_download]
    assert len(downloads) == 3
    assert all(request.headers["if-match"] == f'"{fetched.state.etag}"' for request in downloads)
    assert list(await listed(source)) == ["a.bin"]


# -- never mixed


async def test_a_change_between_two_ranges_begins_again(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    old, new = b"o" * (2 * RANGE_BYTES), b"n" * (2 * RANGE_BYTES)
    await blobs.upload_blob("a.bin", old)

    async def replace() -> None:
        await blobs.upload_blob("a.bin", new, overwrite=True)

    proxy.add(Fault(matches=lambda request: request.is_download and not request.range.startswith("bytes=0-"), before=replace))
    fetched = await source.fetch("a.bin", spool)
    assert fetched is not None
    assert fetched.content.read_bytes() == new
    assert fetched.state == await source.state("a.bin")
    assert files_in(spool) == ([] if fetched.content.in_memory else [fetched.content.path()])


@pytest.mark.parametrize("moment", ["tags", "last look"])
async def test_access_attributes_belong_to_the_content(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path, moment: str
) -> None:
    """The blob is replaced by another with other tags, after its content was read: neither may keep the other's tags."""
    await blobs.upload_blob("a.md", b"old", tags={"for": "old"}, metadata={"for": "old"})
    heads = 0

    def matches(request: Request) -> bool:
        nonlocal heads
        heads += request.method == "HEAD"
        return request.is_tags if moment == "tags" else heads == 2

    async def replace() -> None:
        await blobs.upload_blob("a.md", b"new", overwrite=True, tags={"for": "new"}, metadata={"for": "new"})

    proxy.add(Fault(matches=matches, before=replace))
    fetched = await source.fetch("a.md", spool)
    assert fetched is not None
    assert fetched.content.read_bytes() == b"new"
    assert fetched.state.access.tags == fetched.state.access.metadata == {"for": "new"}


async def test_a_state_never_pairs_the_tags_of_one_version_with_the_rest_of_another(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient
) -> None:
    await blobs.upload_blob("a.md", b"old", tags={"for": "old"}, metadata={"for": "old"})
    heads = 0

    def second_head(request: Request) -> bool:
        nonlocal heads
        heads += request.method == "HEAD"
        return heads == 2

    async def replace() -> None:
        await blobs.upload_blob("a.md", b"new", overwrite=True, tags={"for": "new"}, metadata={"for": "new"})

    proxy.add(Fault(matches=second_head, before=replace))
    state = await source.state("a.md")
    assert state is not None
    assert state.access.tags == state.access.metadata == {"for": "new"}


async def test_a_blob_that_never_rests_is_given_up_for_now(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    await blobs.upload_blob("a.md", b"0")

    async def replace() -> None:
        await blobs.upload_blob("a.md", os.urandom(8), overwrite=True)

    proxy.add(Fault(matches=reading_tags, times=MANY, before=replace))
    with pytest.raises(TransientError, match="changed"):
        await source.fetch("a.md", spool)
    assert files_in(spool) == []


async def test_a_blob_deleted_while_it_is_read_is_none(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    async def delete() -> None:
        await blobs.delete_blob("a.md")

    for matches in (download, reading_tags):
        await blobs.upload_blob("a.md", b"x")
        proxy.add(Fault(matches=matches, before=delete))
        assert await source.fetch("a.md", spool) is None
    assert files_in(spool) == []


# -- refusals


@pytest.mark.parametrize(
    "refused",
    [
        (403, "AuthorizationPermissionMismatch", "Storage Blob Data Reader.*10 minutes"),
        (403, "AuthorizationFailure", "network rules"),
        (403, "AuthenticationFailed", "clock"),
        (403, "KeyBasedAuthenticationNotPermitted", "does not permit keys"),
        (403, "AccountIsDisabled", "disabled"),
        (403, "SomethingNew", "403 SomethingNew"),
        (404, "ContainerNotFound", "does not exist"),
        (409, "ContainerBeingDeleted", "does not exist"),
        (401, "NoAuthenticationInformation", "no credential"),
    ],
)
async def test_a_refusal_is_an_error_that_says_what_to_do_and_never_an_empty_answer(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path, refused: tuple[int, str, str]
) -> None:
    await blobs.upload_blob("a.md", b"x")
    status, code, advice = refused
    proxy.add(Fault(matches=anything, times=MANY, answer=refusal(status, code)))
    for attempt in (listed(source), source.state("a.md"), source.fetch("a.md", spool)):
        with pytest.raises(ConfigError, match=advice):
            await attempt


async def test_a_refusal_on_the_second_page_does_not_end_the_listing_early(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient
) -> None:
    await blobs.upload_blob("a.md", b"x")
    assert await source.state("a.md") is not None
    proxy.add(Fault(matches=lambda request: "marker" in request.query, answer=refusal(403, "AuthorizationFailure")))
    proxy.add(Fault(matches=listing, rewrite=with_text("<NextMarker/>", "<NextMarker>next</NextMarker>")))
    with pytest.raises(ConfigError, match="network rules"):
        await listed(source)


async def test_refused_tags_name_the_right_to_read_them(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    await blobs.upload_blob("a.md", b"x")
    refused = refusal(403, "AuthorizationPermissionMismatch")
    proxy.add(Fault(matches=lambda request: "tags" in request.query.get("include", ""), times=MANY, answer=refused))
    proxy.add(Fault(matches=reading_tags, times=MANY, answer=refused))
    for attempt in (listed(source), source.state("a.md"), source.fetch("a.md", spool)):
        with pytest.raises(ConfigError, match=r"Storage Blob Data Owner.*tags/read.*tags = false"):
            await attempt


async def test_a_404_that_is_not_the_services_own_is_no_deletion(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    await blobs.upload_blob("a.md", b"x")
    proxy.add(Fault(matches=anything, times=MANY, answer=Response(status=404, body=b"<html>not here</html>")))
    for attempt in (source.state("a.md"), source.fetch("a.md", spool), listed(source)):
        with pytest.raises(TransientError, match="proxy"):
            await attempt


async def test_an_answer_that_is_no_listing_is_no_empty_listing(source: AzureBlobSource, proxy: AzureProxy) -> None:
    for kind, body in (("text/html", b"<html>Log in to this network</html>"), ("application/xml", b"<html/>"), ("application/xml", b"<")):
        proxy.faults.clear()
        proxy.add(Fault(matches=anything, times=MANY, answer=Response(status=200, headers={"Content-Type": kind}, body=body)))
        with pytest.raises(TransientError):
            await listed(source)


async def test_old_versions_and_deleted_blobs_are_not_listed_even_where_the_service_sends_them(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient
) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await blobs.upload_blob(name, b"x")
    marks = {"b": "<Deleted>true</Deleted>", "c": "<IsCurrentVersion>false</IsCurrentVersion>", "d": "<Snapshot>2026-01-01</Snapshot>"}
    marks["e"] = "<VersionId>2026-02-02</VersionId><IsCurrentVersion>true</IsCurrentVersion>"

    def mark(response: Response) -> Response:
        for name, text in marks.items():
            response = with_text(f"<Name>{name}</Name>", f"<Name>{name}</Name>{text}")(response)
        return response

    proxy.add(Fault(matches=listing, times=MANY, rewrite=mark))
    found = await listed(source)
    assert list(found) == ["a", "e"]
    assert found["e"].version == "2026-02-02"


async def test_a_name_that_xml_cannot_hold_is_decoded(source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient) -> None:
    await blobs.upload_blob("a", b"x")
    proxy.add(Fault(matches=listing, times=MANY, rewrite=with_text("<Name>a</Name>", '<Name Encoded="true">a%EF%BF%BE%20b</Name>')))
    assert list(await listed(source)) == ["a\ufffe b"]


async def test_a_blob_under_its_writers_own_key_is_poison(source: AzureBlobSource, proxy: AzureProxy, spool: Path) -> None:
    proxy.add(Fault(matches=anything, times=MANY, answer=refusal(409, "BlobUsesCustomerSpecifiedEncryption")))
    with pytest.raises(PoisonError) as caught:
        await source.fetch("a.md", spool)
    assert caught.value.kind == "encrypted"


# -- names


async def test_a_listed_name_that_no_request_can_carry_is_refused(
    source: AzureBlobSource, proxy: AzureProxy, blobs: ContainerClient, spool: Path
) -> None:
    await blobs.upload_blob("a/x/b.md", b"x")
    answers: list[Response] = []

    def rename(response: Response) -> Response:
        answers.append(with_text("<Name>a/x/b.md</Name>", "<Name>a/../b.md</Name>")(response))
        return answers[-1]

    proxy.add(Fault(matches=listing, times=2, rewrite=rename))
    found = await listed(source)
    assert list(found) == ["a/../b.md"]
    proxy.add(Fault(matches=listing, times=MANY, answer=answers[0]))
    assert await source.state("a/../b.md") == found["a/../b.md"]
    assert await source.state("a/../c.md") is None
    with pytest.raises(PoisonError, match="rename") as caught:
        await source.fetch("a/../b.md", spool)
    assert caught.value.kind == "name"
    assert not any(request.method == "HEAD" or request.is_download for request in proxy.requests)
