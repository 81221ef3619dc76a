"""What happened to blobs in; a change feed and a queue that tell of it late, twice and in no order, as they may, out."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from azure.storage.queue import QueueClient

from tests.support.event_grid import as_message
from tests.support.feed_writer import START, FeedWriter

Record = dict[str, Any]

_MINUTES = 15
_SHARDS = 2
_PER_CHUNK = 40
_OPEN = 2
"""Segments that are not final."""


@dataclass(slots=True, kw_only=True)
class FeedTeller:
    """Publishes records in the order of their segments and, within a shard of a segment, in their own; one segment may be late."""

    writer: FeedWriter
    chance: random.Random
    segments: int = 0
    late: int = 0
    """Records that went into a segment after a later one had begun."""
    _open: list[datetime] = field(default_factory=list)
    _waiting: dict[tuple[datetime, int], list[Record]] = field(default_factory=dict)
    _written: dict[tuple[datetime, int], int] = field(default_factory=dict)
    _newest_with_records: datetime = START

    def begin(self) -> None:
        """A new segment; all but the last ones become final."""
        while len(self._open) >= _OPEN:
            oldest = self._open.pop(0)
            for shard in range(_SHARDS):
                self._write(oldest, shard, every=True)
            self.writer.finalize(oldest)
        begin = START + timedelta(minutes=_MINUTES * self.segments)
        self.segments += 1
        self.writer.segment(begin, shards=_SHARDS, minutes=_MINUTES)
        self.writer.consumable(begin)
        self._open.append(begin)

    def tell(self, record: Record) -> None:
        """It happened in the newest segment. It is published later."""
        shard = zlib.crc32(record["subject"].encode()) % _SHARDS
        self._waiting.setdefault((self._open[-1], shard), []).append(record)

    def publish(self, *, every: bool = False) -> None:
        """Some of what waits, or all of it."""
        for begin in self._open:
            for shard in range(_SHARDS):
                if every or self.chance.random() < 0.5:
                    self._write(begin, shard, every=every)

    def _write(self, begin: datetime, shard: int, *, every: bool) -> None:
        waiting = self._waiting.get((begin, shard), [])
        count = len(waiting) if every else self.chance.randint(0, len(waiting))
        some, waiting[:count] = waiting[:count], []
        if not some:
            return
        self.late += len(some) * (begin < self._newest_with_records)
        self._newest_with_records = max(self._newest_with_records, begin)
        if self.chance.random() < 0.15:
            some.append(some[-1])
        written = self._written.get((begin, shard), 0)
        self._written[begin, shard] = written + len(some)
        self._append(begin, some, shard=shard, chunk=written // _PER_CHUNK)

    def _append(self, begin: datetime, some: Sequence[Record], *, shard: int, chunk: int) -> None:
        if self.chance.random() < 0.7:
            self.writer.append(begin, some, shard=shard, chunk=chunk, per_block=self.chance.randint(1, 10))
            return
        block = self.writer.block(some)  # in two appends, the first of which ends anywhere
        cut = self.chance.randrange(len(block))
        self.writer.raw(begin, block[:cut], shard=shard, chunk=chunk)
        time.sleep(self.chance.uniform(0, 0.3))
        self.writer.raw(begin, block[cut:], shard=shard, chunk=chunk)


@dataclass(slots=True, kw_only=True)
class QueueTeller:
    """Sends events at once or seconds later, in no order, some of them twice and some never, in every form of message."""

    queue: QueueClient
    chance: random.Random
    sent: int = 0
    twice: int = 0
    late: int = 0
    lost: int = 0
    """As Event Grid drops an event in the end that it could not deliver; the change feed has it."""
    _held: list[tuple[float, Record]] = field(default_factory=list)

    def tell(self, event: Record) -> None:
        """It is sent later, or not at all."""
        if self.chance.random() < 0.1:
            self.lost += 1
            return
        times = 1 + (self.chance.random() < 0.15)
        self.twice += times - 1
        for _time in range(times):
            delay = self.chance.uniform(1, 6) if self.chance.random() < 0.2 else 0.0
            self.late += delay > 0
            self._held.append((time.monotonic() + delay, event))

    def send(self, *, every: bool = False) -> None:
        """What is due, or all."""
        now = time.monotonic()
        due = [event for moment, event in self._held if every or moment <= now]
        self._held = [] if every else [held for held in self._held if held[0] > now]
        self.chance.shuffle(due)
        while due:
            count = self.chance.randint(2, 4) if self.chance.random() < 0.2 else 1
            some, due = due[:count], due[count:]
            body = some if len(some) > 1 else some[0]
            self.queue.send_message(as_message(body, base64_encoded=self.chance.random() < 0.7))
            self.sent += len(some)
