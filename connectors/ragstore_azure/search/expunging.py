"""An index in, a new one with the same rows in its place out: the one way to know that nothing of a deleted row is left.

The service forgets a deleted document when it merges segments, and nobody can tell it when. A crash before the old index is deleted leaves
it in force, and a copy that the next call drops; after that the copy is in force, and whole.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from ragstore.errors import TransientError
from ragstore_azure.search.failures import IndexMissingError
from ragstore_azure.search.schema import ROW_FIELDS, to_document, to_row
from ragstore_azure.search.searching import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from ragstore_azure.search.reading import Reader
    from ragstore_azure.search.service import Service
    from ragstore_azure.search.writing import Writer

_ROWS: Final = 1_000
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5


async def expunge(service: Service, reader: Reader, writer_of: Callable[[Service], Writer]) -> None:
    """Copy every row into a new index, wait until it shows them all, and let it take the old one's place."""
    await reader.settle()
    try:
        copy = await service.successor()
    except IndexMissingError:
        return
    writer, copied, waiting = writer_of(copy), 0, list[dict[str, Any]]()
    async for document in reader.documents(None, ROW_FIELDS):
        waiting.append({"@search.action": "upload", **to_document(to_row(document), time.time_ns())})
        if len(waiting) == _ROWS:
            copied += len(await writer.send(waiting))
            waiting = []
    copied += len(await writer.send(waiting))
    await _shown(copy, copied)
    await service.retire()


async def _shown(copy: Service, rows: int) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := await copy.read(lambda client: count(client, None))) != rows:
        if time.monotonic() > until:
            raise TransientError(f"{copy.where} shows {found} of {rows} rows that were copied into it; the old index is still in force")
        await asyncio.sleep(_POLL_SECONDS)
