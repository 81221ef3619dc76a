"""What the file system says of a file in; whether it changed, and whether its times can be trusted, out."""

from __future__ import annotations

import os
import time

TICK = 0.02
"""Seconds. File times move in steps of the kernel's timer, 1 to 10 ms: two writes within one step leave the same times behind."""


def signature(status: os.stat_result) -> str:
    """Another after every write, rename over it or change of rights, once the file is settled. For a person it means nothing."""
    return f"{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def seconds_to_settle(status: os.stat_result) -> float:
    """How long to wait until a further write must leave later times; 0 where that is so already.

    Times in the future are no reason to wait: the kernel's clock never is ahead of ours, so somebody set them.
    """
    now = time.time()
    ages = (now - status.st_mtime, now - status.st_ctime)
    return max((TICK - age for age in ages if 0 <= age < TICK), default=0.0)


def is_settled(status: os.stat_result) -> bool:
    """Whether a further write must leave later times."""
    return seconds_to_settle(status) == 0.0
