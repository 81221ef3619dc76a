"""A blob in, a ledger that holds nothing of it out, in no row and in no byte of its file; and what is there still, for the proof."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Delete, Table, and_, delete, exists, func, not_, select, update

from ragstore.ledger.bulk import batches, upsert
from ragstore.ledger.connection import Connections, Scrubbed
from ragstore.ledger.schema import blobs, chunks, failures, settings, unused, vectors, work
from ragstore.models import BlobId

_PLACES: Final[dict[str, Table]] = {"ledger": blobs, "chunks": chunks, "queued": work, "failures": failures}
"""The tables with rows that are about one blob, as the proof calls them."""
_TEXTS: Final[dict[str, Table]] = {"cached_vectors": vectors, "unused_texts": unused}
"""The tables by text, which belong to no blob."""


class Erasures:
    """The part of the ledger that forgets a blob for good. No tombstone stays.

    It needs none: an event that is told again has the engine look at the blob, which is gone, and of which nothing is known then. A blob of
    that name that comes back is a new one.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def named(self, name: str, accounts: Iterable[str]) -> list[BlobId]:
        """The blobs that `container/path`, or `account/container/path`, may mean, of which the ledger holds anything.

        `accounts` are those of the sources, beside those in the ledger: of a blob that is erased by half only a digest may be left.
        """
        first, _, rest = name.partition("/")
        second, _, last = rest.partition("/")
        with self._connections.read() as connection:
            known = {*accounts}
            for table in (blobs, work):
                known |= {*connection.execute(select(table.c.account).distinct()).scalars().all()}
            meant = [BlobId(account=account, container=first, path=rest) for account in sorted(known) if first and rest]
            meant += [BlobId(account=first, container=second, path=last)] if second and last else []
            return [blob for blob in dict.fromkeys(meant) if self._holds(connection, blob.document_id)]

    def begin(self, document_id: str) -> None:
        """Remember that this blob is being erased, so that it can be finished after a crash; by a digest, which tells nothing of it."""
        row = {"key": _mark(document_id), "value": ""}
        with self._connections.write() as connection:
            connection.execute(upsert(connection, settings, ["key"], {"value": ""}), [row])

    def end(self, document_id: str) -> None:
        """All is erased, and was seen to be."""
        with self._connections.write() as connection:
            connection.execute(delete(settings).where(settings.c.key == _mark(document_id)))

    def erase(self, blob: BlobId) -> dict[str, int]:
        """Delete every row about this blob, and every cached vector of a text that no chunk has then. Returns how many went of each.

        The cache does not know whose a text was. So what nothing uses goes, whoever had it: vectors of an earlier version of this blob are
        among it, and of all its versions where the blob was deleted before it was erased.
        """
        with self._connections.write() as connection:
            gone = {place: connection.execute(_all_of(table, blob.document_id)).rowcount for place, table in _PLACES.items()}
            moved_from = and_(work.c.account == blob.account, work.c.container == blob.container, work.c.came_from == blob.path)
            connection.execute(update(work).where(moved_from).values(came_from=None))  # the origin was queued, and looked at, by itself
            for place, table in _TEXTS.items():
                gone[place] = connection.execute(delete(table).where(_of_no_chunk(connection, table))).rowcount
            return gone

    def remains(self, document_id: str) -> dict[str, int]:
        """How many rows there are of each kind that `erase` deletes."""
        found: dict[str, int] = {}
        with self._connections.read() as connection:
            for place, table in _PLACES.items():
                of_it = select(func.count()).select_from(table).where(table.c.document_id == document_id)
                found[place] = connection.execute(of_it).scalar_one()
            for place, table in _TEXTS.items():
                of_none = select(func.count()).select_from(table).where(_of_no_chunk(connection, table))
                found[place] = connection.execute(of_none).scalar_one()
        return found

    def shared(self, document_id: str, text_hashes: Collection[str]) -> set[str]:
        """Those of the texts that a chunk of another blob has as well."""
        found: set[str] = set()
        with self._connections.read() as connection:
            for some in batches(text_hashes, 500):
                others = select(chunks.c.text_hash).where(chunks.c.text_hash.in_(some), chunks.c.document_id != document_id)
                found.update(connection.execute(others.distinct()).scalars().all())
        return found

    def scrub(self) -> Scrubbed:
        """Leave no byte of deleted rows in the database's file, where it is one of this machine."""
        return self._connections.scrub()

    @staticmethod
    def _holds(connection: Connection, document_id: str) -> bool:
        rows = [select(table.c.document_id).where(table.c.document_id == document_id).limit(1) for table in _PLACES.values()]
        rows.append(select(settings.c.key).where(settings.c.key == _mark(document_id)))
        return any(connection.execute(query).first() is not None for query in rows)


def _mark(document_id: str) -> str:
    return f"purge:{hashlib.blake2b(document_id.encode(), digest_size=16).hexdigest()}"


def _all_of(table: Table, document_id: str) -> Delete:
    return delete(table).where(table.c.document_id == document_id)


def _of_no_chunk(connection: Connection, table: Table) -> ColumnElement[bool]:
    """Each database has a form that it answers fast; see `vectors.prune`."""
    if connection.dialect.name == "postgresql":
        return not_(exists().where(chunks.c.text_hash == table.c.text_hash))
    column: ColumnElement[Any] = table.c.text_hash
    return column.not_in(select(chunks.c.text_hash))
