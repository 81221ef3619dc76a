"""A source in Azure and its options in; its change feed as a `Feed` out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from azure.storage.blob.aio import ContainerClient
from typing_extensions import override

from ragstore.contracts import Feed, Source
from ragstore.errors import ConfigError
from ragstore.models import EventBatch
from ragstore_azure.address import checked_container
from ragstore_azure.changefeed.events import AdmittingSource
from ragstore_azure.changefeed.reader import FeedReader
from ragstore_azure.changefeed.storage import AzureFeedStorage
from ragstore_azure.credentials import CredentialVariables, identity_credential, open_access
from ragstore_azure.retries import Patience

_API_VERSION: Final = "2023-11-03"
"""As of `AzureBlobSource`: what is on the wire stays the same whatever SDK is installed."""
_MOST_PARALLEL: Final = 64


class ChangeFeed(Feed):
    """The change feed of the storage account that a source of type `azure-blob` is in.

    - `container`: where the feed is; another one than `$blobchangefeed` for a copy of a feed, and for tests.
    - `poll_seconds`: how long to wait before the feed is looked at again when there was nothing new. The service publishes minutes late.
    - `start`: where to begin without a cursor, as ISO 8601 with a time zone (`2026-11-30T08:15:00+02:00`), exact to the event; without
      it, at the oldest event that the feed holds.
    - `parallel`: how many parts of 4 MiB are read at once; of small requests, twice as many.

    The url and the credential are those of the source (`url`, `account`, `connection_string_env`, `sas_env`, `account_key_env`); a host
    of the dfs endpoint is replaced by that of the blob endpoint, which alone has the feed. An identity needs the role `Storage Blob Data
    Reader` on the account. Raises `ConfigError` for options that make no sense.
    """

    patience: Patience = Patience()

    def __init__(
        self,
        *,
        base: Path,
        source: Source,
        source_options: Mapping[str, Any],
        container: str = "$blobchangefeed",
        poll_seconds: float = 60,
        start: str | None = None,
        parallel: int = 8,
    ) -> None:
        del base  # nothing here is a path
        if not 1 <= parallel <= _MOST_PARALLEL or poll_seconds <= 0:
            raise ConfigError(f"parallel = {parallel} must be 1 to {_MOST_PARALLEL}, and poll_seconds = {poll_seconds} above 0")
        variables = CredentialVariables(
            connection_string=source_options.get("connection_string_env"),
            sas=source_options.get("sas_env"),
            account_key=source_options.get("account_key_env"),
        )
        access = open_access(_url(source_options), variables, account=source_options.get("account"))
        endpoint = blob_endpoint(access.address.endpoint)
        self.name = f"change-feed {source.account}/{source.container}"
        self.poll_seconds = poll_seconds
        self._identity = identity_credential() if access.credential is None else None
        self._client = ContainerClient(
            endpoint,
            checked_container(container),
            credential=access.credential or self._identity,
            api_version=_API_VERSION,
            retry_total=0,  # see Patience
        )
        self._reader = FeedReader(
            AzureFeedStorage(
                self._client, account=access.address.account, container=container, patience=lambda: self.patience, parallel=parallel
            ),
            _admitting(source),
            host=endpoint.partition("://")[2],
            container=container,
            start=_moment(start) if start is not None else None,
            parallel=parallel,
        )

    @override
    async def head(self) -> str:
        """The cursor at the present end of the feed. Raises `ConfigError` and `TransientError`."""
        return await self._reader.head()

    @override
    def read(self, cursor: str | None) -> AsyncIterator[EventBatch]:
        """As of `Feed.read`; without a cursor from `start` on.

        The first batch of a feed that has no events yet is empty, and has a cursor. Raises `FeedGapError` where the cursor's place is gone
        or a chunk is damaged, `ConfigError` where the feed is not enabled or may not be read, `TransientError` for an outage.
        """
        return self._reader.read(cursor)

    @override
    async def settle(self, batch: EventBatch) -> None:
        """Nothing: the caller saves the cursor."""

    @override
    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        if self._identity is not None:
            await self._identity.close()


def blob_endpoint(endpoint: str) -> str:
    """The blob endpoint of the same account, where this is its dfs endpoint; any other as it is."""
    parts = urlsplit(endpoint)
    account, _, rest = parts.netloc.partition(".")
    return parts._replace(netloc=f"{account}.blob.{rest.removeprefix('dfs.')}").geturl() if rest.startswith("dfs.") else endpoint


def _url(options: Mapping[str, Any]) -> str:
    url = options.get("url")
    if not isinstance(url, str):
        raise ConfigError('a change feed belongs to a source of type "azure-blob" with a `url`; other sources take another `feed`')
    return url


def _admitting(source: Source) -> AdmittingSource:
    if not isinstance(source, AdmittingSource):
        raise ConfigError(f'a change feed belongs to a source of type "azure-blob", and {source.location!r} is of another')
    return source


def _moment(start: str) -> datetime:
    try:
        moment = datetime.fromisoformat(start)
    except ValueError as error:
        raise ConfigError(f"start = {start!r} is not a time; write it as 2026-11-30T08:15:00Z") from error
    if moment.tzinfo is None:
        raise ConfigError(f"start = {start!r} tells no time zone; write {start}Z for UTC, or an offset such as +02:00")
    return moment
