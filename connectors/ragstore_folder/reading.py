"""A file of the tree in; its content in the spool, with what the file system said of it before and after, out."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time

from ragstore.errors import TransientError
from ragstore.spool import SpoolFile
from ragstore_folder.clock import is_settled, seconds_to_settle, signature
from ragstore_folder.tree import FoundFile

_PIECE = 1 << 20
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
# Without O_NONBLOCK a pipe that took the file's place would hang the reader.


class CancelledReadError(Exception):
    """Whoever asked for the content does not want it any more."""


def read_into(spooled: SpoolFile, found: FoundFile, stop: threading.Event) -> str | None:
    """Append the content to the spool file; the signature of what was read, or None where the file changed meanwhile.

    A write within the same tick of the clock as the one before leaves the same times behind: a file that was written just now is read only
    when its times are old enough to tell. Raises `TransientError` where the file may not be read or reading fails, `CancelledReadError`
    once `stop` is set.
    """
    try:
        descriptor = os.open(found.file, _FLAGS)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise _read_error(found.path, error) from error
    try:
        before = _settled(descriptor, stop)
        if not stat.S_ISREG(before.st_mode) or not is_settled(before) or signature(before) != signature(found.stat):
            return None
        while spooled.size < before.st_size:
            if stop.is_set():
                raise CancelledReadError
            try:
                piece = os.read(descriptor, min(_PIECE, before.st_size - spooled.size))
            except OSError as error:
                raise _read_error(found.path, error) from error
            if not piece:
                break
            spooled.write(piece)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    whole = spooled.size == before.st_size and signature(after) == signature(before)
    return signature(before) if whole else None


def _settled(descriptor: int, stop: threading.Event) -> os.stat_result:
    """The file's status, once its times are old enough; a file that is written all the time is not waited for longer than a few ticks."""
    status = os.fstat(descriptor)
    for _attempt in range(5):
        pause = seconds_to_settle(status)
        if not pause or stop.is_set():
            break
        time.sleep(pause)
        status = os.fstat(descriptor)
    return status


def _read_error(path: str, error: OSError) -> TransientError:
    if isinstance(error, PermissionError):
        return TransientError(f"{path!r} may not be read: give this user read permission on the file, or exclude it")
    return TransientError(f"{path!r} cannot be read: {error.strerror or error}")
