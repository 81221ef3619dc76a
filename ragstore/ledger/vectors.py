"""The vector cache: (embedder fingerprint, text hash) in, vector out, so that no text is embedded twice."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, bindparam, delete, exists, func, not_, select, union_all

from ragstore.ledger.bulk import batches, insert_rows
from ragstore.ledger.connection import Connections
from ragstore.ledger.schema import chunks, unused, vectors

# Statements are built once: building one costs more than running it.
_AMONG = (vectors.c.fingerprint == bindparam("fingerprint"), vectors.c.text_hash.in_(bindparam("hashes", expanding=True)))
_GET = select(vectors.c.text_hash, vectors.c.vector).where(*_AMONG)
_HAVE = select(vectors.c.text_hash).where(*_AMONG)


class Vectors:
    """Vectors of one embedder."""

    def __init__(self, connections: Connections, fingerprint: str) -> None:
        self._connections = connections
        self._fingerprint = fingerprint

    def get(self, text_hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors that are there, each of shape (dimensions,)."""
        found: dict[str, NDArray[np.float32]] = {}
        with self._connections.read() as connection:
            for some in batches(text_hashes, 500):
                rows = connection.execute(_GET, {"fingerprint": self._fingerprint, "hashes": some}).all()
                found.update((key, np.frombuffer(vector, dtype="<f4")) for key, vector in rows)
        return found

    def have(self, text_hashes: Sequence[str]) -> set[str]:
        """The hashes whose vectors are there."""
        found: set[str] = set()
        with self._connections.read() as connection:
            for some in batches(text_hashes, 500):
                found.update(connection.execute(_HAVE, {"fingerprint": self._fingerprint, "hashes": some}).scalars().all())
        return found

    def put(self, new: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep these vectors; durable when it returns."""
        now = time.time()
        rows = [(self._fingerprint, key, vector.astype("<f4").tobytes(), now) for key, vector in sorted(new.items(), key=itemgetter(0))]
        if rows:
            with self._connections.write() as connection:
                insert_rows(connection, vectors, rows, conflict="ignore")


def prune(connections: Connections, *, keep_days: int) -> int:
    """Drop the vectors, of any embedder, that no chunk has had for so many days. Returns how many went."""
    before = time.time() - keep_days * 86400
    with connections.write() as connection:
        gone = connection.execute(delete(vectors).where(vectors.c.used_at < before, _unused_since(connection, before)))
        connection.execute(delete(unused).where(unused.c.since < before))
        return gone.rowcount


def _unused_since(connection: Connection, before: float) -> ColumnElement[bool]:
    """PostgreSQL compares a long `NOT IN` row by row, and SQLite has no index for the anti-join that PostgreSQL makes of `NOT EXISTS`."""
    recent = unused.c.since >= before
    if connection.dialect.name == "postgresql":
        has_chunk = exists().where(chunks.c.text_hash == vectors.c.text_hash)
        return not_(has_chunk) & not_(exists().where(unused.c.text_hash == vectors.c.text_hash, recent))
    return vectors.c.text_hash.not_in(union_all(select(chunks.c.text_hash), select(unused.c.text_hash).where(recent)))


def count(connections: Connections) -> int:
    """How many vectors are kept."""
    with connections.read() as connection:
        return int(connection.execute(select(func.count()).select_from(vectors)).scalar_one())
