"""A blob whose content is indexed elsewhere in, its generation out of the rows there: a move or a copy parses and embeds nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ragstore.contracts import Store
from ragstore.ingest.content import Generation
from ragstore.ingest.parts import Parts
from ragstore.ledger import ChunkRecord, KnownBlob, Ledger
from ragstore.models import AccessColumns, Chunk, FetchedBlob, Row

_GATHER_SECONDS = 0.005


Donors = Callable[[str], Sequence[KnownBlob]]
"""The live blobs whose content has this SHA-256."""


def donors_among(known: Iterable[KnownBlob]) -> Donors:
    """The donors of a pass that has read the whole ledger."""
    by_content: dict[str, list[KnownBlob]] = defaultdict(list)
    for blob in known:
        if blob.state == "live" and blob.sha256:
            by_content[blob.sha256].append(blob)
    return lambda sha256: by_content.get(sha256, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What ledger and store hold of one document."""

    generation: int | None
    """None where it is not up to date."""
    records: Sequence[ChunkRecord]
    rows: Mapping[str, Row]
    """By chunk id."""


class RowLoader:
    """Documents as they are stored; those that are asked for at about the same time are read in one go."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store
        self._waiting: dict[str, asyncio.Future[Stored]] = {}
        self._task: asyncio.Task[None] | None = None

    async def stored(self, document_id: str) -> Stored:
        """The document's chunks and rows, read before its generation: if that is the expected one, they are of that one, too."""
        if document_id not in self._waiting:
            self._waiting[document_id] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._load())
        return await asyncio.shield(self._waiting[document_id])

    async def _load(self) -> None:
        while self._waiting:
            gathered = 0
            while len(self._waiting) > gathered:  # as long as more of them come
                gathered = len(self._waiting)
                await asyncio.sleep(_GATHER_SECONDS)
            asked, self._waiting = self._waiting, {}
            try:
                found = await self._read(list(asked))
            except Exception as error:  # noqa: BLE001 - handed to each document that waits for it
                for future in asked.values():
                    future.set_exception(error)
            else:
                for document_id, future in asked.items():
                    future.set_result(found[document_id])

    async def _read(self, document_ids: list[str]) -> dict[str, Stored]:
        rows: dict[str, dict[str, Row]] = {document_id: {} for document_id in document_ids}
        async for row in self._store.rows(document_ids):
            rows[row.document_id][row.chunk_id] = row
        documents = self._ledger.documents
        records = await asyncio.to_thread(documents.chunks_of, document_ids)
        live = await asyncio.to_thread(documents.live_generations, document_ids)
        return {each: Stored(generation=live.get(each), records=records[each], rows=rows[each]) for each in document_ids}


class Adopter:
    """Finds a donor with the same content, and makes the rows of the new blob from the donor's."""

    def __init__(self, parts: Parts, donors: Donors) -> None:
        """`donors` are those of the ledger before the pass; copies within one pass share their embeddings anyway."""
        self._parts = parts
        self._loader = RowLoader(parts.ledger, parts.store)
        self._donors = donors

    def donor(self, fetched: FetchedBlob, *, gone: frozenset[str]) -> KnownBlob | None:
        """A live blob with the same bytes, which the same parser would read in the same way.

        Of several the one whose document id is among `gone`: that is a move, and a move names what it replaces.
        """
        state = fetched.state
        reading = (state.content_type, _suffix(state.id.path), self._parts.pipeline)
        donors = [
            known
            for known in self._donors(fetched.sha256)
            if (known.content_type, _suffix(known.id.path), known.pipeline) == reading and known.id != state.id
        ]
        return next((known for known in donors if known.document_id in gone), donors[0] if donors else None)

    async def rows(self, donor: KnownBlob, fetched: FetchedBlob, generation: Generation) -> tuple[list[Row], AccessColumns] | None:
        """The rows of the new blob, or None where the store does not hold all that the ledger lists of the donor."""
        stored = await self._loader.stored(donor.document_id)
        if stored.generation != donor.generation:
            return None  # it was overwritten or deleted while its rows were read: they may be of another content
        if not stored.records or any(record.chunk_id not in stored.rows for record in stored.records):
            return None
        columns = self._parts.columns(fetched.state.access, donor.media_type)
        generation.media_type, generation.title = donor.media_type, donor.title
        rows = []
        for record in stored.records:
            theirs = stored.rows[record.chunk_id]
            ours = generation.add(
                Chunk(
                    text=theirs.text,
                    start=record.start,
                    end=record.end,
                    page=record.page,
                    heading=record.heading,
                    text_hash=record.text_hash,
                )
            )
            if ours.chunk_id not in generation.written:
                rows.append(_adopted(theirs, ours.chunk_id, generation, columns))
        return rows, columns


def _adopted(row: Row, chunk_id: str, generation: Generation, columns: AccessColumns) -> Row:
    return Row(
        chunk_id=chunk_id,
        document_id=generation.document_id,
        generation=generation.number,
        text=row.text,
        vector=row.vector,
        access=columns,
    )


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
