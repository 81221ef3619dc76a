"""A name in, an index to read and write out: opened late, created once, checked against what it should be.

The index of a collection is `NAME`, and after its rows were expunged `NAME-v2`, `NAME-v3` ...: of several that are there the lowest counts,
so that to delete it is the moment in which its copy takes its place, whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ragstore.errors import ConfigError
from ragstore_azure.search.connection import Connection
from ragstore_azure.search.failures import IndexMissingError, Patience
from ragstore_azure.search.schema import MOST_DIMENSIONS, definition, differences, found_dimensions

if TYPE_CHECKING:
    from azure.search.documents.aio import SearchClient

T = TypeVar("T")

_NAME: Final = re.compile("[a-z0-9](-?[a-z0-9])*")
_LONGEST_NAME: Final = 128
_LONGEST_READABLE: Final = 112
"""What is longer has no room for a version."""
_DERIVED: Final = re.compile(".*-(x[0-9a-f]{16}|v[0-9]+)")
_CONFLICT: Final = frozenset({400, 409})


def index_name(prefix: str, collection: str) -> str:
    """The index of a collection, different for different ones, in what the service allows: letters, digits and single dashes."""
    if not _NAME.fullmatch(prefix) or len(prefix) > _LONGEST_NAME // 2:
        raise ConfigError(f"[store] index = {prefix!r} must be lower-case letters, digits and single dashes, 64 at most")
    name = f"{prefix}-{collection}"
    if _NAME.fullmatch(name) and len(name) <= _LONGEST_READABLE and not _DERIVED.fullmatch(name):
        return name
    readable = re.sub("[^a-z0-9]+", "-", collection.lower()).strip("-")[:24].strip("-")
    digest = hashlib.blake2b(collection.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return "-".join(part for part in (prefix, readable, f"x{digest}") if part)


class Service:
    """One index. Whoever only reads never creates it.

    `version`: of a copy that nobody reads yet; without it, the lowest that is there.
    """

    def __init__(
        self, connection: Connection, name: str, *, dimensions: int, semantic: str | None, patience: Patience, version: int | None = None
    ) -> None:
        if not 1 < dimensions <= MOST_DIMENSIONS:
            raise ConfigError(f"AI Search holds vectors of 2 to {MOST_DIMENSIONS:,} dimensions, not {dimensions}; use another embedder")
        self.patience = patience
        self._connection = connection
        self._name = name
        self._dimensions = dimensions
        self._semantic = semantic
        self._fixed = version
        self._version: int | None = None
        """That of the index which was found and checked."""
        self._opening = asyncio.Lock()

    @property
    def index(self) -> str:
        """The name of the index."""
        return self._named(self._version or self._fixed or 1)

    @property
    def where(self) -> str:
        """Index and service, for messages."""
        return f"the index {self.index!r} at {self._connection.endpoint}"

    async def read(self, attempt: Callable[[SearchClient], Awaitable[T]]) -> T | None:
        """What `attempt` makes of the index, or None where there is no such index."""
        while True:
            known = self._version is not None
            try:
                client = await self._open(create=False)
                return await self.patience.call(lambda client=client: attempt(client), where=self.where)  # type: ignore[misc]
            except IndexMissingError:
                self._version = None
                if not known:
                    return None  # else somebody dropped it, or put a copy in its place: look once more

    async def write(self, attempt: Callable[[SearchClient], Awaitable[T]]) -> T:
        """One attempt at a write, which may be repeated; an index that is not there is created first. The caller has patience."""
        from azure.core.exceptions import ResourceNotFoundError

        try:
            return await attempt(await self._open(create=True))
        except ResourceNotFoundError:
            self._version = None
            return await attempt(await self._open(create=True))

    async def sizes(self) -> dict[str, int | str]:
        """What the service measures, every few minutes only."""

        async def ask(_: SearchClient) -> dict[str, int | str]:
            found = await self._connection.indexes().get_index_statistics(self.index)
            return {"storage_bytes": found.storage_size, "vector_index_bytes": found.vector_index_size}

        return await self.read(ask) or {}

    async def successor(self) -> Service:
        """An empty index to copy this one into; what an earlier copy left behind is dropped first."""
        await self._open(create=False)
        version = (self._version or 1) + 1
        options = {"dimensions": self._dimensions, "semantic": self._semantic, "patience": self.patience}
        copy = Service(self._connection, self._name, version=version, **options)  # type: ignore[arg-type]
        for later in await self._versions():
            if later >= version:
                await self._delete(later)
        await copy._open(create=True)
        return copy

    async def retire(self) -> None:
        """Delete this very index, so that its successor counts."""
        if self._version is not None:
            version, self._version = self._version, None
            await self._delete(version)

    async def drop(self) -> None:
        """Delete the index, if it is there; copies first, because one that is left would count as the collection."""
        for version in reversed(await self._versions()):
            await self._delete(version)
        self._version = None

    def _named(self, version: int) -> str:
        return self._name if version == 1 else f"{self._name}-v{version}"

    async def _versions(self) -> list[int]:
        """Of the indexes that are there, in order."""

        async def ask() -> list[str]:
            return [index.name async for index in self._connection.indexes().list_indexes(select=["name"])]

        pattern = re.compile(re.escape(self._name) + "(?:-v([0-9]+))?")
        found = [pattern.fullmatch(name) for name in await self.patience.call(ask, where=self.where)]
        return sorted(int(one[1] or 1) for one in found if one is not None)

    async def _delete(self, version: int) -> None:
        try:
            await self.patience.call(lambda: self._connection.indexes().delete_index(self._named(version)), where=self.where)
        except IndexMissingError:
            return

    async def _open(self, *, create: bool) -> SearchClient:
        """Raises `IndexMissingError` where there is none and none is to be created, `ConfigError` where it is not as it should be."""
        async with self._opening:
            if self._version is None:
                there = [version for version in await self._versions() if self._fixed in {None, version}]
                version = there[0] if there else self._fixed or 1
                if not there and not create:
                    raise IndexMissingError(f"{self.where} is not there")
                self._compare(await self._definition(version, create=not there))
                self._version = version
        return self._connection.documents(self.index)

    async def _definition(self, version: int, *, create: bool) -> dict[str, Any]:
        from azure.core.exceptions import HttpResponseError
        from azure.search.documents.indexes.models import SearchIndex

        indexes, name = self._connection.indexes(), self._named(version)

        async def ask() -> dict[str, Any]:
            if create:
                try:
                    return (await indexes.create_index(SearchIndex(self._wanted(name)))).as_dict()
                except HttpResponseError as error:
                    # Another process was faster, or this one was, and lost the answer.
                    if error.status_code not in _CONFLICT or name not in [one.name async for one in indexes.list_indexes(select=["name"])]:
                        raise
            return (await indexes.get_index(name)).as_dict()

        return await self.patience.call(ask, where=self.where)

    def _wanted(self, name: str) -> dict[str, Any]:
        return definition(name, self._dimensions, self._semantic)

    def _compare(self, found: dict[str, Any]) -> None:
        size = found_dimensions(found)
        if size is not None and size != self._dimensions:
            raise ConfigError(
                f"{self.where} holds vectors of {size} dimensions, not {self._dimensions}; use the embedder that wrote it, or another "
                "[store] index"
            )
        problems = differences(found, self._wanted(""))
        if problems:
            raise ConfigError(
                f"{self.where} is not as this version of ragstore makes it: {'; '.join(problems)}. Name another [store] index and index "
                "again, or delete this one"
            )
