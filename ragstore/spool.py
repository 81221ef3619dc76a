"""Pieces of a blob's content in; the content, in memory while it is small and else in a file of the spool, with its SHA-256 out."""

from __future__ import annotations

import hashlib
import os
import secrets
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, Protocol, Self

from ragstore.errors import TransientError

HELD: Final = 2**16
"""Bytes. Up to here content stays in memory: file systems take longer to make and delete a small file than we take to index it."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class File(Protocol):
    """What can be read from the beginning as often as wanted: a path, or the content of a blob."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """The bytes."""
        ...

    def stat(self) -> os.stat_result:
        """Of which only the size counts."""
        ...


class Content:
    """The bytes of one blob, which belong to whoever has them, and are gone after `remove`."""

    def __init__(self, folder: Path, name: str, held: bytes | None) -> None:
        """`held` is None where the file of this name was written already."""
        self._path = folder / name
        self._held = held
        self._written = held is None

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """As of `File`."""
        return self._path.open(mode) if self._held is None else BytesIO(self._held)

    def stat(self) -> os.stat_result:
        """As of `File`."""
        return self._path.stat() if self._held is None else os.stat_result((0, 0, 0, 0, 0, 0, len(self._held), 0, 0, 0))

    @property
    def in_memory(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._written

    def read_bytes(self) -> bytes:
        """All of it."""
        with self.open("rb") as file:
            return file.read()

    def path(self) -> Path:
        """A file that holds it, for those who need one. Raises `TransientError` where the spool cannot be written."""
        if not self._written and self._held is not None:
            try:
                _write(_create(self._path), self._held)
            except OSError as error:
                self._path.unlink(missing_ok=True)
                raise _spool_error(self._path.parent, error) from error
            self._written = True
        return self._path

    def remove(self) -> None:
        """Delete the file, if there is one."""
        if self._written:
            self._path.unlink(missing_ok=True)


class SpoolFile:
    """Content in the making. Whoever leaves the `with` block without `finish` leaves no file behind.

    - The name comes from the content's hash and chance, never from a blob's path, which may hold `..` or be too long for a file system.
    - Two files of the same content have two names, so that each owner may delete its own.
    - Raises `TransientError` where the spool folder cannot be written, for example because the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = bytearray()
        self._path: Path | None = None
        self._descriptor = -1
        self._hash = hashlib.sha256()
        self._finished = False
        self.size = 0
        """Bytes written so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._finished:
            self._close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def write(self, piece: bytes | memoryview) -> None:
        """Append the next piece."""
        if self._path is None and self.size + len(piece) <= HELD:
            self._held += piece
        else:
            try:
                self._spill()
                _write_all(self._descriptor, piece)
            except OSError as error:
                raise _spool_error(self._folder, error) from error
        self._hash.update(piece)
        self.size += len(piece)

    def start_again(self) -> None:
        """Forget all that was written: the blob changed while it was read."""
        if not self.size:
            return
        self._held.clear()
        if self._path is not None:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.ftruncate(self._descriptor, 0)
        self._hash = hashlib.sha256()
        self.size = 0

    def finish(self) -> tuple[Content, str]:
        """The content, which the caller now owns, and its SHA-256 in hex."""
        digest = self._hash.hexdigest()
        name = f"{digest[:32]}-{secrets.token_hex(4)}"
        self._close()
        if self._path is not None:
            try:
                self._path.rename(self._folder / name)
            except OSError as error:
                raise _spool_error(self._folder, error) from error
        self._finished = True
        return Content(self._folder, name, bytes(self._held) if self._path is None else None), digest

    def _spill(self) -> None:
        """From now on everything goes to a file; a descriptor alone, because a file object costs four more system calls."""
        if self._path is None:
            self._path = self._folder / f"part-{secrets.token_hex(16)}"
            self._descriptor = _create(self._path)
            _write_all(self._descriptor, self._held)
            self._held.clear()

    def _close(self) -> None:
        """Once: the number may be another file's afterwards."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _create(path: Path) -> int:
    return os.open(path, _FLAGS, 0o600)


def _write(descriptor: int, content: bytes) -> None:
    try:
        _write_all(descriptor, content)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes | bytearray | memoryview) -> None:
    with memoryview(content) as view:
        start = 0
        while start < len(view):
            start += os.write(descriptor, view[start:])


def _spool_error(folder: Path, error: OSError) -> TransientError:
    return TransientError(
        f"cannot write to the spool folder {str(folder)!r}: {error.strerror or error}; free space there or make it writable"
    )
