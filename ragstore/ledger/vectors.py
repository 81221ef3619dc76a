"""The vector cache: (embedder fingerprint, text hash) in, vector out, so that no text is embedded twice."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects.sqlite import insert

from ragstore.ledger.connection import Connections
from ragstore.ledger.documents import batches
from ragstore.ledger.schema import chunks, vectors

# Statements are built once: building one costs more than running it.
_AMONG = (vectors.c.fingerprint == bindparam("fingerprint"), vectors.c.text_hash.in_(bindparam("hashes", expanding=True)))
_GET = select(vectors.c.text_hash, vectors.c.vector).where(*_AMONG)
_HAVE = select(vectors.c.text_hash).where(*_AMONG)
_PUT = insert(vectors).on_conflict_do_nothing()


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
                rows = connection.execute(_GET, {"fingerprint": self._fingerprint, "hashes": some})
                found.update((key, np.frombuffer(vector, dtype="<f4")) for key, vector in rows)
        return found

    def have(self, text_hashes: Sequence[str]) -> set[str]:
        """The hashes whose vectors are there."""
        found: set[str] = set()
        with self._connections.read() as connection:
            for some in batches(text_hashes, 500):
                found.update(connection.execute(_HAVE, {"fingerprint": self._fingerprint, "hashes": some}).scalars())
        return found

    def put(self, new: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep these vectors; durable when it returns."""
        now = time.time()
        rows = [
            {"fingerprint": self._fingerprint, "text_hash": key, "vector": vector.astype("<f4").tobytes(), "used_at": now}
            for key, vector in new.items()
        ]
        if rows:
            with self._connections.write() as connection:
                connection.execute(_PUT, rows)


def prune(connections: Connections, *, keep_days: int) -> int:
    """Drop the vectors, of any embedder, that no chunk has had for so many days. Returns how many went."""
    with connections.write() as connection:
        gone = connection.execute(
            delete(vectors).where(
                vectors.c.used_at < time.time() - keep_days * 86400, vectors.c.text_hash.not_in(select(chunks.c.text_hash))
            )
        )
        return gone.rowcount


def count(connections: Connections) -> int:
    """How many vectors are kept."""
    with connections.read() as connection:
        return int(connection.execute(select(func.count()).select_from(vectors)).scalar_one())
