"""Writes in, one transaction's statements out: rows go through `COPY` into a temporary table, everything else by a few statements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore_pgvector.schema import ACCESS, STAGE, TYPES, access_values, copied
from ragstore_pgvector.strings import storable

if TYPE_CHECKING:
    from ragstore.models import AccessColumns, Row
    from ragstore_pgvector.connection import Connection
    from ragstore_pgvector.names import Names

_INSERT: Final = (
    f"INSERT INTO {{table}} AS stored ({', '.join(TYPES)}) "
    f"SELECT {', '.join(f'{name}::tsvector' if name == 'terms' else name for name in TYPES)} FROM {{staging}} ORDER BY chunk_id "
    f"ON CONFLICT (chunk_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in TYPES if name != 'chunk_id')} "
    "WHERE stored.generation <= excluded.generation"
)
_LIST_CASTS: Final = ", ".join(
    "%s::text[]" if name in {"allowed", "labels", "label_keys", "long_values"} else "%s::text" for name in ACCESS
)
_RETAG: Final = (
    f"UPDATE {{table}} SET ({', '.join(ACCESS)}) = ROW({_LIST_CASTS}) "
    f"WHERE document_id = %s::text AND ({', '.join(ACCESS)}) IS DISTINCT FROM ({_LIST_CASTS})"
)
_DROP_ROWS: Final = (
    "DELETE FROM {table} AS stored USING unnest(%s::text[], %s::text[], %s::bigint[]) AS gone(chunk_id, document_id, generation) "
    "WHERE stored.chunk_id = gone.chunk_id AND stored.document_id = gone.document_id AND stored.generation <= gone.generation"
)
_DROP_DOCUMENTS: Final = (
    "DELETE FROM {table} AS stored USING unnest(%s::text[], %s::bigint[]) AS gone(document_id, generation) "
    "WHERE stored.document_id = gone.document_id AND stored.generation <= gone.generation"
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


async def _put(step: Step, connection: Connection, names: Names) -> None:
    await connection.execute(names.sql(STAGE))
    await connection.execute(names.sql("DELETE FROM {staging}"))  # what a step before this one, in the same transaction, has left
    blocks = copied(list(step.puts.values()), names.precision)
    statement = names.sql(f"COPY {{staging}} ({', '.join(TYPES)}) FROM STDIN (FORMAT BINARY)")
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        # Finding the terms takes longer than sending them.
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            await copy.write(block)
    await connection.execute(names.sql(_INSERT))


def _retagged(document_id: str, access: AccessColumns) -> list[object]:
    values = access_values(access)
    return [*values, storable(document_id), *values]
