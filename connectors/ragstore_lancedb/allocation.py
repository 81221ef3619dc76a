"""A process in, the same one out with allocators that give memory back: it stays flat while a collection is written."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Final

_POOL: Final = "ARROW_DEFAULT_MEMORY_POOL"
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 128 * 1024
"""Bytes; where glibc begins by itself, before it adapts."""

_READ_AHEAD: Final = ("LANCE_DEFAULT_IO_BUFFER_SIZE", str(32 * 2**20))


def bound_read_ahead() -> None:
    """Have Lance read at most 32 MB ahead, instead of 2 GB: compaction reads faster than it writes, and holds what it has read."""
    os.environ.setdefault(*_READ_AHEAD)


def use_system_memory_in_arrow() -> None:
    """Have Arrow allocate from the system; must come before the first import of pyarrow, and is too late otherwise.

    Its own allocator keeps what was freed, for each thread: measured, half a kilobyte for every row that was ever written. A pool that
    the variable `ARROW_DEFAULT_MEMORY_POOL` names stays.
    """
    if _POOL in os.environ or "pyarrow" in sys.modules:
        return
    os.environ[_POOL] = "system"
    try:
        import pyarrow as pa

        pa.default_memory_pool()  # is chosen now, so that the variable need not stay
    finally:
        del os.environ[_POOL]


def give_back_large_blocks() -> None:
    """Have glibc map every block from 128 kB on by itself, and unmap it when it is freed. Elsewhere nothing happens.

    By default glibc raises that limit to the largest block that was freed, up to 32 MB, and takes what is below it from one of several
    heaps, which cannot shrink under anything that is still in use. Lance allocates megabytes for moments, on many threads: measured,
    writing 400 thousand rows leaves 420 MB resident with the default, and 200 MB so, in the same time. Whoever runs the process has the
    last word: where a variable `MALLOC_..._` or `GLIBC_TUNABLES` is set, nothing is changed.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
    libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)
