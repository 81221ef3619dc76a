"""A call that may be throttled in, its result out: jittered backoff within a budget of attempts and of time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from ragstore.errors import TransientError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """How long to go on. Waits are drawn between half of and the whole of `first_wait` doubled per attempt, up to `longest_wait`."""

    attempts: int = 6
    seconds: float = 60.0
    """From the first attempt to the start of the last."""
    first_wait: float = 0.5
    longest_wait: float = 20.0


async def with_retries(
    call: Callable[[], Awaitable[Result]],
    *,
    budget: RetryBudget,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """The result of `call`, which is called again after a `TransientError`.

    - Waits at least `retry_after` where the other side asked for it.
    - Where the next wait would break the budget, the last error is raised at once: whoever called knows better what to do meanwhile.
    """
    end = clock() + budget.seconds
    for attempt in range(1, budget.attempts + 1):
        try:
            return await call()
        except TransientError as error:
            backoff = min(budget.longest_wait, budget.first_wait * 2 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311 - jitter
            wait = max(backoff, error.retry_after or 0.0)
            if attempt == budget.attempts or clock() + wait > end:
                raise
        await sleep(wait)
    raise ValueError(f"a retry budget needs at least 1 attempt, not {budget.attempts}")


def retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """The wait in seconds that a `Retry-After` header asks for: a number or an HTTP date (RFC 9110 §10.2.3); None where it is neither."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if abs(seconds) < float("inf") else None
