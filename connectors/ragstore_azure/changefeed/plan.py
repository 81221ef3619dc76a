"""Where a reader stands, and what the feed's index lists now, in; the parts of chunks to be read next, in their order, out.

The order in which things are asked for matters. A final segment is listed after its manifest said so, so that its chunks are complete. Of
segments that are not final, and of all that follow one, the newest is listed first: what comes before in the feed is then never older in
our eyes than what comes after it, and a blob's events keep their order even while the service is writing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from ragstore_azure.changefeed.ahead import Job, ahead, together
from ragstore_azure.changefeed.avro import HEADER_BYTES, Header, parse_header
from ragstore_azure.changefeed.cursor import Position
from ragstore_azure.changefeed.layout import Chunk, Entry, Manifest, chunk_number, chunks_of, manifest_path, parse_manifest
from ragstore_azure.changefeed.storage import FeedStorage

PIECE: Final = 4 * 2**20
"""Bytes that are asked for at once; the memory of a reader is a multiple of it."""
SMALL_PIECE: Final = 2**20
"""What a smaller one counts for."""
_HEADER_GUESS: Final = 16 * 2**10
"""Holds every header seen, of 2 to 4 KB."""
_NEAR: Final = 256 * 2**10
"""From this far on in a chunk, its header is asked for by itself rather than with all that follows it."""
_GROUP: Final = 32
"""Segments whose manifests are read at once; more than a day has where segments are of an hour."""
_WHOLE_DAY: Final = 3
"""So many segments of a day, and one listing of each shard's day is fewer requests than one for each segment."""
_MANIFESTS_AHEAD: Final = 3
_LISTINGS_AHEAD: Final = 2


class VanishedError(Exception):
    """A part of the feed that was there is gone, or shorter than it was: retention removed it, or another feed stands in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What to read of one shard of a segment."""

    folder: str
    position: Position | None
    """Where to begin; None: at the first chunk."""
    chunks: tuple[Chunk, ...]
    """From the one of the position on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan:
    """What to read of one segment."""

    segment: str
    is_final: bool
    shards: tuple[ShardPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some bytes of a chunk."""

    plan: SegmentPlan
    shard: ShardPlan
    chunk: Chunk
    begin: int
    data: bytes
    header: Header | None
    """That of the chunk, where it was asked for by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """All pieces of a segment have come."""

    plan: SegmentPlan


class Planner:
    """Plans one pass over the feed."""

    def __init__(self, storage: FeedStorage, *, manifests: dict[str, Manifest], headers: Mapping[str, Header]) -> None:
        self._storage = storage
        self._manifests = manifests
        self._headers = headers

    async def plans(self, index: Sequence[Entry], open: Mapping[str, Mapping[str, Position]]) -> AsyncGenerator[Job[list[SegmentPlan]]]:
        """Jobs that list the chunks of some segments each, in the order of the segments. `index` are their manifests' entries."""
        live: list[Manifest] = []

        async def groups() -> AsyncGenerator[Job[list[Manifest]]]:
            for group in _groups(index):
                yield Job(partial(self.read_manifests, group))

        async with ahead(groups(), _MANIFESTS_AHEAD) as read:
            async for manifests in read:
                settled = 0
                if not live:
                    while settled < len(manifests) and manifests[settled].is_final:
                        settled += 1
                    if settled:
                        yield Job(partial(self._settled, manifests[:settled], open))
                live += manifests[settled:]
        if live:
            yield Job(partial(self._live, live, open))

    async def pieces(self, index: Sequence[Entry], open: Mapping[str, Mapping[str, Position]]) -> AsyncGenerator[Job[Piece | SegmentEnd]]:
        """Jobs that download the parts of all these segments, in order."""
        async with ahead(self.plans(index, open), _LISTINGS_AHEAD) as planned:
            async for plans in planned:
                for plan in plans:
                    for job in self._downloads(plan):
                        yield job
                    yield Job(partial(_at_once, SegmentEnd(plan=plan)), weight=0)

    async def read_manifests(self, entries: Sequence[Entry]) -> list[Manifest]:
        """The manifests, read again only where they changed."""
        return await together(self._manifest(entry) for entry in entries)

    async def chunks(self, manifest: Manifest) -> dict[str, tuple[Chunk, ...]]:
        """The chunks of a segment now, by the folder of the shard."""
        listed = await together(self._storage.entries(shard) for shard in manifest.shards)
        return {shard: chunks_of(entries, shard) for shard, entries in zip(manifest.shards, listed, strict=True)}

    async def _manifest(self, entry: Entry) -> Manifest:
        segment = entry.path.removeprefix("idx/segments/").removesuffix("/meta.json")
        known = self._manifests.get(segment)
        if known is not None and known.etag == entry.etag:
            return known
        content = await self._storage.document(manifest_path(segment))
        if content is None:
            raise VanishedError(f"the segment {segment}")
        manifest = parse_manifest(content, segment, entry.etag)
        if not manifest.is_final:
            self._manifests[segment] = manifest
        return manifest

    async def _settled(self, manifests: Sequence[Manifest], open: Mapping[str, Mapping[str, Position]]) -> list[SegmentPlan]:
        """For segments that are all final, of one day: by day and shard where that is fewer requests."""
        shards = [shard for manifest in manifests for shard in manifest.shards]
        prefixes: list[str] = []
        for day, of_day in groupby(sorted(shards), key=_day_of_shard):
            folders = list(of_day)
            prefixes += [day] if len(folders) >= _WHOLE_DAY else folders
        listed = await together(self._storage.entries(prefix) for prefix in prefixes)
        entries: dict[str, list[Entry]] = {}
        for entry in (entry for some in listed for entry in some):
            entries.setdefault(f"{entry.path.rpartition('/')[0]}/", []).append(entry)
        return [
            _segment_plan(manifest, {shard: chunks_of(entries.get(shard, []), shard) for shard in manifest.shards}, open)
            for manifest in manifests
        ]

    async def _live(self, manifests: Sequence[Manifest], open: Mapping[str, Mapping[str, Position]]) -> list[SegmentPlan]:
        """For segments from the first one on that is not final: the newest first, one after the other."""
        plans = [_segment_plan(manifest, await self.chunks(manifest), open) for manifest in reversed(manifests)]
        return plans[::-1]

    def _downloads(self, plan: SegmentPlan) -> Iterator[Job[Piece | SegmentEnd]]:
        for shard in plan.shards:
            for chunk in shard.chunks:
                begin = self._first_byte(shard, chunk)
                header = 0 < begin < chunk.size and f"{shard.folder}{chunk.name}" not in self._headers
                for at in range(begin, chunk.size, PIECE):
                    end = min(at + PIECE, chunk.size)
                    job = partial(self._piece, plan, shard, chunk, at, end, header=header and at == begin)
                    yield Job(job, weight=max(end - at, SMALL_PIECE))

    def _first_byte(self, shard: ShardPlan, chunk: Chunk) -> int:
        position = shard.position
        if position is None or position.chunk != chunk.name:
            return 0
        if chunk.size <= max(position.offset, position.passed):
            return chunk.size  # nothing new
        near = position.offset <= _NEAR and f"{shard.folder}{chunk.name}" not in self._headers
        return 0 if near else position.offset

    async def _piece(self, plan: SegmentPlan, shard: ShardPlan, chunk: Chunk, begin: int, end: int, *, header: bool) -> Piece:
        path = f"{shard.folder}{chunk.name}"
        data = await self._part(path, begin, end)
        found = await self._header(path, chunk.size) if header else None
        return Piece(plan=plan, shard=shard, chunk=chunk, begin=begin, data=data, header=found)

    async def _header(self, path: str, size: int) -> Header | None:
        found = parse_header(await self._part(path, 0, min(_HEADER_GUESS, size)))
        return found or parse_header(await self._part(path, 0, min(HEADER_BYTES, size)))

    async def _part(self, path: str, begin: int, end: int) -> bytes:
        data = await self._storage.part(path, begin, end)
        if data is None:
            raise VanishedError(f"the chunk {path!r}")
        return data


def _segment_plan(manifest: Manifest, chunks: Mapping[str, tuple[Chunk, ...]], open: Mapping[str, Mapping[str, Position]]) -> SegmentPlan:
    """What is left to read of a segment. Raises `VanishedError` where what was read before is not there any more."""
    positions = open.get(manifest.segment, {})
    if gone := [shard for shard in positions if shard not in chunks]:
        raise VanishedError(f"the shard {gone[0]!r}")
    shards = []
    for folder, found in chunks.items():
        position = positions.get(folder)
        if position is not None:
            here = next((chunk for chunk in found if chunk.name == position.chunk), None)
            if here is None or here.size < max(position.offset, position.passed):
                what = "is gone" if here is None else f"has {here.size} bytes, of which {max(position.offset, position.passed)} were read"
                raise VanishedError(f"the chunk '{folder}{position.chunk}' ({what})")
        first = chunk_number(position.chunk) if position is not None else 0
        left = tuple(chunk for chunk in found if chunk.number >= first)
        shards.append(ShardPlan(folder=folder, position=position, chunks=left))
    return SegmentPlan(segment=manifest.segment, is_final=manifest.is_final, shards=tuple(shards))


def _groups(index: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Of one day each, and not too many."""
    for _day, of_day in groupby(index, key=lambda entry: entry.path[: len("idx/segments/2026/11/30/")]):
        entries = list(of_day)
        for at in range(0, len(entries), _GROUP):
            yield entries[at : at + _GROUP]


def _day_of_shard(folder: str) -> str:
    """`log/00/2026/11/30/` of `log/00/2026/11/30/2100/`."""
    return folder.rstrip("/").rpartition("/")[0] + "/"


async def _at_once(end: Piece | SegmentEnd) -> Piece | SegmentEnd:
    return end
