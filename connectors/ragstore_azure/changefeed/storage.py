"""Paths in a change feed's container in; their bytes and listings, or an error that says what is wrong with the feed, out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeVar

from azure.core.exceptions import AzureError

from ragstore.errors import ConfigError, TransientError
from ragstore_azure.changefeed.layout import Entry
from ragstore_azure.errors import READER_ROLE, BlobChangedError, BlobMissingError, code_of, status_of
from ragstore_azure.listing import LatestPage
from ragstore_azure.properties import listed_path
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

T = TypeVar("T")


class FeedStorage(Protocol):
    """What a reader asks of the container that holds a feed. Errors are translated as `Source` has it."""

    async def document(self, path: str) -> bytes | None:
        """The whole of a small blob; None where there is none."""
        ...

    async def part(self, path: str, begin: int, end: int) -> bytes | None:
        """The bytes of a blob from `begin` to before `end`, all of them; None where there is no such blob."""
        ...

    async def entries(self, prefix: str) -> list[Entry]:
        """All blobs whose paths start with the prefix, sorted by path."""
        ...


class AzureFeedStorage:
    """A feed's container in Azure. At most twice `parallel` requests are under way at once."""

    def __init__(self, client: ContainerClient, *, account: str, container: str, patience: Callable[[], Patience], parallel: int) -> None:
        self._client = client
        self._account = account
        self._container = container
        self._patience = patience
        self._slots = asyncio.Semaphore(2 * parallel)

    async def document(self, path: str) -> bytes | None:
        """As of `FeedStorage`."""
        blob = self._client.get_blob_client(path)

        async def read() -> bytes:
            return await (await blob.download_blob(decompress=False)).readall()

        try:
            return await self._call(read, f"reading {path!r}")
        except BlobMissingError:
            return None

    async def part(self, path: str, begin: int, end: int) -> bytes | None:
        """As of `FeedStorage`. Fewer bytes than a listing told of are a `TransientError`: what is there cannot go away."""
        blob = self._client.get_blob_client(path)

        async def read() -> bytes:
            return await (await blob.download_blob(offset=begin, length=end - begin, decompress=False)).readall()

        try:
            content = await self._call(read, f"reading {path!r} from byte {begin}")
        except BlobMissingError:
            return None
        except BlobChangedError:
            content = b""
        if len(content) != end - begin:
            raise TransientError(
                f"{self._name}: {path!r} gave {len(content)} bytes from byte {begin} on, where {end - begin} were listed; "
                "it is read again later"
            )
        return content

    async def entries(self, prefix: str) -> list[Entry]:
        """As of `FeedStorage`. A page that fails is asked for again; then it raises."""
        latest = LatestPage(())
        # As in `Listing`: the SDK's own values of a page take eight times as long as this.
        pages = self._client.list_blob_names(name_starts_with=prefix, raw_response_hook=latest).by_page()
        found: list[Entry] = []

        async def next_page() -> bool:
            return await anext(pages, None) is not None

        while await self._call(next_page, f"listing {prefix!r}"):
            for blob in latest.blobs():
                size, etag = blob.findtext("Properties/Content-Length"), blob.findtext("Properties/Etag")
                found.append(Entry(path=listed_path(blob), size=int(size or 0), etag=etag or ""))
        return found

    @property
    def _name(self) -> str:
        return f"{self._account}/{self._container}"

    async def _call(self, attempt: Callable[[], Awaitable[T]], doing: str) -> T:
        try:
            async with self._slots:
                return await self._patience().call(attempt, container=self._name, doing=doing)
        except ConfigError as error:
            raise self._explained(error) from error.__cause__

    def _explained(self, error: ConfigError) -> ConfigError:
        """There is no feed, or it may not be read: each has a remedy of its own."""
        cause = error.__cause__
        if not isinstance(cause, AzureError):
            return error
        if code_of(cause) in {"ContainerNotFound", "FilesystemNotFound", "ContainerBeingDeleted"}:
            return ConfigError(
                f"the change feed of the account {self._account!r} is not enabled (it has no container {self._container!r}): enable it "
                "under Data protection in the portal, or by `az storage account blob-service-properties update --enable-change-feed true`, "
                'and wait some minutes; accounts with a hierarchical namespace have none (feed = "event-queue" or "listing")'
            )
        if status_of(cause) in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return ConfigError(
                f"{error}. The change feed is in the container {self._container!r} of the account {self._account!r}: an identity needs the "
                f"role {READER_ROLE!r} on the account, not on one container alone; a SAS must be one of the account (ss=b, srt=co, sp=rl)"
            )
        return error
