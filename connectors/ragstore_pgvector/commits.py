"""Writes in, one transaction's statements out: rows go through `COPY` into a temporary table, everything else by a few statements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore_pgvector.schema import ACCESS, GIVEN, SCALARS, access_digest, access_values, copied
from ragstore_pgvector.strings import storable
from ragstore_pgvector.tables import STAGE

if TYPE_CHECKING:
    from ragstore.models import AccessColumns, Row
    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.names import Names

# Records that are there already are held, so that nobody who finds them without rows deletes them meanwhile. One statement, so that none
# comes or goes between the two parts.
_RECORD: Final = (
    "WITH held AS MATERIALIZED (SELECT document_id, digest FROM {access} WHERE (document_id, digest) IN "
    "(SELECT document_id, digest FROM {staging} WHERE account IS NOT NULL) ORDER BY id FOR KEY SHARE) "
    f"INSERT INTO {{access}} (document_id, digest, {', '.join(ACCESS)}) SELECT document_id, digest, {', '.join(ACCESS)} "
    "FROM {staging} AS given WHERE account IS NOT NULL AND (document_id, digest) NOT IN (SELECT document_id, digest FROM held) "
    "ORDER BY document_id, digest"
)
_CHANGED: Final = ("access_id", "generation", "words", "text", "terms")
_INSERT: Final = (
    "WITH stored AS (INSERT INTO {table} AS stored (access_id, chunk_id, generation, words, text, terms) "
    "SELECT (SELECT min(id) FROM {access} AS held WHERE held.document_id = given.document_id AND held.digest = given.digest), "
    "chunk_id, generation, words, text, terms::tsvector FROM {staging} AS given ORDER BY document_id, chunk_id "
    f"ON CONFLICT (chunk_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGED)} "
    "WHERE stored.generation <= excluded.generation RETURNING id, access_id, chunk_id) "
    "INSERT INTO {vectors} AS kept (id, access_id, vector) SELECT id, access_id, vector FROM stored JOIN {staging} USING (chunk_id) "
    "ORDER BY id ON CONFLICT (id) DO UPDATE SET access_id = excluded.access_id, vector = excluded.vector "
    "WHERE kept.access_id <> excluded.access_id OR kept.vector {differs} excluded.vector"
)
_TIDY: Final = (
    "DELETE FROM {access} AS held USING unnest(%s::text[]) AS touched(document_id) WHERE held.document_id = touched.document_id "
    "AND NOT EXISTS (SELECT 1 FROM {table} AS stored WHERE stored.access_id = held.id)"
)
_GIVEN_ONCE: Final = ", ".join(f"%s::{'text' if name in SCALARS else 'text[]'} AS {name}" for name in ACCESS)
_HELD: Final = ", ".join(f"held.{name}" for name in ACCESS)
_TOLD: Final = ", ".join(f"given.{name}" for name in ACCESS)
# The columns themselves are compared, for what somebody changed behind the ledger's back keeps the digest that it had.
_RETAG: Final = (
    f"UPDATE {{access}} AS held SET (digest, {', '.join(ACCESS)}) = ROW(given.digest, {_TOLD}) FROM (SELECT %s::bytea AS digest, "
    f"{_GIVEN_ONCE}) AS given WHERE document_id = %s::text AND (held.digest, {_HELD}) IS DISTINCT FROM (given.digest, {_TOLD})"
)
_SET_RIGHT: Final = (
    f"UPDATE {{access}} AS held SET ({', '.join(ACCESS)}) = ROW({_TOLD}) FROM {{staging}} AS given WHERE given.account IS NOT NULL "
    f"AND held.document_id = given.document_id AND held.digest = given.digest AND ({_HELD}) IS DISTINCT FROM ({_TOLD})"
)
_DROP_ROWS: Final = (
    "DELETE FROM {table} AS stored USING {access} AS held, "
    "unnest(%s::text[], %s::text[], %s::bigint[]) AS gone(chunk_id, document_id, generation) WHERE stored.chunk_id = gone.chunk_id "
    "AND held.id = stored.access_id AND held.document_id = gone.document_id AND stored.generation <= gone.generation"
)
_DROP_DOCUMENTS: Final = (
    "DELETE FROM {table} AS stored USING {access} AS held, unnest(%s::text[], %s::bigint[]) AS gone(document_id, generation) "
    "WHERE held.document_id = gone.document_id AND stored.access_id = held.id AND stored.generation <= gone.generation"
)


@dataclass(slots=True, kw_only=True)
class Step:
    """Rows to put, and then changes, which may come in any order: a drop asks for a generation, which a retag leaves."""

    puts: dict[str, Row] = field(default_factory=dict)
    """By chunk id; of several, the last of the newest generation."""
    retags: dict[str, AccessColumns] = field(default_factory=dict)
    """By document id; of several, the last."""
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    """The generation up to which each (document, chunk) goes."""
    documents: dict[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether there is more than rows to put."""
        return bool(self.retags or self.rows or self.documents)

    @property
    def touched(self) -> list[str]:
        """Documents whose rows may be fewer or others than before, which may leave access columns behind that no row has."""
        put = {row.document_id for row in self.puts.values()}
        return sorted({storable(document) for document in put | {document for document, _ in self.rows} | set(self.documents)})

    def add(self, write: Write) -> None:
        """Take up one more write, which comes after those that are here."""
        match write:
            case PutRows():
                for row in write.rows:
                    present = self.puts.get(row.chunk_id)
                    if present is None or present.generation <= row.generation:
                        self.puts[row.chunk_id] = row
            case Retag():
                self.retags[write.document_id] = write.access
            case DropRows():
                for chunk_id in write.chunk_ids:
                    named = (write.document_id, chunk_id)
                    self.rows[named] = max(write.generation, self.rows.get(named, write.generation))
            case DropDocument():
                self.documents[write.document_id] = max(write.generation, self.documents.get(write.document_id, write.generation))


def steps(writes: Sequence[Write]) -> Iterator[Step]:
    """The fewest steps that, one after another, have the effect of the writes in their order."""
    step = Step()
    for write in writes:
        if isinstance(write, PutRows) and step.changes:
            yield step
            step = Step()
        step.add(write)
    if step.puts or step.changes:
        yield step


async def carry_out(step: Step, connection: Connection, names: Names) -> None:
    """Apply one step within the transaction that the connection is in."""
    if step.puts:
        await _put(step, connection, names)
    if step.retags:
        async with connection.cursor() as cursor:
            await cursor.executemany(names.sql(_RETAG), [_retagged(*retag) for retag in sorted(step.retags.items())])
    if step.rows:
        gone = sorted((storable(chunk), storable(document), generation) for (document, chunk), generation in step.rows.items())
        await connection.execute(names.sql(_DROP_ROWS), [list(column) for column in zip(*gone, strict=True)])
    if step.documents:
        whole = sorted((storable(document), generation) for document, generation in step.documents.items())
        await connection.execute(names.sql(_DROP_DOCUMENTS), [list(column) for column in zip(*whole, strict=True)])
    if touched := step.touched:
        await connection.execute(names.sql(_TIDY), [touched])


async def _put(step: Step, connection: Connection, names: Names) -> None:
    await connection.execute(names.sql(STAGE))
    await connection.execute(names.sql("DELETE FROM {staging}"))  # what a step before this one, in the same transaction, has left
    blocks = copied(list(step.puts.values()), names.precision)
    statement = names.sql(f"COPY {{staging}} ({', '.join(GIVEN)}) FROM STDIN (FORMAT BINARY)")
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        # Finding the terms takes longer than sending them.
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            await copy.write(block)
    await connection.execute(names.sql(_SET_RIGHT))
    await connection.execute(names.sql(_RECORD))
    await connection.execute(names.sql(_INSERT))


def _retagged(document_id: str, access: AccessColumns) -> list[object]:
    values = access_values(access)
    digest = access_digest(values)
    return [digest, *values, storable(document_id)]
