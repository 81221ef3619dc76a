"""A policy file in, its parsed content out, parsed again whenever the file changes; a change that fails denies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from ragstore.errors import AccessError, ConfigError

Content = TypeVar("Content")

_log = logging.getLogger("ragstore.access")

_SETTLED_NS: Final = 100_000_000
"""Two writes within one tick of the file system's clock have the same time: a file younger than this is read again."""
_SECOND_NS: Final = 1_000_000_000
_COARSE_NS: Final = 3 * _SECOND_NS
"""The same where times are whole seconds: some network file systems tick once a second, FAT once in two."""


class WatchedFile(Generic[Content]):
    """Reads at construction, raising `ConfigError`; later a file that is gone or does not parse raises `AccessError` until it is mended.

    Whether it changed is asked on each call of `current` (one `stat`): time of modification, time of change, size, inode.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Content]) -> None:
        self.path = path
        self._parse = parse
        self._lock = threading.Lock()
        self._signature: tuple[int, ...] | None = None
        self._reported: str | None = None
        self._content = self._read()

    def current(self) -> Content:
        """The content of the file as it is now. Raises `AccessError` where the file has become unreadable."""
        with self._lock:
            try:
                if self._signature is None or self._signature != self._stat():
                    self._content = self._read()
            except ConfigError as error:
                self._signature = None
                self._report(str(error))
                # Whoever asks may be anybody, and the reason may quote paths and ids: that is for the log.
                raise AccessError(f"access is denied to everyone until {self.path.name!r} is mended; the log says what is wrong") from error
            self._reported = None
            return self._content

    def _report(self, reason: str) -> None:
        """Once for each thing that is wrong, not for each caller."""
        if reason != self._reported:
            self._reported = reason
            _log.error("access.policy_unreadable: %s", reason)

    def _unreadable(self, error: OSError | ValueError) -> ConfigError:
        """In the words of the system, which name the path once more, the reason alone."""
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        return ConfigError(f"cannot read {str(self.path)!r}: {reason}; bring the file back, or name another one in [access]")

    def _stat(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)

    def _read(self) -> Content:
        signature = self._stat()
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise self._unreadable(error) from error
        content = self._parse(data)
        self._signature = signature if is_settled(signature[0], signature[1], now=time.time_ns()) else None
        return content


def is_settled(modified: int, changed: int, *, now: int) -> bool:
    """Whether a further write must show in the times of a file (all in nanoseconds since 1970)."""
    coarse = modified % _SECOND_NS == 0 and changed % _SECOND_NS == 0
    return now - changed > (_COARSE_NS if coarse else _SETTLED_NS)
