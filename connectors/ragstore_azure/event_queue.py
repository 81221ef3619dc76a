"""A Storage Queue that Event Grid fills in; batches of events of one source out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from ragstore.contracts import Feed, Source
from ragstore.errors import ConfigError, RagstoreError
from ragstore.globs import Globs
from ragstore.models import Event, EventBatch
from ragstore_azure.address import ContainerAddress
from ragstore_azure.credentials import CredentialVariables, open_access
from ragstore_azure.event_grid import Reading, Scope, read_message
from ragstore_azure.queue_access import open_queue_access
from ragstore_azure.queue_messages import PAGE, Held, MessageQueue, for_each
from ragstore_azure.retries import Patience

_LOG = logging.getLogger("ragstore.azure")

_PAGES: Final = 4
"""How many are received for one batch where the queue is full: larger batches make fewer commits, smaller ones share better."""
_LONGEST_VISIBILITY: Final = 7 * 24 * 3600
_GOODBYE: Final = 5.0
"""Seconds for giving messages back; whatever is not done by then comes back by itself."""
_ONE_ATTEMPT: Final = Patience(attempts=1)


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class _InHand:
    """The messages of one batch, which are kept from others for as long as somebody holds the batch.

    The feed itself holds it weakly: a batch that its reader gave up cannot be settled any more, and its messages shall come back.
    """

    messages: Sequence[tuple[Held, Reading]]


class EventQueue(Feed):
    """The blob events of a storage account, as Event Grid puts them into a Storage Queue: within a second, at least once, in no order.

    - `queue`: its name. What cannot be understood goes to a second queue, with `-poison` appended, which is created when needed.
    - `queue_url`: the queue service (`https://ACCOUNT.queue.core.windows.net`), where it is not that of the source's account.
    - `connection_string_env`, `sas_env`, `account_key_env`: the name of the environment variable that holds the queue's secret. Without
      one, those of the source are used, or azure-identity, whose identity needs the role `Storage Queue Data Contributor`.
    - `topics`: resource ids whose events are listened to. Without them only those of the source's own account are. Others are deleted.
    - `visibility_seconds`: how long nobody else sees a message that was received. It is extended for as long as there is work on it; one
      whose worker died comes back after so long.
    - `poll_seconds`: how long to wait when the queue is empty.
    - `max_attempts`: a message that was received more often than this is handed out alone.

    Several may read one queue. A queue holds back no history: what happened before its event subscription was made, or while nobody
    listened for longer than messages live, is found by a listing only. Raises `ConfigError` where the options make no sense.
    """

    patience: Patience = Patience()

    def __init__(
        self,
        *,
        base: Path,
        source: Source,
        source_options: Mapping[str, Any],
        queue: str,
        queue_url: str | None = None,
        connection_string_env: str | None = None,
        sas_env: str | None = None,
        account_key_env: str | None = None,
        topics: Sequence[str] | None = None,
        visibility_seconds: float = 120,
        poll_seconds: float = 1,
        max_attempts: int = 5,
    ) -> None:
        del base  # no option is a path
        if not 1 <= visibility_seconds <= _LONGEST_VISIBILITY:
            raise ConfigError(f"visibility_seconds = {visibility_seconds} must be from 1 to {_LONGEST_VISIBILITY} (7 days)")
        if poll_seconds < 0 or max_attempts < 1:
            raise ConfigError(f"poll_seconds = {poll_seconds} must not be below 0, and max_attempts = {max_attempts} not below 1")
        if topics is not None and not topics:
            raise ConfigError("topics = [] would listen to nothing: leave it out to listen to the source's own account")
        if "url" not in source_options:
            raise ConfigError("event-queue is a feed of sources of type 'azure-blob', which have a url; choose another feed for this one")
        own = CredentialVariables(connection_string=connection_string_env, sas=sas_env, account_key=account_key_env)
        access = open_queue_access(queue, queue_url, own, source_options, source_address(source_options))
        self.name = f"event-queue {source.account}/{source.container} {queue}"
        self.poll_seconds = poll_seconds
        self._scope = Scope(
            account=source.account,
            container=source.container,
            prefix=source_options.get("prefix", ""),
            globs=Globs(include=tuple(source_options.get("include", ())), exclude=tuple(source_options.get("exclude", ()))),
            topics=frozenset(topic.lower() for topic in topics) if topics is not None else None,
        )
        self._max_attempts = max_attempts
        self._visibility = math.ceil(visibility_seconds)
        self._queue = MessageQueue(access, queue, visibility_seconds=self._visibility)
        self._in_hand: weakref.WeakSet[_InHand] = weakref.WeakSet()
        self._keeping: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._closed = False
        self._warned = False

    @property
    def taken(self) -> int:
        """How many messages somebody else had received by the time they were to be extended or deleted; they were worked on twice."""
        return self._queue.taken

    @override
    async def head(self) -> str | None:
        """None: the queue remembers by itself. Raises `ConfigError` where there is no queue, because then it remembers nothing."""
        await self.depth()
        return None

    async def depth(self) -> int:
        """About how many messages there are, those that somebody works on included."""
        return await self._queue.depth(self.patience)

    @override
    async def read(self, cursor: str | None) -> AsyncIterator[EventBatch]:
        """What is in the queue now, as of `Feed.read`. There is no order in a queue; within a batch it is that of the events' times.

        Messages that were received more than `max_attempts` times come first and each alone. Outages and killed workers raise that number
        too, so it is no reason to give a message up: whether a blob is poison is for whoever works on it to find. But if there is one
        among them that kills its worker before anything is found, it no longer takes its neighbours with it.
        """
        self._keep_extending()
        while received := await self._receive():
            with_events = [pair for pair in received if pair[1].events]
            alone = [[pair] for pair in with_events if pair[0].attempts > self._max_attempts]
            together = [pair for pair in with_events if pair[0].attempts <= self._max_attempts]
            waiting = [self._take([pair for pair in received if not pair[1].events])]
            waiting += [self._take(pairs) for pairs in (*alone, together) if pairs]
            try:
                skipped = await self._put_away(waiting[0])
                del waiting[0]
                for _message, reading in with_events:
                    skipped.update(reading.skipped)
                if not waiting:
                    yield EventBatch(events=(), cursor=None, skipped=dict(skipped), receipt=self._take(()))
                while waiting:
                    yield _batch(waiting.pop(0), skipped)
                    skipped = Counter()
            finally:
                await self._give_back(waiting)

    @override
    async def settle(self, batch: EventBatch) -> None:
        """Delete the messages of the batch; what somebody else has received is left to them. May be repeated after a `TransientError`."""
        hand = batch.receipt
        if not isinstance(hand, _InHand):
            raise TypeError(f"{self.name} did not give this batch")
        readings = {message.id: reading for message, reading in hand.messages}

        async def finish(message: Held) -> None:
            if faults := readings[message.id].faults:
                await self._set_aside(message, faults)
            else:
                await self._queue.delete(message, self.patience)

        await for_each([message for message, _reading in hand.messages], finish)
        self._in_hand.discard(hand)

    @override
    async def close(self) -> None:
        """Give back what is not settled, so that another worker sees it at once, and the connections."""
        self._closing.set()
        if self._keeping is not None:
            await asyncio.wait([self._keeping], timeout=_GOODBYE)
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._give_back([*self._in_hand])
        self._in_hand.clear()
        self._closed = True
        await self._queue.close()

    async def _receive(self) -> list[tuple[Held, Reading]]:
        """Some pages of messages; none where the queue is empty."""
        messages = await self._queue.receive(self.patience)
        if len(messages) == PAGE:
            more = await asyncio.gather(*(self._queue.receive(_ONE_ATTEMPT) for _page in range(_PAGES - 1)), return_exceptions=True)
            for page in more:
                if isinstance(page, list):
                    messages += page
                elif not isinstance(page, RagstoreError):  # those are met again, and told, when the next batch is received
                    raise page
        return [(message, read_message(message.text, self._scope, message.inserted)) for message in messages]

    def _take(self, messages: Sequence[tuple[Held, Reading]]) -> _InHand:
        hand = _InHand(messages=messages)
        self._in_hand.add(hand)
        return hand

    async def _put_away(self, hand: _InHand) -> Counter[str]:
        """Set aside what cannot be read, delete what says nothing of the source's blobs, and count both."""
        counts: Counter[str] = Counter()
        for _message, reading in hand.messages:
            counts.update(reading.skipped)
            counts["unreadable"] += bool(reading.faults)
        if (counts["another account"] or counts["another topic"]) and not self._warned:
            self._warned = True
            _LOG.warning(
                "azure.queue.foreign: %s gets events of other accounts, which are deleted; give each account a queue of its own",
                self.name,
            )
        await self.settle(EventBatch(events=(), cursor=None, receipt=hand))
        return +counts

    async def _set_aside(self, message: Held, faults: Sequence[str]) -> None:
        _LOG.warning("azure.queue.unreadable: message %s goes to %s: %s", message.id, self._queue.poison_name, faults[0])
        await self._queue.set_aside(message, faults, self.patience)

    async def _give_back(self, hands: Sequence[_InHand]) -> None:
        """At once, as far as it can be done; the rest comes back when its time is over."""
        messages = [message for hand in hands for message, _reading in hand.messages if not message.ended]
        if not messages or self._closed:
            return
        try:
            async with asyncio.timeout(_GOODBYE):
                await for_each(messages, lambda message: self._queue.give_back(message, _ONE_ATTEMPT))
        except (RagstoreError, TimeoutError) as error:
            _LOG.info("azure.queue.not_given_back: messages of %s come back in %d s: %s", self.name, self._visibility, error)

    def _keep_extending(self) -> None:
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name=f"extend {self.name}")
        elif self._keeping.done():
            self._keeping.result()  # it ends by a bug only, which is raised here

    async def _keep(self) -> None:
        """Extend each message in hand four times as often as it must be, so that three in a row may fail."""
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._visibility / 4):
                    await self._closing.wait()
            try:
                await for_each(self._due(), self._extend)
            except RagstoreError as error:
                _LOG.warning("azure.queue.not_extended: messages of %s may come twice: %s", self.name, error)

    def _due(self) -> list[Held]:
        """The messages, never their batches: whoever waits with a batch in a variable keeps it alive."""
        latest = time.monotonic() - self._visibility / 4
        messages = [message for hand in self._in_hand for message, _reading in hand.messages]
        extensible = [message for message in messages if not message.ended and not message.expiring]
        return [message for message in extensible if message.since <= latest and not message.lock.locked()]

    async def _extend(self, message: Held) -> None:
        if not self._closing.is_set():
            await self._queue.extend(message, _ONE_ATTEMPT)


def _batch(hand: _InHand, skipped: Counter[str]) -> EventBatch:
    events: list[Event] = [event for _message, reading in hand.messages for event in reading.events]
    return EventBatch(events=tuple(sorted(events, key=lambda event: event.moment)), cursor=None, skipped=dict(skipped), receipt=hand)


def source_address(source_options: Mapping[str, Any]) -> ContainerAddress:
    """The container that the options of an `azure-blob` source name. Raises `ConfigError` as the source does."""
    secrets = {kind: source_options.get(f"{kind}_env") for kind in ("connection_string", "sas", "account_key")}
    return open_access(source_options["url"], CredentialVariables(**secrets), account=source_options.get("account")).address
