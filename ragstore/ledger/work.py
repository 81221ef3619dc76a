"""Events in, blobs to look at out: each to one worker at a time, again where the worker dies, until it says that it is done."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import Connection, Float, Integer, and_, bindparam, case, delete, func, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from ragstore.ledger.bulk import batches, dialect_insert
from ragstore.ledger.clock import database_time
from ragstore.ledger.connection import Connections
from ragstore.ledger.schema import work
from ragstore.models import BlobId, Event, Hint, is_after

_AT_ONCE = 500

# Statements are built once: building one costs more than running it.
_THESE = work.c.document_id.in_(bindparam("ids", expanding=True))
_TURN = (
    select(work.c.document_id)
    .where(work.c.not_before <= database_time(), work.c.lease_until <= database_time())
    .where(work.c.lane.in_(bindparam("lanes", expanding=True)))
    .order_by(work.c.lane, work.c.queued_at, work.c.document_id)
    .limit(bindparam("most", type_=Integer))
    .with_for_update(skip_locked=True)
)
_TAKE = (
    update(work)
    .where(_THESE)
    .values(
        owner=bindparam("to_owner"),
        ticket=bindparam("to_ticket"),
        lease_until=database_time() + bindparam("seconds", type_=Float),
        attempts=work.c.attempts + 1,
    )
    .returning(*work.c)
)
_RENEW = update(work).where(_THESE).values(lease_until=database_time() + bindparam("seconds", type_=Float))
_HELD = select(work.c.document_id, work.c.ticket, work.c.stamp).where(_THESE).order_by(work.c.document_id).with_for_update()
_DELETE = delete(work).where(_THESE)
_GIVE_BACK = update(work).where(_THESE).values(owner="", ticket="", lease_until=0.0)

Lane = Literal["fast", "content"]
LANES: Final[tuple[Lane, ...]] = ("fast", "content")
"""As they are numbered in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """A blob (or, where the hint is `folder`, a folder) to look at; it is its owner's until the lease ends."""

    event: Event
    """All that was said of the blob since it was last done, as one event; the moment is that of the newest."""
    owner: str
    attempts: int
    """How often it was taken since something new was said, this time included. Outages and kills count, so it proves no poison."""
    queued_at: float
    """Seconds since the epoch, by the database's clock."""
    ticket: str
    """Of this taking; whoever takes it later has another."""
    stamp: str
    """Changes when something newer is said."""

    @property
    def document_id(self) -> str:
        """Of the blob."""
        return self.event.blob.document_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits, for `status`."""

    waiting: int
    """May be taken now."""
    taken: int
    delayed: int
    """To be tried again later."""
    oldest_moment: float | None
    """Of the event that has waited longest, in seconds since the epoch."""


class Work:
    """The queue of an index. A feed's cursor may be saved as soon as `put` has returned."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def put(self, events: Iterable[Event]) -> int:
        """Queue what these events, in their order, say; durable when it returns. Returns how many blobs and folders they are of.

        - An event that is surely not newer than what is queued changes nothing, unless it asks for more to be looked at.
        - Where something came from is an item as well: it is looked at even if the move is overtaken.
        """
        merged: dict[str, Event] = {}
        for event in _with_origins(events):
            document_id = event.blob.document_id
            merged[document_id] = merge(merged[document_id], event) if document_id in merged else event
        if merged:
            rows = [_row(document_id, event) for document_id, event in sorted(merged.items())]
            with self._connections.write() as connection:
                connection.execute(_upsert(dialect_insert(connection, work)), rows)
        return len(merged)

    def take(self, owner: str, limit: int, seconds: float, *, lane: Lane | None = None) -> list[WorkItem]:
        """Up to `limit` items that nobody holds, for so many seconds: attributes and deletes before content, the oldest first.

        `lane` "fast" leaves what has to be fetched to others, and "content" all else.
        """
        lanes = [LANES.index(each) for each in LANES if lane in {None, each}]
        held = {"to_owner": owner, "to_ticket": secrets.token_hex(8), "seconds": seconds}
        taken: list[WorkItem] = []
        with self._connections.write() as connection:
            ids = connection.execute(_TURN, {"most": limit, "lanes": lanes}).scalars().all()
            for some in batches(ids, _AT_ONCE):
                taken.extend(_item(row) for row in connection.execute(_TAKE, {**held, "ids": some}).all())
        place = {document_id: number for number, document_id in enumerate(ids)}
        return sorted(taken, key=lambda item: place[item.document_id])

    def behind_content(self, document_ids: Iterable[str]) -> set[str]:
        """Those of these that no fast lane can take, because their content is queued or being read."""
        found: set[str] = set()
        with self._connections.read() as connection:
            for some in batches(document_ids, _AT_ONCE):
                slow = select(work.c.document_id).where(work.c.document_id.in_(some), work.c.lane == LANES.index("content"))
                found.update(connection.execute(slow).scalars().all())
        return found

    def queued(self, document_ids: Iterable[str]) -> set[str]:
        """Those of these that wait, or that somebody is working on."""
        found: set[str] = set()
        with self._connections.read() as connection:
            for some in batches(document_ids, _AT_ONCE):
                found.update(connection.execute(select(work.c.document_id).where(work.c.document_id.in_(some))).scalars().all())
        return found

    def renew(self, items: Collection[WorkItem], seconds: float) -> set[str]:
        """Hold these for longer. Returns the ids of those that somebody else has taken since, or has done."""
        with self._connections.write() as connection:
            held = self._held(connection, items)
            for some in batches(held, _AT_ONCE):
                connection.execute(_RENEW, {"ids": some, "seconds": seconds})
        return {item.document_id for item in items} - held.keys()

    def done(self, items: Collection[WorkItem]) -> set[str]:
        """These are applied. Returns the ids of those that stay: something newer was said, or somebody else took them."""
        with self._connections.write() as connection:
            held = self._held(connection, items)
            finished = [item.document_id for item in items if held.get(item.document_id) == item.stamp]
            for some in batches(finished, _AT_ONCE):
                connection.execute(_DELETE, {"ids": some})
            _give_back(connection, held.keys() - set(finished))
        return {item.document_id for item in items} - set(finished)

    def retry(self, item: WorkItem, delay: float) -> None:
        """It could not be applied: give it to whoever asks after `delay` seconds, or at once where something newer was said."""
        with self._connections.write() as connection:
            held = self._held(connection, [item])
            _give_back(connection, held)
            if held.get(item.document_id) == item.stamp:
                later = update(work).where(work.c.document_id == item.document_id).values(not_before=database_time() + delay)
                connection.execute(later)

    def release(self, items: Collection[WorkItem]) -> None:
        """They were not tried: whoever asks next may have them."""
        with self._connections.write() as connection:
            _give_back(connection, self._held(connection, items))

    def give_back(self, owner: str | None) -> int:
        """Let others have, at once, all that this owner holds, or (None) that anybody holds. Returns how many items that were."""
        with self._connections.write() as connection:
            held = (
                select(work.c.document_id)
                .where(work.c.owner != "" if owner is None else work.c.owner == owner)
                .order_by(work.c.document_id)
                .with_for_update()
            )
            ids = connection.execute(held).scalars().all()
            _give_back(connection, ids)
        return len(ids)

    def depth(self) -> int:
        """How many items are queued, those that are taken included."""
        with self._connections.read() as connection:
            return int(connection.execute(select(func.count()).select_from(work)).scalar_one())

    def backlog(self) -> Backlog:
        """What waits, and for how long."""
        is_taken = work.c.lease_until > database_time()
        is_delayed = and_(work.c.lease_until <= database_time(), work.c.not_before > database_time())
        counts = select(
            func.count(), func.sum(case((is_taken, 1), else_=0)), func.sum(case((is_delayed, 1), else_=0)), func.min(work.c.moment)
        )
        with self._connections.read() as connection:
            total, taken, delayed, oldest = connection.execute(counts).one()
        return Backlog(waiting=total - (taken or 0) - (delayed or 0), taken=taken or 0, delayed=delayed or 0, oldest_moment=oldest)

    @staticmethod
    def _held(connection: Connection, items: Collection[WorkItem]) -> dict[str, str]:
        """The present stamps of those items that nobody else has taken since, whose rows are locked from here on."""
        tickets = {item.document_id: item.ticket for item in items}
        held: dict[str, str] = {}
        for some in batches(sorted(tickets), _AT_ONCE):
            rows = connection.execute(_HELD, {"ids": some}).all()
            held.update((row.document_id, row.stamp) for row in rows if row.ticket == tickets[row.document_id])
        return held


def merge(old: Event, new: Event) -> Event:
    """Two events of one blob as one. The newer says how it is, and the hint is the one that asks for more.

    `content` and `gone` ask for the same, the present state; `attributes` for less of it, and `folder` for more than the blob.
    """
    later = is_after(new.sequencer, old.sequencer)
    if "folder" in {old.hint, new.hint}:
        hint: Hint = "folder"
    elif new.hint == "attributes":
        hint = old.hint
    else:
        hint = new.hint if later or old.hint == "attributes" else old.hint
    if not later:
        return replace(old, hint=hint)
    return replace(new, hint=hint, sequencer=new.sequencer if new.sequencer is not None else old.sequencer)


def _upsert(statement: sqlite.Insert | postgresql.Insert) -> sqlite.Insert | postgresql.Insert:
    """`merge`, said to the database, so that two feeds may queue the same blob at the same moment."""
    new, now = statement.excluded, database_time()
    comparable = and_(
        new.sequencer.is_not(None), work.c.sequencer.is_not(None), func.length(new.sequencer) == func.length(work.c.sequencer)
    )
    later = case((comparable, func.lower(new.sequencer) > func.lower(work.c.sequencer)), else_=true())
    hint = case(
        (or_(work.c.hint == "folder", new.hint == "folder"), "folder"),
        (new.hint == "attributes", work.c.hint),
        (or_(later, work.c.hint == "attributes"), new.hint),
        else_=work.c.hint,
    )
    said = {name: case((later, new[name]), else_=work.c[name]) for name in ("etag", "came_from", "kind", "moment")}
    return statement.values(queued_at=now, attempts=0, not_before=0.0, owner="", ticket="", lease_until=0.0).on_conflict_do_update(
        index_elements=["document_id"],
        set_={
            **said,
            "sequencer": case((later, func.coalesce(new.sequencer, work.c.sequencer)), else_=work.c.sequencer),
            "hint": hint,
            "lane": case((hint == "content", 1), else_=0),
            "stamp": new.stamp,
            # What is being applied goes to the end; what still waits keeps its turn, or a blob that changes for ever would never have it.
            "queued_at": case((work.c.lease_until > now, new.queued_at), else_=work.c.queued_at),
            "attempts": 0,
            "not_before": 0.0,
        },
        where=or_(later, hint != work.c.hint),
    )


def _row(document_id: str, event: Event) -> dict[str, Any]:
    return {
        "document_id": document_id,
        "account": event.blob.account,
        "container": event.blob.container,
        "path": event.blob.path,
        "hint": event.hint,
        "lane": LANES.index("content" if event.hint == "content" else "fast"),
        "sequencer": event.sequencer,
        "etag": event.etag,
        "came_from": event.came_from,
        "kind": event.kind,
        "moment": event.moment.timestamp(),
        "stamp": secrets.token_hex(8),
    }


def _item(row: Any) -> WorkItem:  # noqa: ANN401 - a row of any shape
    event = Event(
        blob=BlobId(account=row.account, container=row.container, path=row.path),
        hint=row.hint,
        moment=datetime.fromtimestamp(row.moment, UTC),
        sequencer=row.sequencer,
        etag=row.etag,
        came_from=row.came_from,
        kind=row.kind,
    )
    return WorkItem(event=event, owner=row.owner, ticket=row.ticket, attempts=row.attempts, queued_at=row.queued_at, stamp=row.stamp)


def _give_back(connection: Connection, document_ids: Iterable[str]) -> None:
    for some in batches(sorted(document_ids), _AT_ONCE):
        connection.execute(_GIVE_BACK, {"ids": some})


def _with_origins(events: Iterable[Event]) -> Iterator[Event]:
    """Each event, and before one that tells of a move another for where that came from."""
    for event in events:
        if event.came_from is not None:
            origin = BlobId(account=event.blob.account, container=event.blob.container, path=event.came_from)
            yield Event(blob=origin, hint="folder" if event.hint == "folder" else "gone", moment=event.moment, kind=event.kind)
        yield event
