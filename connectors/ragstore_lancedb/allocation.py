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
_TEXT_PARTITION: Final = ("LANCE_FTS_PARTITION_SIZE", "32")
"""Megabytes."""


def bound_read_ahead() -> None:
    """Have Lance read at most 32 MB ahead, instead of 2 GB: compaction reads faster than it writes, and holds what it has read."""
    os.environ.setdefault(*_READ_AHEAD)


def bound_text_partitions() -> None:
    """Have Lance write a part of a full-text index when it takes 32 MB, instead of 256 MB, on each thread that makes one.

    Measured with 400 thousand rows of 650 bytes: to make the index, and to compact after it, each peak 40 MB lower with parts of 24 MB.
    Parts of 32 MB are three instead of one, and a search goes through them in the same time; 66 parts, of 2 MB, take half as long again.
    """
    os.environ.setdefault(*_TEXT_PARTITION)


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
    if not _glibc_is_ours():
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
    libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)


def give_back_free_pages() -> None:
    """Have glibc give back the pages of its heaps on which nothing is in use; a few milliseconds. Elsewhere nothing happens.

    What is smaller than a large block comes from heaps that glibc shrinks at their ends only. Measured while 400 thousand rows are written:
    10 to 30 MB are free in them but resident at any time, and 46 MB when they are written.
    """
    if _glibc_is_ours():
        ctypes.CDLL(None).malloc_trim(0)


def _glibc_is_ours() -> bool:
    """Whether the allocator is glibc's, and whoever runs the process has not set it."""
    return platform.libc_ver()[0] == "glibc" and not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
