"""Where a blob goes that cannot be indexed: its reason, how often it was tried, and a way to try again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sqlalchemy import delete, select, update

from ragstore.ledger.bulk import batches, upsert
from ragstore.ledger.connection import Connections
from ragstore.ledger.records import Failure
from ragstore.ledger.schema import failures


class Quarantine:
    """The failures of an index."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def all(self) -> dict[str, Failure]:
        """Every failure, dismissed ones too, by document id."""
        with self._connections.read() as connection:
            return {row.document_id: Failure(**row._mapping) for row in connection.execute(select(failures))}  # noqa: SLF001 - SQLAlchemy's public name for a row as a mapping

    def some(self, document_ids: Iterable[str]) -> dict[str, Failure]:
        """As `all`, of these documents."""
        found: dict[str, Failure] = {}
        with self._connections.read() as connection:
            for some in batches(document_ids, 500):
                rows = connection.execute(select(failures).where(failures.c.document_id.in_(some))).all()
                found.update((row.document_id, Failure(**row._mapping)) for row in rows)  # noqa: SLF001 - as above
        return found

    def add(self, *, document_id: str, blob: str, kind: str, reason: str, etag: str, sha256: str | None, pipeline: str) -> None:
        """Note one more failed attempt; `since` stays that of the first with this ETag."""
        # A file name or a parser's message may hold what UTF-8 cannot say.
        blob, reason = (text.encode("utf-8", "backslashreplace").decode() for text in (blob, reason))
        row = {
            "document_id": document_id, "blob": blob, "kind": kind, "reason": reason, "attempts": 1, "since": time.time(),
            "etag": etag, "sha256": sha256, "pipeline": pipeline, "dismissed": 0,
        }  # fmt: skip
        changed = {key: row[key] for key in ("kind", "reason", "etag", "sha256", "pipeline", "dismissed")}
        with self._connections.write() as connection:
            connection.execute(upsert(connection, failures, ["document_id"], {**changed, "attempts": failures.c.attempts + 1}), [row])

    def clear(self, document_ids: list[str]) -> None:
        """The blob was indexed, or is gone."""
        if document_ids:
            with self._connections.write() as connection:
                connection.execute(delete(failures).where(failures.c.document_id.in_(document_ids)))

    def retry(self, blob: str | None) -> int:
        """Have the next run try again (all, or the blob of this name). Returns how many it will be."""
        return self._set(blob, {"etag": "", "sha256": None, "dismissed": 0})

    def dismiss(self, blob: str | None) -> int:
        """Stop reporting (all, or the blob of this name) until the blob changes. Returns how many."""
        return self._set(blob, {"dismissed": 1})

    def _set(self, blob: str | None, values: dict[str, object]) -> int:
        statement = update(failures).values(**values)
        if blob is not None:
            statement = statement.where(failures.c.blob == blob)
        with self._connections.write() as connection:
            return connection.execute(statement).rowcount
