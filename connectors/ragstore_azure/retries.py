"""A call to Azure in; its result, or a ragstore error once patience is at its end, out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from azure.core.exceptions import AzureError

from ragstore.errors import TransientError
from ragstore_azure.errors import translate

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to try what may work later. Times in seconds.

    The SDK's own policy for storage is turned off where this is used (`retry_total=0`): it neither retries 429 nor heeds Retry-After.
    """

    attempts: int = 5
    first_pause: float = 0.5
    """Doubled with each further attempt, with up to half as much again by chance, so that callers who failed together come back apart."""
    longest_pause: float = 30.0
    """Whoever is asked to stay away for longer gives up, and hands on what was asked for."""

    async def call(self, attempt: Callable[[], Awaitable[T]], *, container: str, doing: str) -> T:
        """The result of the first attempt that succeeds. Raises what `translate` makes of the last error or of one not transient."""
        pause = self.first_pause
        for _failed in range(self.attempts - 1):
            try:
                return await attempt()
            except AzureError as error:
                translated = translate(error, container=container, doing=doing)
                asked = translated.retry_after if isinstance(translated, TransientError) else None
                if not isinstance(translated, TransientError) or (asked or 0.0) > self.longest_pause:
                    raise translated from error
            own = pause * random.uniform(1.0, 1.5)  # noqa: S311 - no secret
            await asyncio.sleep(min(own, self.longest_pause) if asked is None else asked)
            pause *= 2
        try:
            return await attempt()
        except AzureError as error:
            raise translate(error, container=container, doing=doing) from error
