"""Where to go on in each feed, and how far behind each is, durably."""

from __future__ import annotations

import time

from sqlalchemy import delete, select

from ragstore.ledger.bulk import upsert
from ragstore.ledger.connection import Connections
from ragstore.ledger.records import Cursor
from ragstore.ledger.schema import cursors


class Cursors:
    """The cursors of an index, by the name of the feed. One is saved only when all before it is applied, or durably queued."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def get(self, feed: str) -> str | None:
        """Where to go on; None for a feed that was never read, or remembers by itself."""
        with self._connections.read() as connection:
            return connection.execute(select(cursors.c.cursor).where(cursors.c.feed == feed)).scalar_one_or_none() or None

    def save(self, feed: str, cursor: str | None, *, last_event: float | None = None, lag: float | None = None) -> None:
        """Go on from here; durable when it returns.

        `last_event` (seconds since the epoch) and `lag` (seconds) are kept where they are None, and so is the cursor.
        """
        now = time.time()
        row = {"feed": feed, "cursor": cursor or "", "updated_at": now, "last_event": last_event, "lag": lag}
        given = {"cursor": cursor, "last_event": last_event, "lag": lag}
        changed = {"updated_at": now, **{name: value for name, value in given.items() if value is not None}}
        with self._connections.write() as connection:
            connection.execute(upsert(connection, cursors, ["feed"], changed), [row])

    def all(self) -> list[Cursor]:
        """Every feed that was ever read, by name."""
        with self._connections.read() as connection:
            rows = connection.execute(select(cursors).order_by(cursors.c.feed)).all()
        return [
            Cursor(feed=row.feed, cursor=row.cursor or None, updated_at=row.updated_at, last_event=row.last_event, lag=row.lag)
            for row in rows
        ]

    def forget(self, feed: str) -> None:
        """The next reader begins at the feed's head."""
        with self._connections.write() as connection:
            connection.execute(delete(cursors).where(cursors.c.feed == feed))
