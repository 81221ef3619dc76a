"""Options in, Pinecone's SDK and an index that fits out: found by name or by host, checked, and made where that was asked for."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from ragstore.embedding.retry import RetryBudget, with_retries
from ragstore.errors import ConfigError
from ragstore_pinecone.failures import translated

if TYPE_CHECKING:
    from pinecone import AsyncIndex, AsyncPinecone, IndexModel

T = TypeVar("T")

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")
_DENSE: Final = "_values"
"""The field under which the vectors API finds the vectors of an index; one with fields of other names has a documents API only."""
_REMEDY: Final = "pip uninstall -y pinecone-client pinecone, then pip install 'ragstore[pinecone]'"


def load_pinecone() -> ModuleType:
    """The SDK. Raises `ConfigError` where it is missing, or hidden by `pinecone-client`, its name of before.

    The last release of that raises while it is imported, older ones have another interface, and both are in the same folder as the SDK.
    Removing it takes files of the SDK along, so both have to go.
    """
    try:
        former = version("pinecone-client")
    except PackageNotFoundError:
        former = None
    try:
        import pinecone
    except ModuleNotFoundError as error:
        if error.name == "pinecone":
            raise ConfigError("the store 'pinecone' needs a package that is not installed: pip install 'ragstore[pinecone]'") from error
        raise
    except Exception as error:
        if former is None:
            raise
        raise ConfigError(f"pinecone-client {former} hides the Pinecone SDK of today, whose former name it is: {_REMEDY}") from error
    if not hasattr(pinecone, "AsyncPinecone"):
        found = f"pinecone-client {former}" if former else "another release, or what pinecone-client left behind"
        raise ConfigError(f"the Pinecone SDK is not what ragstore needs (found: {found}): {_REMEDY}")
    return pinecone


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the index is, and what opens it."""

    index: str | None
    host: str | None
    endpoint: str | None
    api_key_env: str
    cloud: str | None
    region: str | None

    def __post_init__(self) -> None:
        """Raises `ConfigError` for options that do not go together."""
        if (self.index is None) == (self.host is None):
            raise ConfigError('[store] type = "pinecone" wants either index = "NAME" or host = "HOST", as the console shows it')
        if self.index is not None and not _NAME.fullmatch(self.index):
            raise ConfigError(f"[store] index = {self.index!r}: a name has 1 to 45 small letters, digits and '-', which is not at an end")
        if (self.cloud is None) != (self.region is None) or (self.cloud is not None and self.host is not None):
            raise ConfigError("[store] cloud and region say together where an index is made that is not there yet, with index = NAME")

    @property
    def where(self) -> str:
        """For messages."""
        return f"the Pinecone index {self.index!r}" if self.index is not None else f"the Pinecone index at {self.host}"


class Connection:
    """One index, opened late. Whoever only reads never makes one."""

    def __init__(self, location: Location, dimensions: int, *, timeout: float, budget: RetryBudget, ready_seconds: int) -> None:
        self.dimensions = dimensions
        self._location = location
        self._timeout = timeout
        self._budget = budget
        self._ready_seconds = ready_seconds
        self._client: AsyncPinecone | None = None
        self._index: AsyncIndex | None = None
        self._opening = asyncio.Lock()

    async def index(self, *, create: bool) -> AsyncIndex | None:
        """The index, or None where there is none, `create` is not said, and it may be made later.

        Raises `ConfigError` for an index that does not fit, and names each difference.
        """
        async with self._opening:
            if self._index is None:
                client = await self._connect()
                self._index = await (self._by_host(client) if self._location.host is not None else self._by_name(client, create=create))
            return self._index

    async def call(self, request: Callable[[], Awaitable[T]], *, absent: T | None = None) -> T:
        """The answer to a request that may be repeated; `absent` where there is no such thing (404) and that is an answer.

        The SDK itself tries four times and honours `Retry-After`; this goes on after it, within the budget.
        """
        from pinecone.errors import NotFoundError, PineconeError

        async def attempt() -> T:
            try:
                return await request()
            except PineconeError as error:
                if absent is not None and isinstance(error, NotFoundError):
                    return absent
                raise translated(error, where=self._location.where, key=self._location.api_key_env) from error

        return await with_retries(attempt, budget=self._budget)

    async def close(self) -> None:
        """Give back connections."""
        index, client, self._index, self._client = self._index, self._client, None, None
        if index is not None:
            await index.close()
        if client is not None:
            await client.close()

    async def _connect(self) -> AsyncPinecone:
        if self._client is None:
            pinecone = await asyncio.to_thread(load_pinecone)
            key = os.environ.get(self._location.api_key_env, "").strip()
            if not key:
                raise ConfigError(f"[store] api_key_env names the environment variable {self._location.api_key_env!r}, which is not set")
            try:
                self._client = pinecone.AsyncPinecone(api_key=key, host=self._location.endpoint, timeout=self._timeout)
            except pinecone.PineconeError as error:
                raise translated(error, where=self._location.where, key=self._location.api_key_env) from error
        return self._client

    async def _by_host(self, client: AsyncPinecone) -> AsyncIndex:
        host = self._location.host or ""
        index = await self.call(lambda: client.index(host=host))
        try:
            self._check(await self.call(index.describe_index_stats))
        except BaseException:
            await index.close()
            raise
        return index

    async def _by_name(self, client: AsyncPinecone, *, create: bool) -> AsyncIndex | None:
        name = self._location.index or ""
        if not await self.call(lambda: client.indexes.exists(name)):
            if self._location.cloud is None:
                raise ConfigError(
                    f"{self._location.where} is not there; create it (serverless, {self.dimensions} dimensions, metric cosine), "
                    "or say where with cloud and region"
                )
            if not create:
                return None
            await self._create(client, name)
        model = await self.call(lambda: client.indexes.describe(name))
        self._check_model(model)
        return await self.call(lambda: client.index(host=model.host or ""))

    async def _create(self, client: AsyncPinecone, name: str) -> None:
        from pinecone.errors import ConflictError

        async def made() -> object:
            try:
                return await client.indexes.create(
                    name=name,
                    schema={"fields": {_DENSE: {"type": "dense_vector", "dimension": self.dimensions, "metric": "cosine"}}},
                    deployment={"deployment_type": "managed", "cloud": self._location.cloud, "region": self._location.region},
                    timeout=self._ready_seconds,
                )
            except ConflictError:
                return None  # somebody else has just made it, or an attempt of ours whose answer was lost

        await self.call(made)

    def _check_model(self, model: IndexModel) -> None:
        from pinecone.models.indexes.deployment import PodDeployment

        if isinstance(model.deployment, PodDeployment):
            raise ConfigError(f"{self._location.where} runs on pods, where ids cannot be listed; ragstore needs a serverless index")
        if _DENSE not in model.schema.fields:
            raise ConfigError(
                f"{self._location.where} has named fields ({', '.join(sorted(model.schema.fields))}) and holds documents; "
                "ragstore needs one that was created with dimension and metric"
            )
        if not model.status.ready or model.host is None:
            raise ConfigError(f"{self._location.where} is not ready ({model.status.state}); wait until it is, and run this again")
        self._check(model)

    def _check(self, found: object) -> None:
        wanted = {"dimension": self.dimensions, "metric": "cosine", "vector_type": "dense"}
        actual = {name: getattr(found, name, None) for name in wanted}
        different = [f"{name} {actual[name]}, not {value}" for name, value in wanted.items() if actual[name] not in (value, None)]
        if actual["dimension"] not in (self.dimensions, None):
            raise ConfigError(
                f"{self._location.where} holds vectors of {actual['dimension']} dimensions, not {self.dimensions}, {'; '.join(different)}: "
                "use the embedder that wrote it, or another index: the dimensions of an index in Pinecone never change"
            )
        if different:
            raise ConfigError(f"{self._location.where} does not fit: {'; '.join(different)}; use another index")
