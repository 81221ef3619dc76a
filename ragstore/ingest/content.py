"""A fetched blob in, the chunk records and rows of its next generation out; only rows that the store lacks are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ragstore.embedding.scripts import Scripts
from ragstore.errors import PoisonError
from ragstore.ingest.occurrences import Occurrences
from ragstore.ingest.parts import Parts
from ragstore.ingest.supply import VectorSupply
from ragstore.ingest.swap import Swapper
from ragstore.ledger import ChunkRecord, PackedChunks
from ragstore.models import AccessColumns, Block, Chunk, FetchedBlob, Row, chunk_id

_GROUP = 256
"""Chunks of one document that are embedded and written together: a document of any size passes through in such groups."""

_INLINE = 1 << 16
"""A block longer than this is chunked in a thread, so that other documents go on."""


@dataclass(slots=True, kw_only=True)
class Generation:
    """What the next generation of a document consists of, collected while its content streams by."""

    document_id: str
    number: int
    began: float
    """When one began to look at the blob, in seconds since the epoch."""
    kept: frozenset[str]
    """Chunk ids of the committed generation."""
    written: frozenset[str]
    """Those of them whose rows are in the store as they should be."""
    records: PackedChunks = field(default_factory=PackedChunks)
    media_type: str = ""
    title: str | None = None
    warnings: list[str] = field(default_factory=list)
    _occurrences: Occurrences = field(default_factory=Occurrences)

    def stale(self) -> frozenset[str]:
        """Chunk ids that the committed generation has and this one has not."""
        return self.kept.difference(self.records.chunk_ids()) if self.kept else self.kept

    def add(self, chunk: Chunk) -> ChunkRecord:
        """List a chunk; equal texts in one document are told apart by their occurrence."""
        record = ChunkRecord(
            chunk_id=chunk_id(self.document_id, chunk.text_hash, self._occurrences.next(chunk.text_hash)),
            start=chunk.start,
            end=chunk.end,
            page=chunk.page,
            heading=chunk.heading,
            text_hash=chunk.text_hash,
        )
        self.records.append(record)
        return record


class ContentReader:
    """Parses, chunks and embeds content, and gives the rows to the swapper."""

    def __init__(self, parts: Parts, supply: VectorSupply, swapper: Swapper) -> None:
        self.scripts = Scripts(parts.embedder.scripts)
        self._parts = parts
        self._supply = supply
        self._swapper = swapper

    async def read(self, fetched: FetchedBlob, generation: Generation) -> AccessColumns:
        """Fill the generation; returns the access columns that its rows carry.

        Raises `PoisonError` where the content cannot be indexed, `TransientError` where the embedder is down.
        """
        state = fetched.state
        stream = await self._parts.parsers.parse(fetched.content, name=state.id.path, declared=state.content_type)
        try:
            generation.media_type, generation.title = stream.media_type, stream.title
            columns = self._parts.columns(state.access, stream.media_type)
            async for chunks in self._chunks(stream.media_type, stream.blocks, generation):
                rows = await self._rows(chunks, generation, columns)
                await self._swapper.put(state, rows)
        finally:
            await stream.aclose()
        if not generation.records:
            raise PoisonError("no_text", "the content holds no text that could be found by a search")
        return columns

    async def _chunks(self, media_type: str, blocks: AsyncIterator[Block], generation: Generation) -> AsyncIterator[list[Chunk]]:
        """Groups of chunks, small enough to be held in memory."""
        chunker = self._parts.chunker.document(media_type)
        async for block in blocks:
            generation.warnings.extend(block.warnings)
            self.scripts.see(block.text)
            chunks = chunker.chunk(block) if len(block.text) < _INLINE else await asyncio.to_thread(chunker.chunk, block)
            iterator = iter(chunks)
            while group := list(islice(iterator, _GROUP)):
                yield group

    async def _rows(self, chunks: Sequence[Chunk], generation: Generation, columns: AccessColumns) -> list[Row]:
        records = [generation.add(chunk) for chunk in chunks]
        new = [(record, chunk) for record, chunk in zip(records, chunks, strict=True) if record.chunk_id not in generation.written]
        texts = {chunk.text_hash: chunk.text for _, chunk in new}
        self._supply.count_reused(len(chunks) - len(texts))
        vectors = await self._supply.of(texts)
        return [
            Row(
                chunk_id=record.chunk_id,
                document_id=generation.document_id,
                generation=generation.number,
                text=chunk.text,
                vector=vectors[record.text_hash],
                access=columns,
            )
            for record, chunk in new
        ]
