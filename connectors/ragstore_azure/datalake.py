"""Paths of a container with a hierarchical namespace in; the ACL of each, as `ragstore.access.acl` writes it, out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from ragstore.access.acl import UNREADABLE, acl_text
from ragstore.errors import ConfigError
from ragstore_azure.address import ContainerAddress, dfs_endpoint
from ragstore_azure.errors import BlobMissingError
from ragstore_azure.properties import is_addressable
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.storage.filedatalake.aio import FileSystemClient

_AT_ONCE: Final = 16
"""Requests: each is one of the account's 20,000 a second (https://learn.microsoft.com/azure/storage/common/scalability-targets-standard-account)."""


class PathAcls:
    """Reads ACLs by path, one request each, at the dfs endpoint of the account; connects when it is first asked."""

    def __init__(
        self,
        address: ContainerAddress,
        credential: AzureNamedKeyCredential | AzureSasCredential | AsyncTokenCredential | None,
        *,
        dfs_url: str | None,
        api_version: str,
    ) -> None:
        self._address = address
        self._credential = credential
        self._dfs_url = dfs_url
        self._api_version = api_version
        self._connected: FileSystemClient | None = None
        self._free = asyncio.Semaphore(_AT_ONCE)
        self.reads = 0
        """Requests so far, retries not counted."""

    async def file(self, path: str, patience: Patience) -> str | None:
        """The ACL of a file, or None where there is no such file.

        Raises `ConfigError` for a missing right or an endpoint that is not known, `TransientError` for an outage.
        """
        return await self._read(path, patience, folder=False)

    async def folders(self, paths: Collection[str], patience: Patience) -> dict[str, str]:
        """The ACL of each of these folders, of which the root is the empty path; one that is not there lets nobody through.

        Raises as `file` does.
        """
        found: dict[str, str] = {}
        left = iter(sorted(paths))

        async def lane() -> None:
            for path in left:
                found[path] = await self._read(path, patience, folder=True) or UNREADABLE

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(paths))):
                    group.create_task(lane())
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # the others were cancelled by it
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            await self._connected.close()

    async def _read(self, path: str, patience: Patience, *, folder: bool) -> str | None:
        if not is_addressable(path):
            return UNREADABLE  # a request for it would be answered with the ACL of another path
        files = self._client()
        client = files.get_directory_client(path or "/") if folder else files.get_file_client(path)
        async with self._free:
            self.reads += 1
            try:
                said: dict[str, Any] = await patience.call(
                    # Object ids, never names: those can be changed, and given to somebody else.
                    lambda: client.get_access_control(upn=False),
                    container=self._address.name,
                    doing=f"reading the ACL of {path or '/'!r}",
                )
            except BlobMissingError:
                return None
        return acl_text(owner=said.get("owner"), group=said.get("group"), permissions=said.get("permissions"), acl=said.get("acl"))

    def _client(self) -> FileSystemClient:
        if self._connected is None:
            try:
                from azure.storage.filedatalake.aio import FileSystemClient
            except ModuleNotFoundError as error:
                raise ConfigError(
                    "this account has a hierarchical namespace, whose ACLs azure-storage-file-datalake reads, which is not installed: "
                    "pip install 'ragstore[azure]'"
                ) from error
            url = self._dfs_url or dfs_endpoint(self._address.endpoint)
            if url is None:
                raise ConfigError(
                    f"{self._address.name}: the dfs endpoint, where ACLs are read, cannot be told from the url: set dfs_url, or "
                    "hierarchical = false to leave ACLs out"
                )
            self._connected = FileSystemClient(
                url.rstrip("/"),
                self._address.container,
                credential=self._credential,
                api_version=self._api_version,
                retry_total=0,  # see Patience
            )
        return self._connected
