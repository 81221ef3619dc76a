"""A plan in, requests out, in an order that a crash at any moment leaves nothing visible that should not be, and repeating mends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragstore.contracts import PutRows, Retag, Write
from ragstore.models import AccessColumns
from ragstore_pinecone.namespace import Namespace
from ragstore_pinecone.plan import Needs, Plan, Slot
from ragstore_pinecone.records import (
    Columns,
    Record,
    document_of,
    generation_of,
    named,
    part_ids,
    parts_of,
    row_record,
    text_metadata,
    text_records,
)

if TYPE_CHECKING:
    from pinecone import Vector


class Sizes:
    """Access columns as metadata, each of them made once: the rows of a document share theirs."""

    def __init__(self) -> None:
        self._known: dict[AccessColumns, Columns] = {}

    def of(self, access: AccessColumns) -> Columns:
        """Raises `PoisonError` where a record cannot hold them."""
        found = self._known.get(access)
        if found is None:
            found = self._known[access] = Columns.of(access)
        return found

    @classmethod
    def checked(cls, writes: Sequence[Write]) -> Sizes:
        """Of everything that is written, so that what is refused is refused before anything is."""
        sizes = cls()
        for write in writes:
            if isinstance(write, PutRows):
                for access in {id(row.access): row.access for row in write.rows}.values():
                    sizes.of(access)
            elif isinstance(write, Retag):
                sizes.of(write.access)
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Carries out writes in a collection: the namespace of its rows, and that of the texts beside."""

    rows: Namespace
    texts: Namespace
    dimensions: int

    async def write(self, writes: Sequence[Write], sizes: Sizes) -> None:
        """Access first, deletions last. What it writes depends on what is stored, so repeating it after a crash completes it."""
        needs = Needs.of(writes)
        touched = {*map(document_of, needs.ids), *needs.dropped, *needs.retagged}
        await self.rows.settle(touched)
        cramped = {write.document_id for write in writes if isinstance(write, Retag) and not sizes.of(write.access).leave_room}
        plan, known = await self._read(needs, cramped)
        plan.carry_out(writes)
        await self._retag(plan, sizes, known)
        await self._put(plan, sizes)
        await self._delete(list(plan.deletes()))

    async def _read(self, needs: Needs, cramped: set[str]) -> tuple[Plan, Mapping[str, Vector]]:
        """What the plan needs to know. Of a document that is only retagged, with room for any text, ids are enough."""
        listed = await self.rows.ids_of(one for one in needs.dropped | needs.retagged if named(one))
        known = {identity: document_id for document_id, ids in listed.items() for identity in ids}
        blind = {identity for identity, document_id in known.items() if document_id not in cramped | needs.dropped} - needs.ids
        records = await self.rows.fetch((needs.ids | known.keys()) - blind)
        plan = Plan()
        for identity in blind:
            plan.add(identity, Slot(document_id=known[identity], stored=True, generation=0))
        for identity, record in records.items():
            generation, parts = generation_of(record), parts_of(record.metadata)
            plan.add(identity, Slot(document_id=document_of(identity), stored=True, generation=generation, parts=parts))
        return plan, records

    async def _retag(self, plan: Plan, sizes: Sizes, known: Mapping[str, Vector]) -> None:
        """Metadata alone is sent; but a text that the new columns leave no room for has to move first."""
        updates: dict[str, dict[str, Any]] = {}
        moved: list[Record] = []
        for identity, slot, access in plan.retags():
            columns = sizes.of(access)
            updates[identity] = dict(columns.metadata)
            if identity in known and not slot.parts:
                text = str((known[identity].metadata or {}).get("text", ""))
                parts = columns.parts(text)
                if parts:
                    moved += text_records(identity, parts, self.dimensions)
                    updates[identity] |= text_metadata(text, parts)
        if moved:
            await self.texts.put(moved)
        if updates:
            await self.rows.update(updates)

    async def _put(self, plan: Plan, sizes: Sizes) -> None:
        """Texts first, and what an older text leaves over goes before the row that told of it."""
        records: list[Record] = []
        texts: list[Record] = []
        over: list[str] = []
        for identity, slot, row in plan.puts():
            record, parts = row_record(row, sizes.of(row.access))
            records.append(record)
            texts += parts
            over += part_ids(identity, len(parts), slot.parts)
        if texts:
            await self.texts.put(texts)
        if over:
            await self.texts.delete(over)
        if records:
            await self.rows.put(records)

    async def _delete(self, deletes: Sequence[tuple[str, Slot]]) -> None:
        """Texts first: nobody is shown a row that has lost its text, and none is left of which no row tells."""
        beside = [part for identity, slot in deletes for part in part_ids(identity, 0, slot.parts)]
        if beside:
            await self.texts.delete(beside)
        if deletes:
            await self.rows.delete(identity for identity, _ in deletes)
