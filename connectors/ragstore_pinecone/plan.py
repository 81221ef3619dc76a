"""Writes and what is stored in, what has to be put, retagged and deleted out: the writes carried out in their order, in memory.

Pinecone compares nothing when it writes. So generations are read first, and whoever writes a document meanwhile may be overwritten by an
older generation, or lose a row to it. The ledger lets one worker at a time write a document, and decides over every hit; a row that is
lost nevertheless is one less in the answers until `verify --repair`, never one more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore.models import AccessColumns, Row
from ragstore_pinecone.records import record_id


@dataclass(slots=True, kw_only=True)
class Slot:
    """What is known of one record, and what becomes of it."""

    document_id: str
    stored: bool = False
    generation: int | None = None
    """None where there is no such row."""
    parts: int = 0
    """Of its text beside, as stored."""
    row: Row | None = None
    """To be put."""
    access: AccessColumns | None = None
    """To be set on a row that stays as it is."""

    def gone(self) -> None:
        """Delete the row."""
        self.generation = self.row = self.access = None


@dataclass(slots=True)
class Needs:
    """What has to be read before the writes can be carried out."""

    ids: set[str] = field(default_factory=set)
    """Records that are put or dropped."""
    dropped: set[str] = field(default_factory=set)
    """Documents of which every record and its generation is needed."""
    retagged: set[str] = field(default_factory=set)
    """Documents of which every id is needed."""

    @classmethod
    def of(cls, writes: Sequence[Write]) -> Needs:
        """Raises `ValueError` for ids that ragstore did not derive."""
        needs = cls()
        for write in writes:
            match write:
                case PutRows():
                    needs.ids.update(record_id(row.document_id, row.chunk_id) for row in write.rows)
                case DropRows():
                    needs.ids.update(record_id(write.document_id, chunk_id) for chunk_id in write.chunk_ids)
                case DropDocument():
                    needs.dropped.add(write.document_id)
                case Retag():
                    needs.retagged.add(write.document_id)
        return needs


@dataclass(slots=True)
class Plan:
    """The records that the writes touch."""

    slots: dict[str, Slot] = field(default_factory=dict)
    """By id; `add` fills it."""
    _documents: defaultdict[str, list[Slot]] = field(default_factory=lambda: defaultdict(list))

    def add(self, identity: str, slot: Slot) -> Slot:
        """Take a record into the plan that is not in it yet."""
        self.slots[identity] = slot
        self._documents[slot.document_id].append(slot)
        return slot

    def carry_out(self, writes: Sequence[Write]) -> None:
        """Do in memory what the writes say, in their order."""
        for write in writes:
            match write:
                case PutRows():
                    for row in write.rows:
                        self._put(row)
                case DropRows():
                    for chunk_id in write.chunk_ids:
                        self._drop(self.slots.get(record_id(write.document_id, chunk_id)), write.generation)
                case DropDocument():
                    for slot in self._documents.get(write.document_id, ()):
                        self._drop(slot, write.generation)
                case Retag():
                    for slot in self._documents.get(write.document_id, ()):
                        if slot.row is not None:
                            slot.row = replace(slot.row, access=write.access)
                        elif slot.generation is not None:
                            slot.access = write.access

    def puts(self) -> Iterator[tuple[str, Slot, Row]]:
        """Rows to be put, with their ids."""
        return ((identity, slot, slot.row) for identity, slot in self.slots.items() if slot.row is not None)

    def retags(self) -> Iterator[tuple[str, Slot, AccessColumns]]:
        """Rows whose access columns are to be set."""
        return ((identity, slot, slot.access) for identity, slot in self.slots.items() if slot.access is not None)

    def deletes(self) -> Iterator[tuple[str, Slot]]:
        """Rows to be deleted."""
        return ((identity, slot) for identity, slot in self.slots.items() if slot.stored and slot.generation is None)

    def _put(self, row: Row) -> None:
        identity = record_id(row.document_id, row.chunk_id)
        slot = self.slots.get(identity) or self.add(identity, Slot(document_id=row.document_id))
        if slot.generation is None or slot.generation <= row.generation:
            slot.generation, slot.row, slot.access = row.generation, row, None

    @staticmethod
    def _drop(slot: Slot | None, generation: int) -> None:
        if slot is not None and slot.generation is not None and slot.generation <= generation:
            slot.gone()
