"""Errors of a part that is down in, waits that grow and are spread at random out."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from ragstore.errors import AccessError, ConfigError, OutageError, TransientError

Passing = (OutageError, TransientError)
"""What ends by itself: whoever meets it keeps what it has in hand, waits, and tries again."""

PATIENTLY = (*Passing, ConfigError, AccessError)
"""What a worker waits for that nobody watches: a file of tags or of the policy that somebody is just editing, a role that was taken away by
mistake. It has begun well, so that the configuration is right but for that."""

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds between attempts."""


class Outage:
    """Whether a part is down, since when and why. One of these for each loop that can go on without the others."""

    def __init__(self, stop: asyncio.Event, *, first: float = FIRST, longest: float = LONGEST) -> None:
        self._stop = stop
        self._first = first
        self._longest = longest
        self._failures = 0
        self.since: float | None = None
        """Seconds since the epoch; None while all is well."""
        self.reason = ""

    @property
    def is_on(self) -> bool:
        """Whether the last attempt failed."""
        return self.since is not None

    async def wait(self, error: Exception) -> None:
        """Note the failure, and come back when the next attempt is due, or at once where the worker is to stop."""
        self.since = self.since if self.since is not None else time.time()
        self.reason = str(error)
        asked = error.retry_after if isinstance(error, TransientError) and error.retry_after else 0.0
        delay = max(asked, min(self._first * 2.0**self._failures, self._longest) * random.uniform(0.5, 1.0))  # noqa: S311 - spreads attempts
        self._failures = min(self._failures + 1, 16)
        await pause(self._stop, delay)

    def over(self) -> bool:
        """An attempt went well. Returns whether this ends an outage."""
        was_on, self.since, self.reason, self._failures = self.is_on, None, "", 0
        return was_on


def spread(attempts: int, *, first: float = 2.0, longest: float = 900.0) -> float:
    """Seconds until one blob is tried again after so many attempts."""
    return min(first * 2.0 ** min(attempts, 16), longest) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads attempts


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but no longer than until the worker is to stop."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
