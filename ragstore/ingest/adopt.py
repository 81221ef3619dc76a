"""A blob whose content is indexed elsewhere in, its generation out of the rows there: a move or a copy parses and embeds nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from ragstore.contracts import Store
from ragstore.ingest.content import Generation
from ragstore.ingest.parts import Parts
from ragstore.ledger import KnownBlob
from ragstore.models import AccessColumns, Chunk, FetchedBlob, Row

_GATHER_SECONDS = 0.005


class RowLoader:
    """Rows by document id; what is asked for at about the same time is read from the store in one go."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Future[list[Row]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def rows(self, document_id: str) -> list[Row]:
        """All stored rows of the document."""
        if document_id not in self._waiting:
            self._waiting[document_id] = asyncio.get_running_loop().create_future()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._load())
        return await asyncio.shield(self._waiting[document_id])

    async def _load(self) -> None:
        while self._waiting:
            await asyncio.sleep(_GATHER_SECONDS)
            asked, self._waiting = self._waiting, {}
            found: dict[str, list[Row]] = {document_id: [] for document_id in asked}
            try:
                async for row in self._store.rows(list(asked)):
                    found[row.document_id].append(row)
            except Exception as error:  # noqa: BLE001 - handed to each document that waits for it
                for future in asked.values():
                    future.set_exception(error)
            else:
                for document_id, future in asked.items():
                    future.set_result(found[document_id])


class Adopter:
    """Finds a donor with the same content, and makes the rows of the new blob from the donor's."""

    def __init__(self, parts: Parts, known: Iterable[KnownBlob]) -> None:
        """`known` are the blobs of the ledger before the pass; copies within one pass share their embeddings anyway."""
        self._parts = parts
        self._loader = RowLoader(parts.store)
        self._by_content: dict[str, list[KnownBlob]] = defaultdict(list)
        for blob in known:
            if blob.state == "live" and blob.sha256:
                self._by_content[blob.sha256].append(blob)

    def donor(self, fetched: FetchedBlob, *, gone: frozenset[str]) -> KnownBlob | None:
        """A live blob with the same bytes, which the same parser would read in the same way.

        Of several the one whose document id is among `gone`: that is a move, and a move names what it replaces.
        """
        state = fetched.state
        reading = (state.content_type, _suffix(state.id.path), self._parts.pipeline)
        donors = [
            known
            for known in self._by_content.get(fetched.sha256, ())
            if (known.content_type, _suffix(known.id.path), known.pipeline) == reading and known.id != state.id
        ]
        return next((known for known in donors if known.document_id in gone), donors[0] if donors else None)

    async def rows(self, donor: KnownBlob, fetched: FetchedBlob, generation: Generation) -> tuple[list[Row], AccessColumns] | None:
        """The rows of the new blob, or None where the store does not hold all that the ledger lists of the donor."""
        by_id = {row.chunk_id: row for row in await self._loader.rows(donor.document_id)}
        records = self._parts.ledger.documents.chunks(donor.document_id)
        now = self._parts.ledger.documents.get(donor.document_id)
        if now is None or (now.generation, now.state) != (donor.generation, "live"):
            return None  # it was overwritten or deleted while its rows were read: they may be of another content
        if not records or any(record.chunk_id not in by_id for record in records):
            return None
        columns = self._parts.columns(fetched.state.access, donor.media_type)
        generation.media_type, generation.title = donor.media_type, donor.title
        rows = []
        for record in records:
            theirs = by_id[record.chunk_id]
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
            if ours.chunk_id not in generation.kept:
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
