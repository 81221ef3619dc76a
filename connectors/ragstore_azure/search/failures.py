"""An error of the Azure SDK in; the ragstore error that says what to do about it out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from ragstore.errors import ConfigError, RagstoreError, TransientError

if TYPE_CHECKING:
    from azure.core.exceptions import AzureError

T = TypeVar("T")

BUSY: Final = frozenset({408, 409, 422, 429, 500, 502, 503, 504})
"""Statuses of a request, or of one document in it, that go away by waiting (https://learn.microsoft.com/rest/api/searchservice/http-status-codes)."""
_LONG: Final = 300
_ROLES: Final = "'Search Service Contributor' and 'Search Index Data Contributor'"


class IndexMissingError(RagstoreError):
    """There is no such index."""


class TooLargeError(RagstoreError):
    """The request has too many bytes: send it in two parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to try what may work later. Times in seconds.

    The SDK's own retries are turned off: they know nothing of single documents.
    """

    attempts: int = 6
    first_pause: float = 0.5
    """Doubled with each further attempt, and spread, so that callers who failed together come back apart."""
    longest_pause: float = 60.0
    """Whoever is asked to stay away for longer gives up, and hands on what was asked for."""

    async def call(self, attempt: Callable[[], Awaitable[T]], *, where: str) -> T:
        """The result of the first attempt that succeeds. Raises what `translate` makes of the last error, or of one not transient."""
        from azure.core.exceptions import AzureError

        for number in range(self.attempts):
            try:
                return await attempt()
            except AzureError as error:
                translated = translate(error, where)
                if not isinstance(translated, TransientError) or not self.goes_on(number, translated.retry_after):
                    raise translated from error
                await self.pause(number, translated.retry_after)
        raise AssertionError("the last attempt returns or raises")

    def goes_on(self, number: int, asked: float | None) -> bool:
        """Whether there is an attempt after this one, counted from 0."""
        return number + 1 < self.attempts and (asked or 0.0) <= self.longest_pause

    async def pause(self, number: int, asked: float | None) -> None:
        """Wait as long as the service asked, or else longer each time."""
        own = self.first_pause * 2**number * random.uniform(0.75, 1.25)  # noqa: S311 - spreads retries, guards nothing
        await asyncio.sleep(min(own, self.longest_pause) if asked is None else asked)


def translate(error: AzureError, where: str) -> RagstoreError:
    """What the error means for the caller; `where` names index and service."""
    from azure.core.exceptions import ClientAuthenticationError

    from ragstore_azure.errors import retry_after, status_of

    status, said = status_of(error), _said(error)
    if status is None:
        if isinstance(error, ClientAuthenticationError):
            return ConfigError(
                f"{where}: no usable credential: {said}. Run `az login`, give the machine a managed identity, or name key_env"
            )
        return TransientError(f"{where}: the service cannot be reached: {said}; check endpoint and network")
    if status < HTTPStatus.BAD_REQUEST:
        return TransientError(f"{where}: the answer cannot be understood: {said}; does a proxy or firewall answer?")
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TooLargeError(f"{where}: {said}")
    if status in BUSY:
        return TransientError(f"{where}: the service answered {status}: {said}", retry_after=retry_after(error))
    if status == HTTPStatus.NOT_FOUND:
        return IndexMissingError(f"{where}: {said}")
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return ConfigError(
            f"{where}: refused with {status}: {said}. An admin key in the variable that key_env names may read and write, or an identity "
            f"with the roles {_ROLES}; a query key may not. A quota that is used up is refused, too"
        )
    # The service quotes a filter that it does not like, and a filter names groups, paths and tags.
    return ConfigError(f"{where}: the service refused with {status}: {said.partition(chr(39))[0].strip() or 'no reason given'}")


def _said(error: AzureError) -> str:
    """The message without what the SDK appends to it, in one line."""
    lines = str(error.message or error).removeprefix("() ").strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_LONG].rstrip(".")
