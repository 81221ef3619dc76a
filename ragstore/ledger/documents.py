"""Blobs and their chunks: the committed generation of each, swapped in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Float, Select, Text, bindparam, case, delete, func, select, text, update
from sqlalchemy.dialects import sqlite

from ragstore.ledger.acls import note_acls
from ragstore.ledger.bulk import batches, insert_rows, upsert
from ragstore.ledger.connection import Connections
from ragstore.ledger.prefixes import paths_under
from ragstore.ledger.records import ChunkRecord, Commit, KnownBlob, State
from ragstore.ledger.rows import COMMITTED, KNOWN, blank, chunk_row, committed_chunk, committed_values, identity, known_blob
from ragstore.ledger.schema import blobs, chunks, unused
from ragstore.models import AccessAttributes, BlobId, BlobState, CommittedChunk, is_after

# Statements are built once: building one costs more than running it.
_SEEN_AT = bindparam("to_seen_at", type_=Float)
_COMMIT = (
    update(blobs)
    .where(blobs.c.document_id == bindparam("id"))
    .values(
        state="live",
        generation=bindparam("to_generation"),
        chunks=func.coalesce(bindparam("to_chunks"), blobs.c.chunks),
        # What was seen since, while content was read, may have taken access away: it stays.
        current_access=case((blobs.c.seen_at <= _SEEN_AT, bindparam("to_access", type_=Text)), else_=blobs.c.current_access),
        seen_at=case((blobs.c.seen_at <= _SEEN_AT, _SEEN_AT), else_=blobs.c.seen_at),
        indexed_at=bindparam("now"),
        **{
            name: bindparam(f"to_{name}")
            for name in (
                "pending", "etag", "version", "size", "modified", "content_type", "sha256", "media_type", "title", "pipeline",
                "access", "columns_hash",
            )
        },
    )
)  # fmt: skip
_WITHDRAW = (
    update(blobs)
    .where(blobs.c.document_id == bindparam("id"))
    .values(state=bindparam("to_state"), pending=1, chunks=0, title=None, indexed_at=bindparam("now"), generation=blobs.c.generation + 1)
)
_SEE = (
    update(blobs)
    .where(blobs.c.document_id == bindparam("id"), blobs.c.seen_at <= _SEEN_AT)
    .values(current_access=bindparam("to_access"), seen_at=_SEEN_AT)
)
_CONFIRM = update(blobs).where(blobs.c.document_id == bindparam("id"), blobs.c.seen_at < _SEEN_AT).values(seen_at=_SEEN_AT)
_GET = select(*KNOWN).where(blobs.c.document_id == bindparam("id"))
_SOME = select(*KNOWN).where(blobs.c.document_id.in_(bindparam("ids", expanding=True)))
_BY_CONTENT = select(*KNOWN).where(blobs.c.sha256.in_(bindparam("ids", expanding=True)))
_CHUNKS = (
    select(*(chunks.c[name] for name in ("document_id", "chunk_id", "start", "end", "page", "heading", "text_hash")))
    .where(chunks.c.document_id.in_(bindparam("ids", expanding=True)))
    .order_by(chunks.c.document_id, chunks.c.ordinal)
)
_LIVE = select(blobs.c.document_id, blobs.c.generation).where(
    blobs.c.document_id.in_(bindparam("ids", expanding=True)), blobs.c.state == "live"
)
_HELD = (
    select(blobs.c.document_id, blobs.c.generation)
    .where(blobs.c.document_id.in_(bindparam("ids", expanding=True)))
    .order_by(blobs.c.document_id)  # whoever locks several does so in one order
    .with_for_update()
)
_MIDDLE = chunks.alias("middle")
_SERVED = select(*COMMITTED).join(blobs, blobs.c.document_id == chunks.c.document_id).where(text("blobs.state IN ('live', 'stale')"))
_COMMITTED = _SERVED.where(chunks.c.chunk_id.in_(bindparam("ids", expanding=True)))
_COMMITTED_AT_ONCE = str(_SERVED.where(text("chunks.chunk_id IN (SELECT value FROM json_each(?))")).compile(dialect=sqlite.dialect()))
_BESIDE = (
    select(_MIDDLE.c.chunk_id, chunks.c.ordinal - _MIDDLE.c.ordinal, chunks.c.chunk_id)
    .join(chunks, chunks.c.document_id == _MIDDLE.c.document_id)
    .where(
        _MIDDLE.c.chunk_id.in_(bindparam("ids", expanding=True)),
        chunks.c.ordinal.between(_MIDDLE.c.ordinal - bindparam("number"), _MIDDLE.c.ordinal + bindparam("number")),
        chunks.c.ordinal != _MIDDLE.c.ordinal,
    )
)
_CHUNK_IDS = select(chunks.c.chunk_id).where(chunks.c.document_id == bindparam("id"))
_SEQUENCERS = (
    select(blobs.c.document_id, blobs.c.sequencer)
    .where(blobs.c.document_id.in_(bindparam("ids", expanding=True)))
    .order_by(blobs.c.document_id)
    .with_for_update()
)
_NOTE_SEQUENCER = update(blobs).where(blobs.c.document_id == bindparam("id")).values(sequencer=bindparam("to_sequencer"))

_attributes = lru_cache(maxsize=1024)(AccessAttributes.from_json)
"""Of several chunks of a document, and of both its sets, there is mostly one text, and what was found once is found again."""
_FEW = 64
"""Chunks that are looked up in less time than it takes to hand a look-up to another thread and back."""


# Results are fetched whole: row by row, each costs a hand-over of Python's lock.


class Documents:
    """The part of the ledger that says what is indexed."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def known(self) -> dict[str, KnownBlob]:
        """Every blob ever seen, tombstones too, by document id: a path that comes back goes on from the generation that it had."""
        with self._connections.read() as connection:
            return {row[0]: known_blob(row) for row in connection.execute(select(*KNOWN)).all()}

    def pending(self) -> list[KnownBlob]:
        """Blobs, deleted ones included, for which a run ended between ledger and store."""
        with self._connections.read() as connection:
            return [known_blob(row) for row in connection.execute(select(*KNOWN).where(blobs.c.pending == 1))]

    def get(self, document_id: str) -> KnownBlob | None:
        """One blob, a tombstone too, or None if it was never seen."""
        with self._connections.read() as connection:
            row = connection.execute(_GET, {"id": document_id}).first()
            return known_blob(row) if row else None

    def some(self, document_ids: Collection[str]) -> dict[str, KnownBlob]:
        """Those of these blobs that were ever seen, tombstones too, by document id."""
        return {known.document_id: known for known in self._each(_SOME, document_ids)}

    def named(self, name: str) -> list[KnownBlob]:
        """Every blob ever seen, tombstones too, that this name may mean: `container/path`, or `account/container/path`."""
        first, _, rest = name.partition("/")
        second, _, last = rest.partition("/")
        with self._connections.read() as connection:
            accounts = connection.execute(select(blobs.c.account).distinct()).scalars().all()
        meant = [
            *(BlobId(account=account, container=first, path=rest) for account in accounts),
            BlobId(account=first, container=second, path=last),
        ]
        return list(self.some([blob.document_id for blob in meant]).values())

    def by_content(self, sha256s: Collection[str]) -> list[KnownBlob]:
        """The live blobs with one of these contents."""
        return [known for known in self._each(_BY_CONTENT, sha256s) if known.state == "live"]

    def under(self, account: str, container: str, prefix: str) -> list[KnownBlob]:
        """Every blob ever seen in this container whose path starts with the prefix, tombstones too."""
        place = select(*KNOWN).where(blobs.c.account == account, blobs.c.container == container)
        with self._connections.read() as connection:
            return [known_blob(row) for row in connection.execute(paths_under(connection, place, prefix)).all()]

    def note_sequencers(self, sequencers: Mapping[str, str]) -> None:
        """Remember, by document id, the sequencer of the last event that was applied; what is not after the stored one changes nothing."""
        with self._connections.write() as connection:
            for some in batches(sorted(sequencers), 500):
                rows = connection.execute(_SEQUENCERS, {"ids": some}).all()
                newer = [{"id": id_, "to_sequencer": sequencers[id_]} for id_, held in rows if is_after(sequencers[id_], held)]
                if newer:
                    connection.execute(_NOTE_SEQUENCER, newer)

    def _each(self, statement: Select[Any], ids: Collection[str]) -> list[KnownBlob]:
        found: list[KnownBlob] = []
        with self._connections.read() as connection:
            for some in batches(ids, 500):
                found.extend(known_blob(row) for row in connection.execute(statement, {"ids": some}).all())
        return found

    def chunks(self, document_id: str) -> list[ChunkRecord]:
        """The committed chunks of one blob in document order."""
        return self.chunks_of([document_id])[document_id]

    def chunks_of(self, document_ids: Collection[str]) -> dict[str, list[ChunkRecord]]:
        """The committed chunks of these blobs in document order; none for a blob that is not there."""
        found: dict[str, list[ChunkRecord]] = {document_id: [] for document_id in document_ids}
        with self._connections.read() as connection:
            for some in batches(document_ids, 500):
                for document_id, chunk_id, start, end, page, heading, text_hash in connection.execute(_CHUNKS, {"ids": some}).all():
                    record = ChunkRecord(chunk_id=chunk_id, start=start, end=end, page=page, heading=heading, text_hash=text_hash)
                    found[document_id].append(record)
        return found

    def live_generations(self, document_ids: Collection[str]) -> dict[str, int]:
        """The generation of each of these blobs that is up to date."""
        found: dict[str, int] = {}
        with self._connections.read() as connection:
            for some in batches(document_ids, 500):
                found.update((row.document_id, row.generation) for row in connection.execute(_LIVE, {"ids": some}).all())
        return found

    def chunk_ids(self, document_id: str) -> frozenset[str]:
        """The ids of the committed chunks of one blob."""
        with self._connections.read() as connection:
            return frozenset(connection.execute(_CHUNK_IDS, {"id": document_id}).scalars().all())

    def all_chunk_ids(self) -> Iterator[tuple[str, str]]:
        """(document id, chunk id) of every committed chunk."""
        with self._connections.stream() as connection:
            for rows in connection.execute(select(chunks.c.document_id, chunks.c.chunk_id)).partitions(1000):
                yield from ((row.document_id, row.chunk_id) for row in rows)

    def committed(self, chunk_ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        """Those of the chunks that belong to a committed generation; all others must not be shown."""
        found: dict[str, CommittedChunk] = {}
        with self._connections.read() as connection:
            for some in batches(chunk_ids, 500):
                found.update(_by_chunk(connection.execute(_COMMITTED, {"ids": some}).all()))
        return found

    def committed_at_once(self, chunk_ids: Sequence[str]) -> Mapping[str, CommittedChunk] | None:
        """As `committed`, for an event loop's own thread; None where it would hold that up: then ask `committed` in another thread."""
        if len(chunk_ids) > _FEW:
            return None
        rows = self._connections.at_once(_COMMITTED_AT_ONCE, [json.dumps(list(chunk_ids))])
        return None if rows is None else _by_chunk(rows)

    def beside(self, chunk_ids: Sequence[str], number: int) -> Mapping[str, Sequence[tuple[int, str]]]:
        """For each chunk those up to `number` places before and behind it in its document, with the distance, nearest first."""
        found: dict[str, list[tuple[int, str]]] = {}
        with self._connections.read() as connection:
            for some in batches(chunk_ids, 500):
                for middle, distance, chunk_id in connection.execute(_BESIDE, {"ids": some, "number": number}).all():
                    found.setdefault(middle, []).append((distance, chunk_id))
        return {middle: sorted(beside, key=lambda item: (abs(item[0]), item[0])) for middle, beside in found.items()}

    def counts(self) -> dict[str, int]:
        """Numbers of blobs by state, and `chunks`."""
        with self._connections.read() as connection:
            rows = connection.execute(select(blobs.c.state, func.count(), func.sum(blobs.c.chunks)).group_by(blobs.c.state)).all()
            return {**{row[0]: row[1] for row in rows}, "chunks": sum(int(row[2] or 0) for row in rows)}

    def last_indexed(self) -> float | None:
        """When a commit was made last, in seconds since the epoch."""
        with self._connections.read() as connection:
            found: float | None = connection.execute(select(func.max(blobs.c.indexed_at))).scalar_one()
            return found

    def mark_pending(self, states: Iterable[BlobState]) -> None:
        """Say, before rows go to the store, that it may hold rows of these documents that no generation lists."""
        rows = sorted(({**identity(state.id), **blank(state), "pending": 1} for state in states), key=itemgetter("document_id"))
        if rows:
            with self._connections.write() as connection:
                connection.execute(upsert(connection, blobs, ["document_id"], {"pending": 1}), rows)

    def clear_pending(self, document_ids: Iterable[str]) -> None:
        """Say that the store holds what is committed of these documents, and nothing else."""
        rows = [{"id": document_id} for document_id in sorted(document_ids)]
        if rows:
            with self._connections.write() as connection:
                connection.execute(update(blobs).where(blobs.c.document_id == bindparam("id")).values(pending=0), rows)

    def commit(self, commits: Sequence[Commit]) -> set[str]:
        """Swap in new generations, all in one transaction. Returns the ids of the documents whose generation was not the expected one."""
        if not commits:
            return set()
        now = time.time()
        with self._connections.write() as connection:
            held = _generations(connection, [commit.document_id for commit in commits])
            won = [commit for commit in commits if held.get(commit.document_id) == commit.expected_generation]
            if won:
                connection.execute(_COMMIT, [committed_values(commit, now) for commit in won])
            _replace_chunks(connection, {commit.document_id: commit.chunks for commit in won if commit.chunks is not None}, now)
            note_acls(connection, [commit.state.access for commit in won])
        return {commit.document_id for commit in commits} - {commit.document_id for commit in won}

    def withdraw(self, document_ids: Iterable[str], state: State) -> None:
        """Take committed generations out of every answer at once, leaving the blob deleted, quarantined or deferred; the store follows."""
        now = time.time()
        with self._connections.write() as connection:
            ids = list(document_ids)
            _generations(connection, ids)
            _replace_chunks(connection, dict.fromkeys(ids, ()), now)
            if ids:
                connection.execute(_WITHDRAW, [{"id": document_id, "to_state": state, "now": now} for document_id in ids])

    def note(self, state: BlobState, *, as_state: State) -> None:
        """Remember a blob that has no committed generation (quarantined or deferred), or that one which serves is stale."""
        row = {**identity(state.id), **blank(state), "state": as_state, "pending": 0}
        changed = {"state": as_state} if as_state == "stale" else {k: row[k] for k in ("state", "etag", "size", "content_type")}
        with self._connections.write() as connection:
            connection.execute(upsert(connection, blobs, ["document_id"], changed), [row])

    def see_access(self, seen: Mapping[str, AccessAttributes], *, at: float | None = None) -> None:
        """Store the attributes as they are now, by document id; a hit is readable only if they and those of its generation grant.

        `at` is when one began to look at them (default: now); those that were seen later stay.
        """
        if seen:
            with self._connections.write() as connection:
                connection.execute(
                    _SEE,
                    [
                        {"id": document_id, "to_access": access.to_json(), "to_seen_at": time.time() if at is None else at}
                        for document_id, access in sorted(seen.items(), key=itemgetter(0))
                    ],
                )
                note_acls(connection, seen.values())

    def seen_at(self, document_id: str) -> float:
        """When one began to look at the current attributes of this blob, in seconds since the epoch; 0 where it is not there."""
        with self._connections.read() as connection:
            statement = select(blobs.c.seen_at).where(blobs.c.document_id == document_id)
            return float(connection.execute(statement).scalar_one_or_none() or 0.0)

    def confirm(self, document_ids: Collection[str], at: float) -> None:
        """These blobs were looked at (seconds since the epoch), and their current attributes are as stored."""
        if document_ids:
            with self._connections.write() as connection:
                connection.execute(_CONFIRM, [{"id": document_id, "to_seen_at": at} for document_id in sorted(document_ids)])

    def forget_rows(self, missing: Mapping[str, Collection[str]]) -> None:
        """These chunks (by document id) are not in the store: list them no more, and have the next run read their blobs again."""
        with self._connections.write() as connection:
            for document_id, chunk_ids in sorted(missing.items(), key=itemgetter(0)):
                left = case((blobs.c.chunks > len(chunk_ids), blobs.c.chunks - len(chunk_ids)), else_=0)
                connection.execute(update(blobs).where(blobs.c.document_id == document_id).values(etag="", sha256=None, chunks=left))
                for some in batches(chunk_ids, 500):
                    connection.execute(delete(chunks).where(chunks.c.document_id == document_id, chunks.c.chunk_id.in_(some)))


def _by_chunk(rows: Iterable[Sequence[Any]]) -> dict[str, CommittedChunk]:
    return {row[0]: committed_chunk(row, _attributes) for row in rows}


def _generations(connection: Connection, document_ids: Iterable[str]) -> dict[str, int]:
    """Of those that are there; nobody else changes these blobs until the transaction ends."""
    found: dict[str, int] = {}
    for some in batches(sorted(document_ids), 500):
        rows = connection.execute(_HELD, {"ids": some}).all()
        found.update((row.document_id, row.generation) for row in rows)
    return found


def _replace_chunks(connection: Connection, new: Mapping[str, Sequence[ChunkRecord]], now: float) -> None:
    """Give each document its new chunks. Vectors of chunks that go stay in the cache, where their time starts to run."""
    old: set[str] = set()
    for some in batches(new, 500):
        old.update(connection.execute(select(chunks.c.text_hash).where(chunks.c.document_id.in_(some))).scalars().all())
        connection.execute(delete(chunks).where(chunks.c.document_id.in_(some)))
    gone = old - {record.text_hash for records in new.values() for record in records} if old else old
    if gone:
        insert_rows(connection, unused, ((text_hash, now) for text_hash in sorted(gone)), conflict="replace")
    rows = (chunk_row(document_id, place, record) for document_id, records in new.items() for place, record in enumerate(records))
    insert_rows(connection, chunks, rows)
