"""Pieces of a blob's content in; a new file in the spool folder, named by hash, and the content's SHA-256 out."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from ragstore.errors import TransientError


class SpoolFile:
    """A file in the making. Whoever leaves the `with` block without `finish` leaves no file behind.

    - The name comes from the content's hash and chance, never from a blob's path, which may hold `..` or be too long for a file system.
    - Two files of the same content have two names, so that each owner may delete its own.
    - Raises `TransientError` where the spool folder cannot be written, for example because the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"part-{secrets.token_hex(16)}"
        self._hash = hashlib.sha256()
        self._finished = False
        self.size = 0
        """Bytes written so far."""
        try:
            self._file = self._path.open("xb", buffering=0)
        except OSError as error:
            raise _spool_error(folder, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if not self._finished:
            self._path.unlink(missing_ok=True)

    def write(self, piece: bytes | memoryview) -> None:
        """Append the next piece."""
        view = memoryview(piece)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise _spool_error(self._path.parent, error) from error
        self._hash.update(piece)
        self.size += len(piece)

    def start_again(self) -> None:
        """Forget all that was written: the blob changed while it was read."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.size = 0

    def finish(self) -> tuple[Path, str]:
        """Close the file and give it its name. Returns its path, which the caller now owns, and the SHA-256 in hex."""
        self._file.close()
        digest = self._hash.hexdigest()
        path = self._path.with_name(f"{digest[:32]}-{secrets.token_hex(4)}")
        try:
            self._path.rename(path)
        except OSError as error:
            raise _spool_error(self._path.parent, error) from error
        self._finished = True
        return path, digest


def _spool_error(folder: Path, error: OSError) -> TransientError:
    return TransientError(
        f"cannot write to the spool folder {str(folder)!r}: {error.strerror or error}; free space there or make it writable"
    )
