"""Requests of many principals in; for each the seconds to wait, 0 where it may go on, out."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 10_000
"""Principals that are remembered. One that is forgotten has a full bucket again."""


class RateLimit:
    """A token bucket for each principal: `burst` requests at once, and `rate` per minute from then on. A `rate` of 0 is no limit."""

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = rate / 60
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, principal: str) -> float:
        """Take one; or, where there is none, say how many seconds later there is."""
        if not self._per_second:
            return 0.0
        now = self._clock()
        left, since = self._buckets.pop(principal, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._per_second)
        allowed = left >= 1
        self._buckets[principal] = (left - 1 if allowed else left, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second
