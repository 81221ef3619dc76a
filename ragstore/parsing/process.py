"""A request in, the head and blocks of its document out, from one parser process that is watched and can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragstore.errors import PoisonError, TransientError
from ragstore.models import Block
from ragstore.parsing import frames

Reply = tuple[str, str | None, str | None]
"""Media type, title, encoding."""

_PACKAGES = str(Path(__file__).parents[2])
# The same package as here, wherever it is; whatever else lies beside it does not come before the standard library.
_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
import ragstore
sys.path.append(sys.path.pop(0))
from ragstore.parsing.worker import main
main(int(sys.argv[2]))
"""
_KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TMP", "TEMP", "SYSTEMROOT", "WINDIR", "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHOME",
)  # fmt: skip
"""The environment of a worker: no credential, no proxy, nothing that it has no use for."""
_START_SECONDS = 60
_STEP = 8 * 2**20
"""Bytes of a file for which it may take the limit of seconds once more."""
_EXPANSION = 8
_MEMORY_SIGNALS = {6, 9}  # SIGABRT: what native code does when it gets no memory; SIGKILL: the kernel's out-of-memory killer
_CPU_SIGNAL = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to parse, and within which limits."""

    file: Path
    name: str
    declared: str | None
    size: int
    """Bytes."""
    seconds: float
    text: int
    """Characters of a format that is not read as a stream."""

    @property
    def allowance(self) -> float:
        """Seconds: the limit once, and once more for each `_STEP` bytes."""
        return self.seconds * (1 + self.size // _STEP)

    def message(self) -> dict[str, Any]:
        """What the worker is told."""
        return {
            "file": str(self.file.absolute()),
            "name": self.name.encode("utf-8", "replace").decode(),
            "declared": None if self.declared is None else self.declared.encode("utf-8", "replace").decode(),
            "seconds": self.allowance,
            "text": self.text,
        }


class Crash(Exception):  # noqa: N818 - what happened to a worker, not yet an error of the caller
    """The worker died or had to be killed; `error` is what to make of it."""

    def __init__(self, error: PoisonError) -> None:
        super().__init__(error.reason)
        self.error = error


class WorkerProcess:
    """One parser process. Start it with `start`; it serves one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._request: Request | None = None
        self._characters = 0
        self.served = 0
        """Files finished."""
        self.resident = 0
        """Bytes in use after the last file."""

    @classmethod
    async def start(cls, memory: int) -> WorkerProcess:
        """A new process, which neither imports the caller's main module nor sees its credentials.

        Raises `TransientError` where it does not come up.
        """
        environment = {key: os.environ[key] for key in _KEPT if key in os.environ} | {"PYTHONDONTWRITEBYTECODE": "1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-X", "utf8", "-c", _BOOT, _PACKAGES, str(memory),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await worker._frame()
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            await worker.kill()
            raise TransientError(f"no parser process could be started with {sys.executable!r}") from error
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def idle(self) -> bool:
        """Whether the last request is finished."""
        return self._request is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def begin(self, request: Request) -> Reply:
        """Send the request; media type, title and encoding of its document. Raises `PoisonError`, `OSError` or `Crash`."""
        self._request = request
        self._characters = 0
        assert self._process.stdin is not None  # noqa: S101 - it was asked for as a pipe
        try:
            self._process.stdin.write(frames.pack(request.message()))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._crash() from None
        media_type, title, encoding = (await self._receive(request, request.allowance))["head"]
        return media_type, title, encoding

    async def next_block(self) -> Block | None:
        """The next block of the document, None after the last. Raises `PoisonError` or `Crash`."""
        request = self._request
        if request is None:
            return None
        message = await self._receive(request, request.seconds)
        if "end" in message:
            self._finish(message["end"])
            return None
        block = frames.block_of(message)
        self._characters += len(block.text)
        if self._characters > request.text + _EXPANSION * request.size:
            await self.kill()
            raise Crash(PoisonError("too_large", f"the parser put out more than {self._characters} characters"))
        return block

    async def kill(self) -> None:
        """End the process and wait until it is gone."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:  # else an unread pipe is reported as a leak
            transport.close()

    def _finish(self, resident: int) -> None:
        self._request = None
        self.served += 1
        self.resident = resident

    async def _receive(self, request: Request, seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                message = await self._frame()
        except TimeoutError:
            await self.kill()
            raise Crash(PoisonError("timeout", f"the parser gave no answer for {seconds:g} seconds")) from None
        except (asyncio.IncompleteReadError, ConnectionResetError, ValueError):
            raise await self._crash() from None
        if "poison" in message:
            self._finish(0)
            raise frames.error_of(message)
        if "os" in message:
            self._finish(0)
            code, text = message["os"]
            raise OSError(code, f"{request.file.name}: {text}")
        return message

    async def _frame(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        (length,) = frames.PREFIX.unpack(await self._process.stdout.readexactly(frames.PREFIX.size))
        if length > frames.LARGEST:
            raise ValueError("a frame beyond all limits")
        return frames.unpack(await self._process.stdout.readexactly(length))

    async def _crash(self) -> Crash:
        """What the way in which the process ended says about the file."""
        try:
            async with asyncio.timeout(5):
                code = await self._process.wait()
        except TimeoutError:
            code = 0
        await self.kill()
        if -code in _MEMORY_SIGNALS:
            return Crash(PoisonError("too_large", f"the parser took more memory than is allowed (signal {-code})"))
        if -code == _CPU_SIGNAL:
            return Crash(PoisonError("timeout", "the parser took more CPU time than is allowed"))
        return Crash(PoisonError("crashed", f"the parser process died (exit code {code})"))
