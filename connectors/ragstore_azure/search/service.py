"""A name in, an index to read and write out: opened late, created once, checked against what it should be."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from ragstore.errors import ConfigError
from ragstore_azure.search.failures import IndexMissingError, Patience
from ragstore_azure.search.schema import MOST_DIMENSIONS, definition, differences, found_dimensions

if TYPE_CHECKING:
    from azure.core.credentials import AzureKeyCredential
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.search.documents.aio import SearchClient
    from azure.search.documents.indexes.aio import SearchIndexClient

T = TypeVar("T")

_NAME: Final = re.compile("[a-z0-9](-?[a-z0-9])*")
_LONGEST_NAME: Final = 128
_DERIVED: Final = re.compile(".*-x[0-9a-f]{16}")
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def index_name(prefix: str, collection: str) -> str:
    """The index of a collection, different for different ones, in what the service allows: letters, digits and single dashes."""
    if not _NAME.fullmatch(prefix) or len(prefix) > _LONGEST_NAME // 2:
        raise ConfigError(f"[store] index = {prefix!r} must be lower-case letters, digits and single dashes, 64 at most")
    name = f"{prefix}-{collection}"
    if _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME and not _DERIVED.fullmatch(name):
        return name
    readable = re.sub("[^a-z0-9]+", "-", collection.lower()).strip("-")[:32].strip("-")
    digest = hashlib.blake2b(collection.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return "-".join(part for part in (prefix, readable, f"x{digest}") if part)


def checked_endpoint(endpoint: str, *, with_key: bool) -> str:
    """The address without a trailing slash. Raises `ConfigError` for one that would send a credential in the clear."""
    parts = urlsplit(endpoint)
    if parts.scheme == "https" and parts.hostname and not parts.query:
        return endpoint.rstrip("/")
    if parts.scheme == "http" and parts.hostname in _LOCAL and with_key:
        return endpoint.rstrip("/")
    raise ConfigError(
        f"[store] endpoint = {endpoint!r} must be the address of a search service, such as https://NAME.search.windows.net; "
        "http is for this machine only, with a key"
    )


class Service:
    """One index. Whoever only reads never creates it."""

    def __init__(
        self, *, endpoint: str, key_env: str | None, index: str, dimensions: int, semantic: str | None, timeout: float, patience: Patience
    ) -> None:
        if not 1 < dimensions <= MOST_DIMENSIONS:
            raise ConfigError(f"AI Search holds vectors of 2 to {MOST_DIMENSIONS:,} dimensions, not {dimensions}; use another embedder")
        self.endpoint = checked_endpoint(endpoint, with_key=key_env is not None)
        self.index = index
        self.patience = patience
        self._key_env = key_env
        self._wanted = definition(index, dimensions, semantic)
        self._timeout = timeout
        self._documents: SearchClient | None = None
        self._indexes: SearchIndexClient | None = None
        self._identity: AsyncTokenCredential | None = None
        self._checked = False
        self._opening = asyncio.Lock()

    @property
    def where(self) -> str:
        """Index and service, for messages."""
        return f"the index {self.index!r} at {self.endpoint}"

    async def read(self, attempt: Callable[[SearchClient], Awaitable[T]]) -> T | None:
        """What `attempt` makes of the index, or None where there is no such index."""
        documents, _ = await self._clients()
        try:
            await self._check(create=False)
            return await self.patience.call(lambda: attempt(documents), where=self.where)
        except IndexMissingError:
            self._checked = False
            return None

    async def write(self, attempt: Callable[[SearchClient], Awaitable[T]]) -> T:
        """One attempt at a write, which may be repeated; an index that is not there is created first. The caller has patience."""
        documents, _ = await self._clients()
        await self._check(create=True)
        try:
            return await attempt(documents)
        except Exception as error:
            if not _missing(error):
                raise
            self._checked = False  # somebody else dropped it
            await self._check(create=True)
            return await attempt(documents)

    async def sizes(self) -> dict[str, int | str]:
        """What the service measures, every few minutes only."""

        async def ask(_: SearchClient) -> dict[str, int | str]:
            _, indexes = await self._clients()
            found = await indexes.get_index_statistics(self.index)
            return {"storage_bytes": found.storage_size, "vector_index_bytes": found.vector_index_size}

        return await self.read(ask) or {}

    async def drop(self) -> None:
        """Delete the index, if it is there."""
        _, indexes = await self._clients()
        self._checked = False
        try:
            await self.patience.call(lambda: indexes.delete_index(self.index), where=self.where)
        except IndexMissingError:
            return

    async def close(self) -> None:
        """Give back the connections."""
        for client in (self._documents, self._indexes, self._identity):
            if client is not None:
                await client.close()
        self._documents = self._indexes = self._identity = None
        self._checked = False

    async def _clients(self) -> tuple[SearchClient, SearchIndexClient]:
        async with self._opening:
            if self._documents is None or self._indexes is None:
                try:
                    from azure.search.documents.aio import SearchClient
                    from azure.search.documents.indexes.aio import SearchIndexClient
                except ModuleNotFoundError as error:
                    raise ConfigError(
                        "the store 'azure-search' needs a package that is not installed: pip install 'ragstore[azure-search]'"
                    ) from error
                options: dict[str, Any] = {
                    "credential": self._credential(),
                    "retry_total": 0,
                    "connection_timeout": min(10.0, self._timeout),
                    "read_timeout": self._timeout,
                    "user_agent": "ragstore",
                }
                self._documents = SearchClient(self.endpoint, self.index, **options)
                self._indexes = SearchIndexClient(self.endpoint, **options)
            return self._documents, self._indexes

    def _credential(self) -> AzureKeyCredential | AsyncTokenCredential:
        from azure.core.credentials import AzureKeyCredential

        from ragstore_azure.credentials import identity_credential, secret

        if self._key_env is not None:
            return AzureKeyCredential(secret("key_env", self._key_env))
        self._identity = identity_credential()
        return self._identity

    async def _check(self, *, create: bool) -> None:
        """Raises `IndexMissingError` where there is none and none is to be created, `ConfigError` where it is not as it should be."""
        if self._checked:
            return
        _, indexes = await self._clients()
        async with self._opening:
            if self._checked:
                return
            try:
                found = await self._found(indexes)
            except IndexMissingError:
                if not create:
                    raise
                found = await self._created(indexes)
            self._compare(found)
            self._checked = True

    async def _found(self, indexes: SearchIndexClient) -> dict[str, Any]:
        return (await self.patience.call(lambda: indexes.get_index(self.index), where=self.where)).as_dict()

    async def _created(self, indexes: SearchIndexClient) -> dict[str, Any]:
        from azure.core.exceptions import HttpResponseError
        from azure.search.documents.indexes.models import SearchIndex

        async def create() -> dict[str, Any]:
            try:
                return (await indexes.create_index(SearchIndex(self._wanted))).as_dict()
            except HttpResponseError as error:
                # Another process was faster, or this one was, and lost the answer.
                if error.status_code in {400, 409}:
                    try:
                        return (await indexes.get_index(self.index)).as_dict()
                    except HttpResponseError:
                        raise error from None
                raise

        return await self.patience.call(create, where=self.where)

    def _compare(self, found: dict[str, Any]) -> None:
        size = found_dimensions(found)
        wanted = found_dimensions(self._wanted)
        if size is not None and size != wanted:
            raise ConfigError(
                f"{self.where} holds vectors of {size} dimensions, not {wanted}; use the embedder that wrote it, or another [store] index"
            )
        problems = differences(found, self._wanted)
        if problems:
            raise ConfigError(
                f"{self.where} is not as this version of ragstore makes it: {'; '.join(problems)}. Name another [store] index and index "
                "again, or delete this one"
            )


def _missing(error: Exception) -> bool:
    from azure.core.exceptions import ResourceNotFoundError

    return isinstance(error, ResourceNotFoundError)
