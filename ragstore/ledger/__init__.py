"""The durable record of what is indexed: blobs, chunks, cached vectors, the quarantine, and settings of the whole index."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from sqlalchemy import delete, select

from ragstore.ledger import vectors as vector_cache
from ragstore.ledger.acls import Acls
from ragstore.ledger.bulk import dialect_insert, upsert
from ragstore.ledger.connection import connect
from ragstore.ledger.cursors import Cursors
from ragstore.ledger.documents import Documents
from ragstore.ledger.erasure import Erasures
from ragstore.ledger.leases import Lease, Leases
from ragstore.ledger.quarantine import Quarantine
from ragstore.ledger.records import ChunkRecord, Commit, Cursor, Failure, KnownBlob, PackedChunks, State
from ragstore.ledger.schema import settings
from ragstore.ledger.vectors import Vectors
from ragstore.ledger.work import Backlog, Work, WorkItem

__all__ = [
    "Acls",
    "Backlog",
    "ChunkRecord",
    "Commit",
    "Cursor",
    "Failure",
    "KnownBlob",
    "Lease",
    "Leases",
    "Ledger",
    "PackedChunks",
    "State",
    "Vectors",
    "Work",
    "WorkItem",
]

_PRUNED = "vectors_pruned"
_LISTING = "pass"
_LISTED = "listed:"


class Ledger:
    """One index's ledger. Methods block for about a millisecond; from async code call those on many rows in a thread."""

    def __init__(self, url: str, *, base: Path) -> None:
        """Opens or creates it. Raises `ConfigError` for a URL of another kind or a ledger of a newer ragstore."""
        self._connections = connect(url, base=base)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        """Tells this process from all others that share the ledger."""
        self.shared = self._connections.shared
        """Whether several processes may follow feeds and apply changes at a time."""
        self.documents = Documents(self._connections)
        self.acls = Acls(self._connections)
        self.cursors = Cursors(self._connections)
        self.quarantine = Quarantine(self._connections)
        self.leases = Leases(self._connections, self.owner)
        self.work = Work(self._connections)
        self.erasures = Erasures(self._connections)

    def writing(self) -> AbstractContextManager[None]:
        """Be the one that lists and compares: in SQLite the one process that writes at all. Raises `IndexLockedError`.

        In PostgreSQL it is a lease; where that is lost, what the block writes raises `OutageError`.
        """
        if not self.shared:
            return self._connections.lock_for_writing()
        from ragstore.ledger.exclusive import holding

        return holding(Leases(self._connections, f"{self.owner}:{secrets.token_hex(2)}"), _LISTING)

    def following(self) -> AbstractContextManager[None]:
        """Be one of those that follow feeds and apply changes: with others in PostgreSQL, alone in SQLite. Raises `IndexLockedError`.

        A pass may be made inside of it, by `writing`.
        """
        return self._connections.lock_for_writing()

    def vectors(self, fingerprint: str) -> Vectors:
        """The cached vectors of the embedder with this fingerprint."""
        return Vectors(self._connections, fingerprint)

    def cached_vectors(self) -> int:
        """How many vectors are cached, of all embedders."""
        return vector_cache.count(self._connections)

    def prune_vectors(self, *, keep_days: int) -> int:
        """Drop cached vectors that no chunk has had for so many days. Returns how many went.

        All of them must be looked at, so nothing is done within one hour per day of `keep_days` since the last time.
        """
        last = self.setting(_PRUNED)
        if last is not None and 0 <= time.time() - float(last) < keep_days * 3600:
            return 0
        pruned = vector_cache.prune(self._connections, keep_days=keep_days)
        self.set_setting(_PRUNED, str(time.time()))
        return pruned

    def setting(self, key: str) -> str | None:
        """A value that holds for the whole index."""
        with self._connections.read() as connection:
            found: str | None = connection.execute(select(settings.c.value).where(settings.c.key == key)).scalar_one_or_none()
            return found

    def set_setting(self, key: str, value: str | None) -> None:
        """Change or (None) remove such a value; durable when it returns."""
        with self._connections.write() as connection:
            if value is None:
                connection.execute(delete(settings).where(settings.c.key == key))
            else:
                connection.execute(upsert(connection, settings, ["key"], {"value": value}), [{"key": key, "value": value}])

    def set_default(self, key: str, value: str) -> str:
        """Give it this value where it has none; returns the value that holds, also where several processes try at once."""
        with self._connections.write() as connection:
            connection.execute(dialect_insert(connection, settings).on_conflict_do_nothing(), [{"key": key, "value": value}])
            found: str = connection.execute(select(settings.c.value).where(settings.c.key == key)).scalar_one()
            return found

    def note_listed(self, places: Iterable[tuple[str, str]], at: float) -> None:
        """These containers (account, container) were listed to their end, and what the listing showed of access counts.

        `at` is when the listing began, in seconds since the epoch: older attributes of any of their blobs were confirmed then.
        """
        for place in places:
            self.set_setting(_LISTED + json.dumps(place), repr(at))

    def listed(self) -> dict[tuple[str, str], float]:
        """When each container was listed last."""
        with self._connections.read() as connection:
            rows = connection.execute(select(settings.c.key, settings.c.value).where(settings.c.key.startswith(_LISTED))).all()
        return {tuple(json.loads(key.removeprefix(_LISTED))): float(value) for key, value in rows}

    def release_memory(self) -> None:
        """Give back what is cached, up to 16 MB for each connection that was in use; the next calls connect again."""
        self._connections.close()

    def close(self) -> None:
        """Give back connections."""
        self._connections.close()
