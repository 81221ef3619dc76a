"""A folder's options in; what happens to its files, as soon as the operating system tells, out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ragstore.contracts import Source
from ragstore.errors import ConfigError, FeedGapError
from ragstore.models import BlobId, Event, EventBatch
from ragstore_folder.notices import HELD, Notices, UnreadableNameError
from ragstore_folder.places import Finding, Places
from ragstore_folder.polling import Polling
from ragstore_folder.source import FolderSource
from ragstore_folder.tags import Tags

_LOG = logging.getLogger("ragstore.folder")

_WAIT = 1.0
"""Seconds that one `read` may wait for events."""
_LOOK = 0.25
"""Seconds between two looks at the root and the file of tags, which may lie where nothing is watched."""
_BATCH = 2000
_PATIENCE = 60.0
"""Seconds after which a batch that was not settled comes again, although the reader did not break off."""


class WatchFeed:
    """Follows the files of a `FolderSource` through `watchfiles` (inotify, FSEvents, ReadDirectoryChangesW).

    - `debounce_seconds`: changes that follow each other are told together, after this time at the latest.
    - `poll`: compare the whole folder every few seconds instead, for file systems that tell nobody (NFS, SMB, some mounts of containers).

    Remembers nothing when the process ends: `head` starts to watch, whoever lists afterwards has everything. A file is judged by what
    stands there when the change is told, so a file that an editor writes beside and renames into place is one `content`, and a temporary
    file that went again a harmless `gone`. A folder that came, went or moved is one `folder`. A change of a link's target is told under
    the link's path. A change of the file of tags is one `attributes` for each path whose tags are others now.

    Where a name is not Unicode, `watchfiles` cannot go on: the folder is polled then, and a warning is logged.
    """

    poll_seconds: float = 0.0

    def __init__(
        self,
        *,
        base: Path,
        source: Source,
        source_options: Mapping[str, Any],
        debounce_seconds: float = 0.2,
        poll: bool = False,
    ) -> None:
        if not isinstance(source, FolderSource) and source.account != FolderSource.account:
            raise ConfigError(f"feed = 'watch' follows a folder, and {source.location} is none; choose the feed of that source")
        if not 0 < debounce_seconds <= 60:  # noqa: PLR2004 - a minute
            raise ConfigError(f"debounce_seconds = {debounce_seconds} makes no sense; give a number above 0 and up to 60")
        self._source = FolderSource(base=base, **source_options)
        self._account, self._container = source.account, source.container
        self.name = f"watch {source.account}/{source.container}"
        self._debounce_seconds = debounce_seconds
        self._poll = poll
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._watched: _Watched | None = None
        self._ready: deque[Event] = deque()
        self._receipts = itertools.count()
        self._unsettled: dict[object, tuple[EventBatch, float]] = {}
        self._is_reading = False

    async def head(self) -> None:
        """Start to watch, unless it is watching already. Raises `ConfigError` where the folder cannot be read or watched."""
        if self._watched is None:
            self._ready.clear()
            self._unsettled.clear()
            self._wake.clear()
            starting = asyncio.ensure_future(asyncio.to_thread(self._start, asyncio.get_running_loop()))
            try:
                self._watched = await asyncio.shield(starting)
            except asyncio.CancelledError:
                (outcome,) = await asyncio.gather(starting, return_exceptions=True)
                if isinstance(outcome, _Watched):
                    await asyncio.to_thread(outcome.close)
                raise

    async def read(self, cursor: str | None) -> AsyncGenerator[EventBatch, None]:
        """What changed since, for about a second.

        Batches that were not settled come again first: all of them where the last `read` was not read to its end, and otherwise those
        that were given out a minute ago. Raises `FeedGapError` where changes may have been missed: when `head` was not called, when the
        kernel's queue may have run over, when another folder stands in place of the root; and `ConfigError` as `TagFile` does.
        """
        del cursor  # there is none
        if self._watched is None:
            await self.head()
            raise FeedGapError(
                f"{self.name} begins only now, and what was before is not known; run `ragstore index`, a worker does so itself"
            )
        again = self._to_repeat()
        self._is_reading = True
        for batch in again:
            yield batch
        end = time.monotonic() + _WAIT
        while self._watched is not None:
            try:
                await asyncio.to_thread(self._look, self._watched)
            except FeedGapError:
                await self._stop()
                raise
            while self._ready:
                yield self._next_batch()
            if time.monotonic() >= end:
                break
            await self._wait(min(_LOOK, end - time.monotonic()))
        self._is_reading = False

    async def settle(self, batch: EventBatch) -> None:
        """Forget the batch."""
        self._unsettled.pop(batch.receipt, None)

    async def close(self) -> None:
        """Stop watching."""
        await self._stop()

    def _start(self, loop: asyncio.AbstractEventLoop) -> _Watched:
        """In this order: what happens while the places are learnt is noticed already."""
        tree = self._source.tree
        identity = _identity(self._source.root)
        tags = self._source.tags()
        if not self._poll:
            rouse = partial(loop.call_soon_threadsafe, self._wake.set)
            notices = Notices(tree.place(), debounce_seconds=self._debounce_seconds, rouse=rouse)
            try:
                notices.start()
                return _Watched(identity=identity, tags=tags, finder=_Listening(notices, Places(tree)))
            except UnreadableNameError as error:
                notices.close()
                self._poll_from_now_on(error)
            except BaseException:
                notices.close()
                raise
        return _Watched(identity=identity, tags=tags, finder=Polling(tree))

    def _poll_from_now_on(self, error: UnreadableNameError) -> None:
        self._poll = True
        _LOG.warning("folder.polling: %s is compared every few seconds, because it cannot be watched: %s", self._source.root, error)

    def _look(self, watched: _Watched) -> None:
        """Turn what was noticed into events that are ready; all or nothing, also where nobody waits for this thread any more."""
        with self._lock:
            tags = self._source.tags()
            try:
                events = [self._event(finding) for finding in (*self._retagged(watched.tags, tags), *watched.finder.look())]
            except UnreadableNameError as error:
                self._poll_from_now_on(error)
                raise FeedGapError(f"changes of {str(self._source.root)!r} may have been missed: {error}; run `ragstore index`") from error
            if _identity(self._source.root) != watched.identity:
                # Nothing that was found is to be believed: an empty folder below a missing mount is not one whose files were deleted.
                root = str(self._source.root)
                raise FeedGapError(f"the folder {root!r} is gone, or is another than before; mount it again, then run `ragstore index`")
            if len(self._ready) + _BATCH * len(self._unsettled) > HELD:
                raise FeedGapError(f"more than {HELD} changes of {self.name} wait to be applied; run `ragstore index` when it works again")
            self._ready.extend(events)
            watched.tags = tags

    def _retagged(self, before: Tags, after: Tags) -> list[Finding]:
        if before is after:
            return []
        now = datetime.now(UTC)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path, {}) != after.get(path, {}))
        admits = self._source.tree.admits
        return [Finding(path=path, hint="attributes", moment=now, kind="watch/tags") for path in changed if admits(path)]

    def _event(self, finding: Finding) -> Event:
        blob = BlobId(account=self._account, container=self._container, path=finding.path)
        return Event(blob=blob, hint=finding.hint, moment=finding.moment, kind=finding.kind)

    def _next_batch(self) -> EventBatch:
        events = tuple(self._ready.popleft() for _ in range(min(_BATCH, len(self._ready))))
        batch = EventBatch(events=events, cursor=None, receipt=next(self._receipts))
        self._unsettled[batch.receipt] = (batch, time.monotonic())
        return batch

    def _to_repeat(self) -> list[EventBatch]:
        now = time.monotonic()
        again = [batch for batch, given in self._unsettled.values() if self._is_reading or now - given > _PATIENCE]
        for batch in again:
            self._unsettled[batch.receipt] = (batch, now)
        return again

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _stop(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            await asyncio.to_thread(watched.close)


class _Listening:
    """Notices, and what they mean."""

    def __init__(self, notices: Notices, places: Places) -> None:
        self._notices = notices
        self._places = places

    def look(self) -> list[Finding]:
        taken = self._notices.take()
        try:
            return [*self._places.look(taken), *self._places.look_again()]
        except BaseException:
            self._notices.put_back(taken)
            raise

    def close(self) -> None:
        self._notices.close()


@dataclass(slots=True, kw_only=True)
class _Watched:
    identity: tuple[int, int] | None
    """Of the root."""
    tags: Tags
    """As told so far."""
    finder: _Listening | Polling

    def close(self) -> None:
        if isinstance(self.finder, _Listening):
            self.finder.close()


def _identity(place: Path) -> tuple[int, int] | None:
    try:
        status = place.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
