"""Writes in, the fewest batches out that have the same effect as applying the writes one after another.

A LanceDB commit costs the same for one row as for hundreds, and every commit slows queries until the next maintenance. A batch is
carried out as: set access columns of stored rows, merge rows, delete rows; one commit each, where there is anything to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore.models import AccessColumns, Row


@dataclass(slots=True, kw_only=True)
class Batch:
    """Carried out in the order of the fields."""

    retags: dict[str, AccessColumns] = field(default_factory=dict)
    """By document id. The rows put before the retag have these columns already."""
    puts: dict[str, Row] = field(default_factory=dict)
    """By chunk id."""
    drops: list[DropRows | DropDocument] = field(default_factory=list)
    chunks: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The chunk ids in `puts` by document id."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The highest generation in `drops`, by document id."""

    def put(self, row: Row) -> None:
        """Add the row, unless a newer one of the same chunk is here."""
        present = self.puts.get(row.chunk_id)
        if present is None or present.generation <= row.generation:
            if present is not None:
                self.chunks[present.document_id].discard(row.chunk_id)
            self.puts[row.chunk_id] = row
            self.chunks[row.document_id].add(row.chunk_id)

    def retag(self, write: Retag) -> None:
        """Set the columns of stored rows later, and of the rows put so far now."""
        self.retags[write.document_id] = write.access
        for chunk_id in self.chunks.get(write.document_id, ()):
            self.puts[chunk_id] = replace(self.puts[chunk_id], access=write.access)

    def drop(self, write: DropRows | DropDocument) -> None:
        """Delete later."""
        self.drops.append(write)
        self.dropped[write.document_id] = max(write.generation, self.dropped.get(write.document_id, write.generation))

    def would_drop(self, row: Row) -> bool:
        """Whether a drop that came before this row could take it, were both in this batch."""
        return row.document_id in self.dropped and row.generation <= self.dropped[row.document_id]


def batched(writes: Sequence[Write]) -> Iterator[Batch]:
    """A drop waits for the end of its batch, so rows that it would wrongly take begin a new one."""
    batch = Batch()
    for write in writes:
        match write:
            case PutRows():
                for row in write.rows:
                    if batch.would_drop(row):
                        yield batch
                        batch = Batch()
                    batch.put(row)
            case Retag():
                batch.retag(write)
            case DropRows() | DropDocument():
                batch.drop(write)
    if batch.retags or batch.puts or batch.drops:
        yield batch
