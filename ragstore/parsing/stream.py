"""A document in, a stream of its blocks out that is consumed the same way wherever it was parsed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ragstore.models import Block, Document


async def _nothing() -> None:
    """There is nothing to give back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStream:
    """A parsed blob whose blocks arrive as they are asked for.

    - An async context; leaving it, or `aclose`, gives back the worker process. A worker is also given back after the last block.
    - Iterating may raise `PoisonError`: the fault may be in the last megabyte.
    """

    media_type: str
    title: str | None = None
    encoding: str | None = None
    blocks: AsyncIterator[Block]
    release: Callable[[], Awaitable[None]] = _nothing

    async def aclose(self) -> None:
        """Stop early; what is not read is dropped. May be called more than once."""
        await self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


def as_stream(document: Document) -> ParsedStream:
    """The document's blocks as a stream; lazy ones are read in a thread, one at a time."""
    lazy = isinstance(document.blocks, Iterator)
    blocks = _in_thread(document.blocks) if lazy else _ready(document.blocks)
    return ParsedStream(media_type=document.media_type, title=document.title, encoding=document.encoding, blocks=blocks)


async def _ready(blocks: Iterable[Block]) -> AsyncIterator[Block]:
    for block in blocks:
        yield block


async def _in_thread(blocks: Iterable[Block]) -> AsyncIterator[Block]:
    iterator = iter(blocks)
    while (block := await asyncio.to_thread(next, iterator, None)) is not None:
        yield block
