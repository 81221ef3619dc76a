"""A queue service in; messages received, kept from others, given back, deleted and set aside out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar
from xml.sax.saxutils import escape

from azure.core.exceptions import AzureError, ResourceExistsError

from ragstore.errors import ConfigError, RagstoreError
from ragstore_azure.credentials import identity_credential
from ragstore_azure.errors import code_of, status_of
from ragstore_azure.queue_access import POISON_SUFFIX, QueueAccess
from ragstore_azure.retries import Patience

if TYPE_CHECKING:
    from azure.storage.queue import QueueMessage
    from azure.storage.queue.aio import QueueClient

T = TypeVar("T")

PAGE: Final = 32
"""The most that the service gives at once."""
_API_VERSION: Final = "2023-11-03"
"""As for blobs: what is on the wire stays the same whatever SDK is installed."""
_LARGEST: Final = 64 * 2**10
"""Bytes of a message, escaped as XML (https://learn.microsoft.com/rest/api/storageservices/put-message)."""
_PARALLEL: Final = 16
_FOR_EVER: Final = -1
ROLE: Final = "Storage Queue Data Contributor"


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A message that nobody else sees for now."""

    id: str
    text: str
    inserted: datetime
    attempts: int
    """How often it was received, this time included."""
    pop_receipt: str
    """Shows that the message is ours; a new one comes with each extension, and the old one is void."""
    since: float
    """When the time during which nobody sees it began, by `time.monotonic`."""
    ended: bool = False
    """Deleted, given back, or taken by somebody else."""
    expiring: bool = False
    """About to reach the end of its life, beyond which the service does not let it stay invisible: it cannot be extended any more."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Only one call at a time: a deletion beside an extension would show a void pop receipt."""


class MessageQueue:
    """One queue, and the queue beside it for what cannot be read. Errors are translated as by `Patience.call`, with advice on queues."""

    def __init__(self, access: QueueAccess, queue: str, *, visibility_seconds: int) -> None:
        self.name = f"{access.account or access.endpoint}/{queue}"
        self.poison_name = f"{queue}{POISON_SUFFIX}"
        self.taken = 0
        """Messages that somebody else had by the time they were to be extended or deleted: they took longer than they stayed invisible."""
        self._visibility = visibility_seconds
        self._identity = identity_credential() if access.credential is None else None
        self._queue = self._client(access, queue)
        self._poison = self._client(access, self.poison_name)

    async def receive(self, patience: Patience) -> list[Held]:
        """Up to 32 messages; none where there are none for now."""

        async def attempt() -> list[QueueMessage]:
            # No decode policy: the SDK's for base64 fails the whole page for one plain text.
            pages = self._queue.receive_messages(messages_per_page=PAGE, visibility_timeout=self._visibility).by_page()
            page = await anext(pages, None)
            return [message async for message in page] if page is not None else []

        since = time.monotonic()
        return [
            Held(
                id=message.id,
                text=message.content or "",
                inserted=message.inserted_on or datetime.now(UTC),
                attempts=message.dequeue_count or 1,
                pop_receipt=message.pop_receipt or "",
                since=since,
            )
            for message in await self._call(attempt, patience, "receiving messages")
        ]

    async def extend(self, message: Held, patience: Patience) -> None:
        """Nobody else sees the message for the whole time from now."""
        since = time.monotonic()
        async with message.lock:
            if message.ended:
                return
            try:
                if await self._set_visibility(message, self._visibility, patience):
                    message.since = since
            except ConfigError as error:
                if not isinstance(error.__cause__, AzureError) or status_of(error.__cause__) != HTTPStatus.BAD_REQUEST:
                    raise
                message.expiring = True

    async def give_back(self, message: Held, patience: Patience) -> None:
        """Everybody sees the message at once."""
        async with message.lock:
            if not message.ended:
                await self._set_visibility(message, 0, patience)
                message.ended = True

    async def delete(self, message: Held, patience: Patience) -> None:
        """It is done with. Nothing happens where somebody else has received it meanwhile: it is theirs to delete."""
        async with message.lock:
            if not message.ended:
                await self._owned(
                    message, lambda: self._queue.delete_message(message.id, message.pop_receipt), patience, "deleting a message"
                )
                message.ended = True

    async def set_aside(self, message: Held, reasons: Sequence[str], patience: Patience) -> None:
        """Put a copy, with the reasons, into the poison queue, which is created where there is none; then delete the message."""
        text = _poison_text(message, reasons)

        async def attempt() -> None:
            try:
                await self._poison.send_message(text, time_to_live=_FOR_EVER)
            except AzureError as error:
                if code_of(error) != "QueueNotFound":
                    raise
                await self._create_poison_queue()
                await self._poison.send_message(text, time_to_live=_FOR_EVER)

        if not message.ended:
            await self._call(attempt, patience, f"writing to {self.poison_name!r}")
            await self.delete(message, patience)

    async def depth(self, patience: Patience) -> int:
        """About how many messages there are, those that somebody works on included."""
        properties = await self._call(self._queue.get_queue_properties, patience, "counting messages")
        return properties.approximate_message_count or 0

    async def close(self) -> None:
        """Close the connections."""
        await self._queue.close()
        await self._poison.close()
        if self._identity is not None:
            await self._identity.close()

    def _client(self, access: QueueAccess, queue: str) -> QueueClient:
        try:
            from azure.storage.queue.aio import QueueClient
        except ModuleNotFoundError as error:
            raise ConfigError("an event queue needs azure-storage-queue, which is not installed: pip install 'ragstore[azure]'") from error
        return QueueClient(
            access.endpoint,
            queue,
            credential=access.credential or self._identity,
            api_version=_API_VERSION,
            retry_total=0,  # see Patience
        )

    async def _create_poison_queue(self) -> None:
        try:
            await self._poison.create_queue()
        except ResourceExistsError as error:
            if code_of(error) != "QueueAlreadyExists":  # the same status says that it is being deleted
                raise

    async def _set_visibility(self, message: Held, seconds: int, patience: Patience) -> bool:
        async def attempt() -> None:
            updated = await self._queue.update_message(message.id, message.pop_receipt, visibility_timeout=seconds)
            message.pop_receipt = updated.pop_receipt or ""

        return await self._owned(message, attempt, patience, "extending the time for a message")

    async def _owned(self, message: Held, attempt: Callable[[], Awaitable[object]], patience: Patience, doing: str) -> bool:
        """Whether the message was still ours."""

        async def owned() -> bool:
            try:
                await attempt()
            except AzureError as error:
                if not _is_taken(error):
                    raise
                return False
            return True

        is_ours = await self._call(owned, patience, doing)
        if not is_ours:
            message.ended = True
            self.taken += 1
        return is_ours

    async def _call(self, attempt: Callable[[], Awaitable[T]], patience: Patience, doing: str) -> T:
        async def advised() -> T:
            try:
                return await attempt()
            except AzureError as error:
                advice = _ADVICE.get(code_of(error))
                if advice is None:
                    raise
                raise ConfigError(f"{self.name}, while {doing}: {advice}") from error

        return await patience.call(advised, container=self.name, doing=doing)


async def for_each(messages: Iterable[Held], act: Callable[[Held], Awaitable[None]]) -> None:
    """Act on all, several at a time. The first error ends it once what is under way is done, and is raised: an outage is met once."""
    waiting = iter(messages)
    errors: list[RagstoreError] = []

    async def work() -> None:
        for message in waiting:
            if errors:
                return
            try:
                await act(message)
            except RagstoreError as error:
                errors.append(error)

    await asyncio.gather(*(work() for _worker in range(_PARALLEL)))
    if errors:
        raise errors[0]


def _is_taken(error: AzureError) -> bool:
    """The message was received by somebody else, deleted, or has expired."""
    return (status_of(error), code_of(error)) in {
        (HTTPStatus.NOT_FOUND, "MessageNotFound"),
        (HTTPStatus.BAD_REQUEST, "PopReceiptMismatch"),
    }


def _poison_text(message: Held, reasons: Sequence[str]) -> str:
    """JSON that fits into a message: the end of a large text gives way to the reasons."""
    kept = message.text
    while True:
        text = json.dumps(
            {
                "reasons": [*reasons[:_MOST_REASONS]],
                "message_id": message.id,
                "inserted": message.inserted.isoformat(),
                "attempts": message.attempts,
                "characters": len(message.text),
                "content": kept,
            },
            ensure_ascii=False,
        )
        if len(escape(text).encode("utf-8", "replace")) <= _LARGEST or not kept:
            return text
        kept = kept[: len(kept) * 3 // 4]


_MOST_REASONS: Final = 10
_MISSING_RIGHT: Final = (
    f"access refused (403): the identity lacks the role {ROLE!r} on this queue (it deletes and extends messages, and writes to the "
    f"queue with {POISON_SUFFIX!r} appended); a SAS needs ss=q, srt=sco and the permissions r, w, d, a, c, u and p. "
    "A new role assignment takes up to 10 minutes to work"
)
_ADVICE: Final = {
    "QueueNotFound": (
        "there is no such queue: correct `queue`, or create it together with an Event Grid subscription of the storage account that sends "
        "blob events to it (az eventgrid event-subscription create --endpoint-type storagequeue ...)"
    ),
    "QueueBeingDeleted": "the queue is being deleted: create it again in a minute, with its Event Grid subscription",
    "QueueDisabled": "the queue is disabled: look at the storage account in the Azure portal",
    "AuthorizationPermissionMismatch": _MISSING_RIGHT,
    "InsufficientAccountPermissions": _MISSING_RIGHT,
    "AuthorizationResourceTypeMismatch": "the SAS does not cover this type of resource: an account SAS needs srt=sco",
    "AuthorizationServiceMismatch": "the SAS is for another service: an account SAS needs ss=q (queue)",
    "KeyBasedAuthenticationNotPermitted": (
        f"the account does not permit keys: name no key for the queue, and give the identity the role {ROLE!r}"
    ),
}
