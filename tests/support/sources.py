"""A real source around which a test puts errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from typing_extensions import override

from ragstore.contracts import Source
from ragstore.models import BlobState, FetchedBlob


class Wrapped(Source):
    """A real source; a test puts an error in front of a call, or something to do behind one."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.account, self.container, self.location, self.max_bytes = source.account, source.container, source.location, source.max_bytes
        self.list_error: Exception | None = None
        self.state_errors: dict[str, Exception] = {}
        self.fetch_errors: dict[str, Exception] = {}

    @override
    async def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        async for state in self.source.list(below=below):
            yield state
            if self.list_error is not None:
                raise self.list_error

    @override
    async def state(self, path: str) -> BlobState | None:
        if path in self.state_errors:
            raise self.state_errors[path]
        return await self.source.state(path)

    @override
    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        if path in self.fetch_errors:
            raise self.fetch_errors[path]
        return await self.source.fetch(path, spool)

    @override
    async def close(self) -> None:
        await self.source.close()
