"""A container's options in; its blobs, with content and access attributes, out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from azure.core import MatchConditions
from azure.storage.blob.aio import ContainerClient

from ragstore.access.acl import UNREADABLE
from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.globs import Globs
from ragstore.models import BlobState, FetchedBlob
from ragstore.spool import SpoolFile
from ragstore_azure.credentials import CredentialVariables, identity_credential, open_access
from ragstore_azure.datalake import PathAcls
from ragstore_azure.download import RANGE_BYTES, ByteBudget, download
from ragstore_azure.errors import BlobChangedError, BlobMissingError
from ragstore_azure.listing import Listing, tags_refused
from ragstore_azure.properties import acl_of_headers, is_addressable, is_folder, is_possible, state_of_head, tells_of_acls
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.core.pipeline import PipelineResponse
    from azure.core.pipeline.transport import AsyncHttpResponse, HttpRequest

T = TypeVar("T")

_API_VERSION: Final = "2023-11-03"
"""Has all that is used here, is known to Azurite from 3.28 on, and keeps what is on the wire the same whatever SDK is installed."""
_ATTEMPTS: Final = 5
_BUDGET: Final = 8 * RANGE_BYTES
_HELD: Final = 256
"""Listed blobs whose ACLs are asked for together."""


class AzureBlobSource:
    """The current base blobs of one container of Azure Blob Storage.

    - `url`: `https://ACCOUNT.blob.core.windows.net/CONTAINER`; with `connection_string_env` the container's name will do. `account`:
      the storage account's name, where a domain of one's own hides it.
    - `connection_string_env`, `sas_env`, `account_key_env`: the name of the environment variable that holds the secret. Without one,
      azure-identity is asked, whose identity needs the role `Storage Blob Data Reader`, and for tags the right to read them.
    - `prefix`: what paths must start with. `include`, `exclude`: globs, see `ragstore.globs`.
    - `max_bytes`: larger blobs are listed, but `fetch` refuses them as `too_large`.
    - `tags`: false leaves index tags unread, so that every access condition over them sees none.
    - `parallel`: how many ranges of 8 MB of one blob are read at once; all downloads together hold at most 64 MB.
    - `hierarchical`: whether the account has a hierarchical namespace (ADLS Gen2), where blobs and folders have ACLs and no index tags;
      without it the service is asked. `dfs_url`: the account's dfs endpoint, where the url does not tell it.

    Index tags, metadata and the ACL are read after the content, and before the ETag is compared once more. Folders of a hierarchical
    namespace are no blobs. A path that a URL cannot carry unchanged (`.` or `..` as a segment, a backslash) is listed, and `fetch` refuses
    it as `name`. Raises `ConfigError` where the options make no sense.
    """

    patience: Patience = Patience()

    def __init__(
        self,
        *,
        url: str,
        account: str | None = None,
        prefix: str = "",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        max_bytes: int = 256 * 2**20,
        connection_string_env: str | None = None,
        sas_env: str | None = None,
        account_key_env: str | None = None,
        tags: bool = True,
        parallel: int = 4,
        hierarchical: bool | None = None,
        dfs_url: str | None = None,
    ) -> None:
        if max_bytes < 1 or parallel < 1:
            raise ConfigError(f"max_bytes = {max_bytes} and parallel = {parallel} must both be above 0")
        variables = CredentialVariables(connection_string=connection_string_env, sas=sas_env, account_key=account_key_env)
        access = open_access(url, variables, account=account)
        self.account = access.address.account
        self.container = access.address.container
        self.location = f"{access.address.endpoint}/{access.address.container}"
        self.max_bytes = max_bytes
        self._name = access.address.name
        self._prefix = prefix
        self._globs = Globs(include=tuple(include), exclude=tuple(exclude))
        self._tags = tags
        self._parallel = parallel
        self._budget = ByteBudget(_BUDGET)
        self._hierarchical = hierarchical
        self._is_told = hierarchical is not None
        self._heads_lack_acls = False
        self._identity = identity_credential() if access.credential is None else None
        self._client = ContainerClient(
            access.address.endpoint,
            self.container,
            credential=access.credential or self._identity,
            api_version=_API_VERSION,
            retry_total=0,  # see Patience
        )
        self._acls = PathAcls(access.address, access.credential or self._identity, dfs_url=dfs_url, api_version=_API_VERSION)

    async def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        """Every blob that the options admit, as of `Source.list`, in the order of the service.

        Raises `ConfigError` for a missing container or right and `TransientError` for an outage, never an early end.
        """
        acls = await self.hierarchical()
        listing = self._listing()
        # Whichever is longer asks the service for less; a path must start with both.
        prefix = max(self._prefix, below, key=len)
        admits = partial(self._wants_below, below)
        states = listing.blobs(prefix=prefix, admits=admits, acls=acls)
        async for state in self._with_acls(states) if acls else states:
            yield state

    async def state(self, path: str) -> BlobState | None:
        """The blob as it is now, as of `Source.state`. Raises as `list` does, and `PoisonError` for a blob that cannot be read at all."""
        if not is_possible(path) or not self.admits(path):
            return None
        if not is_addressable(path):
            return await self._state_by_listing(path)
        before = await self._head(path)
        for _attempt in range(_ATTEMPTS):
            if before is None:
                return None
            after = await self._described(path)
            if after is not None and after.etag == before.etag:
                return after
            before = after
        raise self._restless(path)

    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        """Download the blob into the spool, as of `Source.fetch`.

        Raises `PoisonError` (`too_large`, `name`, `encrypted`, or `unsupported` for the archive tier), `TransientError` where the blob does
        not rest or the service is out of reach, and as `list` does.
        """
        if not is_possible(path) or not self.admits(path):
            return None
        if not is_addressable(path):
            if await self._state_by_listing(path) is None:
                return None
            raise PoisonError(
                "name", f"no URL can name {path!r}, because `.` and `..` segments and backslashes are changed on the way; rename it"
            )
        for _attempt in range(_ATTEMPTS):
            before = await self._head(path)
            if before is None:
                return None
            self._refuse(before)
            with SpoolFile(spool) as spooled:
                try:
                    await download(
                        partial(self._read_range, path, before.etag),
                        before.size,
                        spooled,
                        budget=self._budget,
                        parallel=self._parallel,
                    )
                except (BlobChangedError, BlobMissingError):
                    continue
                after = await self._described(path)
                if after is not None and after.etag == before.etag:
                    content, sha256 = spooled.finish()
                    return FetchedBlob(state=after, content=content, sha256=sha256)
        raise self._restless(path)

    def admits(self, path: str) -> bool:
        """Whether a blob of this path would be one of the source's, by its prefix and globs. Asks nobody."""
        return path.startswith(self._prefix) and self._globs.admits(path)

    @property
    def acl_reads(self) -> int:
        """As of `AclSource.acl_reads`."""
        return self._acls.reads

    async def hierarchical(self) -> bool:
        """As of `AclSource.hierarchical`; the service is asked once, and a blob where the service does not say. Raises as `list` does."""
        if self._hierarchical is None:
            try:
                account = await self._call(self._client.get_account_information, "asking what kind of account it is")
                said: object = account.get("is_hns_enabled")
                self._hierarchical = said if isinstance(said, bool) else None
            except ConfigError:
                self._hierarchical = None  # who may read blobs may not always ask this
        if self._hierarchical is None:
            await self._find_out_about_acls()
        return self._hierarchical is True

    async def folder_acls(self, folders: Collection[str]) -> Mapping[str, str]:
        """As of `AclSource.folder_acls`; one request for each."""
        return await self._acls.folders(folders, self.patience)

    async def close(self) -> None:
        """Close the connections."""
        await self._acls.close()
        await self._client.close()
        if self._identity is not None:
            await self._identity.close()

    def _wants_below(self, below: str, path: str) -> bool:
        return path.startswith(below) and self.admits(path)

    def _listing(self) -> Listing:
        return Listing(client=self._client, account=self.account, container=self.container, patience=self.patience, tags=self._has_tags)

    @property
    def _has_tags(self) -> bool:
        """Accounts with a hierarchical namespace have none, and refuse to be asked."""
        return self._tags and not self._hierarchical

    async def _head(self, path: str, *, tags: Mapping[str, str] | None = None, acl: str | None = None) -> BlobState | None:
        """The blob without tags, or with the given ones; None where there is none. `acl` counts where the response tells none."""
        blob = self._client.get_blob_client(path)
        headers: Mapping[str, str] = {}

        def keep(response: PipelineResponse[HttpRequest, AsyncHttpResponse]) -> None:
            nonlocal headers
            headers = response.http_response.headers

        try:
            properties = await self._call(lambda: blob.get_blob_properties(raw_response_hook=keep), f"looking at {path!r}")
        except BlobMissingError:
            return None
        told = self._acl_of_head(headers)
        if told is None and self._hierarchical:
            told = UNREADABLE if acl is None else acl
        state = state_of_head(properties, path, account=self.account, container=self.container, tags=tags or {}, acl=told)
        return None if is_folder(state) else state

    def _acl_of_head(self, headers: Mapping[str, str]) -> str | None:
        """What the headers tell, and with it whether the account has ACLs; where an option says so, they are not asked."""
        if not self._is_told and not self._hierarchical:
            self._hierarchical = tells_of_acls(headers)
        acl = acl_of_headers(headers) if self._hierarchical else None
        self._heads_lack_acls = self._heads_lack_acls or (self._hierarchical is True and acl is None)
        return acl

    async def _find_out_about_acls(self) -> None:
        """Look at blobs until one tells whether the account has ACLs, which only a HEAD does; the first one, as a rule."""
        async for state in self._listing().blobs(prefix=self._prefix, admits=is_addressable, acls=False, page_size=10):
            try:
                await self._head(state.id.path)
            except PoisonError:
                continue  # whoever fetches this blob will hear of it
            if self._hierarchical is not None:
                return

    async def _with_acls(self, states: AsyncIterator[BlobState]) -> AsyncIterator[BlobState]:
        """The same blobs, each with its ACL: what the listing does not tell is asked for by path, many at a time."""
        held: deque[BlobState] = deque()
        async for state in states:
            held.append(state)
            if len(held) == _HELD:
                for known in await self._fill(held):
                    yield known
                held.clear()
        for known in await self._fill(held):
            yield known

    async def _fill(self, states: Collection[BlobState]) -> Sequence[BlobState]:
        async def one(state: BlobState) -> BlobState:
            if state.access.acl is not None:
                return state
            acl = await self._acls.file(state.id.path, self.patience) or UNREADABLE  # it may be gone since
            return replace(state, access=replace(state.access, acl=acl))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(state)) for state in states]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # the others were cancelled by it
        return [task.result() for task in tasks]

    async def _described(self, path: str) -> BlobState | None:
        """Tags and ACL first and the rest after them, so that those of an ETag that both precedes and follows them belong to it."""
        acl: str | None = None
        if self._heads_lack_acls:
            acl = await self._acls.file(path, self.patience)
            if acl is None:
                return None
        if not self._has_tags:
            return await self._head(path, acl=acl)
        blob = self._client.get_blob_client(path)
        try:
            tags = await self._call(blob.get_blob_tags, f"reading the index tags of {path!r}")
        except BlobMissingError:
            return None
        except ConfigError as error:
            if await self._head(path) is None:
                return None
            raise tags_refused(self._name) from error
        return await self._head(path, tags=tags, acl=acl)

    async def _state_by_listing(self, path: str) -> BlobState | None:
        """For a path that no request can name. A name sorts before all that it is a prefix of."""
        acls = self._hierarchical is True
        async for state in self._listing().blobs(prefix=path, admits=lambda _name: True, acls=acls, page_size=1):
            if state.id.path != path:
                return None
            return (await self._fill([state]))[0] if acls else state
        return None

    def _refuse(self, state: BlobState) -> None:
        if state.size > self.max_bytes:
            raise PoisonError(
                "too_large", f"{state.size} bytes are more than the limit of {self.max_bytes}; raise max_bytes of the source, or exclude it"
            )
        if state.archived:
            raise PoisonError(
                "unsupported", "in the archive tier, whose content cannot be read: rehydrate it to the hot, cool or cold tier"
            )

    async def _read_range(self, path: str, etag: str, offset: int, length: int) -> bytes:
        blob = self._client.get_blob_client(path)

        async def read() -> bytes:
            # As stored: a blob whose writer declared a content encoding is not unpacked on the way, which cannot be done by ranges.
            stream = await blob.download_blob(
                offset=offset, length=length, etag=f'"{etag}"', match_condition=MatchConditions.IfNotModified, decompress=False
            )
            return await stream.readall()

        content = await self._call(read, f"downloading {path!r}")
        if len(content) != length:
            raise BlobChangedError(f"{path!r}: {len(content)} bytes came where {length} were asked for")
        return content

    async def _call(self, attempt: Callable[[], Awaitable[T]], doing: str) -> T:
        return await self.patience.call(attempt, container=self._name, doing=doing)

    def _restless(self, path: str) -> TransientError:
        return TransientError(f"{path!r} changed {_ATTEMPTS} times while it was read; it is tried again when it rests")
