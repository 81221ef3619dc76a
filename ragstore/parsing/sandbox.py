"""Files of unknown harm in, streams of blocks out: parser processes with limits on time, memory and output, started when needed.

One process and one pair of pipes per worker: a worker that dies takes nothing with it but the file that killed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from ragstore.errors import PoisonError
from ragstore.models import Block, Document
from ragstore.parsing.dispatch import is_trusted, parse
from ragstore.parsing.process import Crash, Reply, Request, WorkerProcess
from ragstore.parsing.stream import ParsedStream, as_stream
from ragstore.spool import Content, File

_EAGER = 4 * 2**20
_RECYCLE_FILES = 500
_RECYCLE_BYTES = 768 * 2**20


class ParserPool:
    """Parses files with up to `workers` processes.

    `seconds` is the longest wait for the next block and, for each 8 MB of a file, the CPU time it may take; `memory` is the number of
    bytes of address space per process (Linux); `text` is the number of characters that a format may hold which is not read as a stream.
    """

    def __init__(self, *, workers: int = 2, seconds: float = 60, memory: int = 2 * 2**30, text: int = 64 * 2**20) -> None:
        self._slots = asyncio.Semaphore(workers)
        self._alone = asyncio.Lock()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._seconds = seconds
        self._memory = memory
        self._text = text
        self._closed = False

    async def parse(self, file: Path | Content, *, name: str, declared: str | None) -> ParsedStream:
        """The document in this file. Small plain text is read here; anything else in a worker, where it can do no harm.

        A stream whose document is longer than about 4 MB holds its worker until it is read to the end or closed.
        Raises `PoisonError`, and `OSError` where the file cannot be read.
        """
        if is_trusted(file, name=name, declared=declared):
            if isinstance(file, Content) and file.in_memory:
                return as_stream(self._whole(file, name, declared))
            return as_stream(await asyncio.to_thread(self._whole, file, name, declared))
        request = await asyncio.to_thread(self._request, file, name, declared)
        await self._slots.acquire()
        lease = _Lease(self)
        try:
            return await self._attempts(request, lease)
        except BaseException:
            await lease.drop()
            raise

    async def close(self) -> None:
        """End all workers, busy ones too. Nothing else may be called afterwards."""
        self._closed = True
        for worker in [*self._idle, *self._busy]:
            await worker.kill()
        self._idle.clear()
        self._busy.clear()

    def _whole(self, file: File, name: str, declared: str | None) -> Document:
        document = parse(file, name=name, declared=declared, text_limit=self._text)
        return Document(media_type=document.media_type, title=document.title, encoding=document.encoding, blocks=tuple(document.blocks))

    def _request(self, file: Path | Content, name: str, declared: str | None) -> Request:
        place = file.path() if isinstance(file, Content) else file
        return Request(file=place, name=name, declared=declared, size=place.stat().st_size, seconds=self._seconds, text=self._text)

    async def _attempts(self, request: Request, lease: _Lease) -> ParsedStream:
        """The first answer, where a crash is given a second chance, alone and in a fresh process: a neighbour may have been the cause."""
        try:
            return await self._attempt(request, lease)
        except Crash as crash:
            if crash.error.kind == "timeout":
                raise crash.error from None
        async with self._alone:
            await self._retire_idle()
            try:
                return await self._attempt(request, lease)
            except Crash as crash:
                raise crash.error from None

    async def _attempt(self, request: Request, lease: _Lease) -> ParsedStream:
        """The head of the document and, where they are few, all its blocks: then the worker is free at once."""
        worker = await self._take()
        lease.worker = worker
        try:
            head = await worker.begin(request)
            blocks: list[Block] = []
            held = 0
            while held < _EAGER and (block := await worker.next_block()) is not None:
                blocks.append(block)
                held += len(block.text)
        except PoisonError:
            await lease.give_back()
            raise
        except BaseException:
            await self._discard(worker)
            lease.worker = None
            raise
        if worker.idle:
            await lease.give_back()
            return _stream(head, _ready(blocks))
        return _stream(head, self._rest(blocks, worker, lease), lease)

    async def _rest(self, blocks: list[Block], worker: WorkerProcess, lease: _Lease) -> AsyncIterator[Block]:
        try:
            while blocks:
                yield blocks.pop(0)
            while (block := await worker.next_block()) is not None:
                yield block
            await lease.give_back()
        except Crash as crash:
            raise crash.error from None
        finally:
            await lease.drop()

    async def _take(self) -> WorkerProcess:
        if self._closed:
            raise RuntimeError("the parser pool is closed")
        worker = self._idle.pop() if self._idle else await WorkerProcess.start(self._memory)
        self._busy.add(worker)
        return worker

    async def _retire_idle(self) -> None:
        while self._idle:
            await self._idle.pop().kill()

    async def _discard(self, worker: WorkerProcess) -> None:
        self._busy.discard(worker)
        await worker.kill()

    async def _return(self, worker: WorkerProcess) -> None:
        """Keep the worker for the next file, unless it is worn."""
        fresh = worker.idle and worker.served < _RECYCLE_FILES and worker.resident < _RECYCLE_BYTES
        if fresh and not self._closed and worker in self._busy:
            self._busy.discard(worker)
            self._idle.append(worker)
        else:
            await self._discard(worker)


class _Lease:
    """One slot of the pool and the worker that fills it; given back once, whoever is first."""

    def __init__(self, pool: ParserPool) -> None:
        self._pool = pool
        self._open = True
        self.worker: WorkerProcess | None = None

    async def give_back(self) -> None:
        """The worker has finished its file."""
        if self._open:
            self._open = False
            try:
                if self.worker is not None:
                    await self._pool._return(self.worker)  # noqa: SLF001 - the pool's own other half
            finally:
                self._pool._slots.release()  # noqa: SLF001 - the pool's own other half

    async def drop(self) -> None:
        """The file is given up: end the worker, which may be in the middle of it."""
        if self._open:
            self._open = False
            try:
                if self.worker is not None:
                    await self._pool._discard(self.worker)  # noqa: SLF001 - the pool's own other half
            finally:
                self._pool._slots.release()  # noqa: SLF001 - the pool's own other half


def _stream(head: Reply, blocks: AsyncIterator[Block], lease: _Lease | None = None) -> ParsedStream:
    media_type, title, encoding = head
    if lease is None:
        return ParsedStream(media_type=media_type, title=title, encoding=encoding, blocks=blocks)
    return ParsedStream(media_type=media_type, title=title, encoding=encoding, blocks=blocks, release=lease.drop)


async def _ready(blocks: list[Block]) -> AsyncIterator[Block]:
    for block in blocks:
        yield block
