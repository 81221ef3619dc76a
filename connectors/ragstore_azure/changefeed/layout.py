"""Names and JSON documents of a change feed's container in; segments, manifests and chunks as values out.

The layout: https://learn.microsoft.com/azure/storage/blobs/storage-blob-change-feed. A segment is named by its begin in UTC as its path has
it, `2026/11/30/2115`: such names sort by time, whatever the length of segments (an hour as a rule, a half or a quarter as well).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from ragstore.errors import TransientError

SEGMENTS_PATH: Final = "meta/segments.json"
INDEX: Final = "idx/segments/"
_MANIFEST: Final = re.compile(r"idx/segments/(\d{4}/\d{2}/\d{2}/\d{4,6})/meta\.json")
_CHUNK: Final = re.compile(r"(\d+)\.avro")
_INITIAL_YEAR: Final = "1601/"
"""Holds the segment that the service makes at the beginning, which is always empty."""
_FINAL: Final = "Finalized"
_DAY: Final = timedelta(days=1)
_FEW_DAYS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A blob of the feed, as a listing has it."""

    path: str
    size: int
    """Bytes."""
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a segment says of itself."""

    segment: str
    etag: str
    is_final: bool
    """Nothing will be added. A quiet account's last segment is not final until the next activity, which may be days away."""
    shards: tuple[str, ...]
    """Folders of the log, `log/00/2026/11/30/2100/`. One may have no chunk yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A file of a shard's log."""

    name: str
    """Within its shard: `00000.avro`."""
    number: int
    size: int
    """Bytes, when it was listed; it may grow."""


def begin_of(segment: str) -> datetime:
    """When the segment begins, in UTC. Raises `ValueError` for what is no time."""
    return datetime.strptime(segment.replace("/", ""), "%Y%m%d%H%M" if len(segment) == len("2026/11/30/2100") else "%Y%m%d%H%M%S").replace(
        tzinfo=UTC
    )


def segment_of(path: str) -> str | None:
    """The segment whose manifest this is; None for any other blob, and for the empty segment of 1601."""
    found = _MANIFEST.fullmatch(path)
    return found[1] if found and not found[1].startswith(_INITIAL_YEAR) else None


def manifest_path(segment: str) -> str:
    """Where a segment's manifest is."""
    return f"{INDEX}{segment}/meta.json"


def index_prefixes(first: str | None, last: datetime) -> list[str]:
    """What to list for the manifests from segment `first` (None: from the beginning) to the time `last`, and few beside them.

    Single days where there are few of them, else whole months: a poll must not list the history.
    """
    if first is None:
        return [INDEX]
    begin, end = begin_of(first).date(), last.date()
    if end <= begin + _FEW_DAYS * _DAY:
        days = [begin + count * _DAY for count in range((end - begin).days + 1)]
        return [f"{INDEX}{day:%Y/%m/%d}/" for day in days or [begin]]
    return [f"{INDEX}{month}/" for month in _months(begin, end)]


def months_back(last: datetime) -> list[str]:
    """What to list for the newest segment: this month, the one before, and then everything."""
    month = last.date().replace(day=1)
    return [f"{INDEX}{month:%Y/%m}/", f"{INDEX}{month - _DAY:%Y/%m}/", INDEX]


def _months(begin: date, end: date) -> Iterator[str]:
    year, month = begin.year, begin.month
    while (year, month) <= (end.year, end.month):
        yield f"{year:04}/{month:02}"
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)  # noqa: PLR2004 - months of a year


def parse_last_consumable(content: bytes) -> datetime:
    """The time from `meta/segments.json` up to which segments may be read; seconds come with and without a fraction.

    Raises `TransientError` for what is not such a document: it is written again every hour.
    """
    document = _parse(content, SEGMENTS_PATH)
    try:
        moment = datetime.fromisoformat(document["lastConsumable"])
    except (KeyError, TypeError, ValueError) as error:
        raise TransientError(f"{SEGMENTS_PATH} of the change feed tells no time `lastConsumable`; it is read again later") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_manifest(content: bytes, segment: str, etag: str) -> Manifest:
    """A segment's manifest. Raises `TransientError` for what is not such a document."""
    document = _parse(content, manifest_path(segment))
    folders = document.get("chunkFilePaths") or ()
    if not isinstance(folders, list | tuple) or not all(isinstance(folder, str) for folder in folders):
        raise TransientError(f"{manifest_path(segment)} of the change feed lists no folders as `chunkFilePaths`; it is read again later")
    return Manifest(
        segment=segment,
        etag=etag,
        is_final=document.get("status") == _FINAL,
        shards=tuple(dict.fromkeys(_shard_folder(folder) for folder in folders)),
    )


def chunks_of(entries: list[Entry], shard: str) -> tuple[Chunk, ...]:
    """The chunks directly in a shard's folder, by their number. Numbers are padded with zeros, to no width that one could rely on."""
    chunks = [
        Chunk(name=found[0], number=int(found[1]), size=entry.size)
        for entry in entries
        if entry.path.startswith(shard) and (found := _CHUNK.fullmatch(entry.path, len(shard)))
    ]
    return tuple(sorted(chunks, key=lambda chunk: chunk.number))


def chunk_number(name: str) -> int:
    """By which chunks are ordered. Raises `ValueError` for what is no chunk's name."""
    found = _CHUNK.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of a chunk")
    return int(found[1])


def _shard_folder(path: str) -> str:
    """Without the container's name, which stands before it (and is `$blobchangefeed` wherever the feed was copied to)."""
    folder = path if path.startswith("log/") else path.partition("/")[2]
    return folder if folder.endswith("/") else f"{folder}/"


def _parse(content: bytes, path: str) -> dict[str, Any]:
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise TransientError(f"{path} of the change feed is not JSON ({len(content)} bytes); it is read again later") from error
    if not isinstance(document, dict):
        raise TransientError(f"{path} of the change feed is not a JSON object; it is read again later")
    return document
