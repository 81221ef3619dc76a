"""The public face for callers without an event loop: the methods of `AsyncIndex`, run on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from ragstore.access.claims import GroupsClaim, Ids
from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.index import AsyncIndex, open_async
from ragstore.ingest.copying import Copied
from ragstore.ingest.purge import Erasure
from ragstore.ingest.report import Progress, SyncReport
from ragstore.ingest.verify import Differences
from ragstore.models import AttributeScalar, Hit, Principal, Prompt
from ragstore.retrieval import Switches
from ragstore.retrieval.standing import Standing

T = TypeVar("T")


def open(config_file: str | Path | Settings = "ragstore.toml", *, connectors: Connectors | None = None) -> Index:  # noqa: A001 - ragstore.open() reads like gzip.open()
    """The index that a configuration file (or `Settings`) describes; use it as a context. Raises `ConfigError`."""
    return Index(config_file, connectors=connectors)


class _Loop:
    """An event loop in a thread. An interrupt of the caller cancels what runs there, and waits until it has ended."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ragstore", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            asyncio.run_coroutine_threadsafe(self._idle(), self._loop).result()
            raise

    async def _idle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Index:
    """One index; see `AsyncIndex`, whose methods these are."""

    def __init__(self, config_file: str | Path | Settings, *, connectors: Connectors | None = None) -> None:
        self._loop = _Loop()
        try:
            self._index = self._loop.run(self._open(config_file, connectors))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(config_file: str | Path | Settings, connectors: Connectors | None) -> AsyncIndex:
        if connectors is not None and isinstance(config_file, Settings):
            return AsyncIndex(config_file, connectors)
        return open_async(config_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back connections, processes and threads."""
        self._loop.run(self._index.close())
        self._loop.close()

    def sync(self, *, allow_mass_delete: bool = False, reembed: bool = False, progress: Progress | None = None) -> SyncReport:
        """See `AsyncIndex.sync`; `progress` is called in the loop's thread."""
        return self._loop.run(self._index.sync(allow_mass_delete=allow_mass_delete, reembed=reembed, progress=progress))

    def refresh_access(self, *, progress: Progress | None = None) -> SyncReport:
        """See `AsyncIndex.refresh_access`."""
        return self._loop.run(self._index.refresh_access(progress=progress))

    def plan(self, *, progress: Progress | None = None) -> SyncReport:
        """See `AsyncIndex.plan`."""
        return self._loop.run(self._index.plan(progress=progress))

    def verify(self, *, repair: bool = False) -> Differences:
        """See `AsyncIndex.verify`."""
        return self._loop.run(self._index.verify(repair=repair))

    def copy_to(self, store: Mapping[str, Any], *, progress: Progress | None = None) -> Copied:
        """See `AsyncIndex.copy_to`."""
        return self._loop.run(self._index.copy_to(store, progress=progress))

    def purge(self, blob: str, *, force: bool = False) -> Erasure:
        """See `AsyncIndex.purge`."""
        return self._loop.run(self._index.purge(blob, force=force))

    def principal(self, name: str | None = None) -> Principal:
        """See `AsyncIndex.principal`."""
        return self._index.principal(name)

    def principal_of_claims(
        self,
        claims: Mapping[str, object],
        *,
        groups_claim: GroupsClaim = "sometimes",
        ids: Ids = "guid",
        attributes: Mapping[str, tuple[AttributeScalar, ...]] | None = None,
        environment: Mapping[str, str | bool] | None = None,
    ) -> Principal:
        """See `AsyncIndex.principal_of_claims`."""
        return self._loop.run(
            self._index.principal_of_claims(claims, groups_claim=groups_claim, ids=ids, attributes=attributes, environment=environment)
        )

    def search(
        self,
        query: str,
        *,
        principal: Principal,
        limit: int = 8,
        filter: str | None = None,
        per_blob: int | None = None,
        legs: Literal["both", "vector", "text"] = "both",
        **switches: Unpack[Switches],
    ) -> list[Hit]:
        """See `AsyncIndex.search`."""
        return self._loop.run(
            self._index.search(query, principal=principal, limit=limit, filter=filter, per_blob=per_blob, legs=legs, **switches)
        )

    def chunk(self, chunk_id: str, *, principal: Principal) -> Hit | None:
        """See `AsyncIndex.chunk`."""
        return self._loop.run(self._index.chunk(chunk_id, principal=principal))

    def readable(self, chunk_ids: Collection[str], *, principal: Principal) -> frozenset[str]:
        """See `AsyncIndex.readable`."""
        return self._loop.run(self._index.readable(chunk_ids, principal=principal))

    def prompt(
        self,
        query: str,
        *,
        principal: Principal,
        max_tokens: int | None = None,
        limit: int = 24,
        filter: str | None = None,
        per_blob: int | None = None,
        legs: Literal["both", "vector", "text"] = "both",
        template: str | None = None,
        history: Sequence[Mapping[str, str]] = (),
        wishes: str = "",
        look_up: str | None = None,
        **switches: Unpack[Switches],
    ) -> Prompt:
        """See `AsyncIndex.prompt`."""
        more: dict[str, Any] = {"per_blob": per_blob, "legs": legs, "template": template, "history": history, "wishes": wishes, **switches}
        more["look_up"] = look_up
        return self._loop.run(self._index.prompt(query, principal=principal, max_tokens=max_tokens, limit=limit, filter=filter, **more))

    def explain(self, blob: str, *, principal: Principal) -> Standing:
        """See `AsyncIndex.explain`."""
        return self._loop.run(self._index.explain(blob, principal=principal))

    def readers(self, blob: str) -> list[tuple[Principal, bool]]:
        """See `AsyncIndex.readers`."""
        return self._loop.run(self._index.readers(blob))

    def contents(self, *, principal: Principal) -> dict[str, list[str]]:
        """See `AsyncIndex.contents`."""
        return self._loop.run(self._index.contents(principal=principal))

    def status(self) -> dict[str, Any]:
        """See `AsyncIndex.status`."""
        return self._loop.run(self._index.status())

    def failures(self) -> list[dict[str, Any]]:
        """See `AsyncIndex.failures`."""
        return self._index.failures()

    def retry_failures(self, blob: str | None = None) -> int:
        """See `AsyncIndex.retry_failures`."""
        return self._index.retry_failures(blob)

    def drop_failures(self, blob: str | None = None) -> int:
        """See `AsyncIndex.drop_failures`."""
        return self._index.drop_failures(blob)

    @property
    def settings(self) -> Settings:
        """What the index was opened with."""
        return self._index.settings
