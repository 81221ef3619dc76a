"""Changes of blobs in; a change feed laid out as the service does it, in an Azurite container or in memory, out."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContainerClient

from ragstore_azure.changefeed.layout import Entry
from tests.support.feed_schema import Schema, encode, file_header, schema_of, varint

SYNC = bytes.fromhex("0d070f0c04040c00010901070b0f0e09")
"""The service uses the same in every file."""
START = datetime(2026, 11, 30, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Sink(Protocol):
    """Where a feed is written."""

    def put(self, path: str, content: bytes) -> None: ...

    def append(self, path: str, content: bytes) -> None:
        """To the end of what is there; what is not there begins empty."""
        ...

    def delete(self, path: str) -> None: ...


class ContainerSink:
    """A container in Azurite, made where it does not exist."""

    def __init__(self, client: ContainerClient) -> None:
        self._client = client
        if not client.exists():
            client.create_container()

    def put(self, path: str, content: bytes) -> None:
        self._client.upload_blob(path, content, overwrite=True)

    def append(self, path: str, content: bytes) -> None:
        blob = self._client.get_blob_client(path)
        try:
            blob.get_blob_properties()
        except ResourceNotFoundError:
            blob.create_append_blob()
        for begin in range(0, len(content), 2**19):
            blob.append_block(content[begin : begin + 2**19])

    def delete(self, path: str) -> None:
        self._client.delete_blob(path)


class MemorySink:
    """A feed in memory, which is its own `FeedStorage`; counts what it is asked."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []

    def put(self, path: str, content: bytes) -> None:
        self.blobs[path] = content

    def append(self, path: str, content: bytes) -> None:
        self.blobs[path] = self.blobs.get(path, b"") + content

    def delete(self, path: str) -> None:
        del self.blobs[path]

    async def document(self, path: str) -> bytes | None:
        self.asked.append(path)
        return self.blobs.get(path)

    async def part(self, path: str, begin: int, end: int) -> bytes | None:
        self.asked.append(path)
        return self.blobs[path][begin:end] if path in self.blobs else None

    async def entries(self, prefix: str) -> list[Entry]:
        self.asked.append(prefix)
        return [
            Entry(path=path, size=len(content), etag=hashlib.sha256(content).hexdigest())
            for path, content in sorted(self.blobs.items())
            if path.startswith(prefix)
        ]


def record(
    path: str,
    *,
    number: int = 0,
    type: str = "BlobCreated",
    api: str = "PutBlob",
    container: str = "docs",
    moment: datetime | None = None,
    subject: str | bytes | None = None,
    **data: object,
) -> dict[str, Any]:
    """A record of the feed; `number` makes its sequencer, etag, id and time."""
    time = moment or START + timedelta(seconds=number)
    return {
        "schemaVersion": 5,
        "topic": "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/acct",
        "subject": f"/blobServices/default/containers/{container}/blobs/{path}" if subject is None else subject,
        "eventType": type,
        "eventTime": time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "7Z",
        "id": f"00000000-0000-0000-0000-{number:012x}",
        "data": {
            "api": api,
            "clientRequestId": "any text, not a GUID",
            "requestId": f"00000000-0000-0000-0000-{number:012x}",
            "etag": f"0x8D{number:013X}",
            "contentType": "text/plain",
            "contentLength": 17,
            "blobType": "BlockBlob",
            "sequencer": f"{0:016X}{683:016X}{number:016x}",
            "storageDiagnostics": {"bid": "a", "sid": "b", "seq": f"(683,{number},{number},0)"},
            **data,
        },
    }


@dataclass(slots=True, kw_only=True)
class FeedWriter:
    """Writes a feed. Segments are named by their begin; chunks of a shard by their number."""

    sink: Sink
    version: int = 5
    codec: str = "null"
    schema: Schema = field(default_factory=lambda: schema_of(5))
    _shards: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, sink: Sink, *, version: int = 5, codec: str = "null", schema: Schema | None = None) -> FeedWriter:
        """A feed with its first, empty segment, as it is minutes after it was enabled; nothing can be consumed yet."""
        writer = cls(sink=sink, version=version, codec=codec, schema=schema or schema_of(version))
        writer._manifest("1601/01/01/0000", [], "Finalized", 60)
        return writer

    def consumable(self, moment: datetime, *, fraction: str = "") -> None:
        """Segments that begin at this time or before may be read."""
        last = f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
        self._json("meta/segments.json", {"version": 0, "lastConsumable": last, "storageDiagnostics": {"version": 0}})

    def segment(self, begin: datetime, *, shards: int = 2, minutes: int = 60, final: bool = False) -> None:
        """Begin a segment, or say anew what it is."""
        self._shards[begin] = (shards, minutes)
        name = f"{begin:%Y/%m/%d/%H%M}"
        folders = [f"$blobchangefeed/log/{shard:02d}/{name}/" for shard in range(shards)]
        self._manifest(name, folders, "Finalized" if final else "Publishing", minutes)

    def finalize(self, begin: datetime) -> None:
        """Nothing will be added to the segment."""
        shards, minutes = self._shards[begin]
        self.segment(begin, shards=shards, minutes=minutes, final=True)

    def append(
        self, begin: datetime, records: Sequence[Mapping[str, Any]], *, shard: int = 0, chunk: int = 0, per_block: int = 100
    ) -> None:
        """Records at the end of a chunk, some to a block."""
        blocks = b"".join(self.block(records[at : at + per_block]) for at in range(0, len(records), per_block))
        self.raw(begin, blocks, shard=shard, chunk=chunk)

    def raw(self, begin: datetime, content: bytes, *, shard: int = 0, chunk: int = 0, header: bool = True) -> None:
        """Bytes at the end of a chunk, which begins with the header of its file unless it is left out."""
        path = self.chunk_path(begin, shard=shard, chunk=chunk)
        if header and path not in self._begun:
            self.sink.append(path, self.header())
        self._begun.add(path)
        self.sink.append(path, content)

    def header(self) -> bytes:
        """The begin of each file."""
        return file_header(self.schema, self.codec, SYNC)

    def block(self, records: Sequence[Mapping[str, Any]]) -> bytes:
        """A block of a file."""
        body = b"".join(encode(self.schema, one) for one in records)
        if self.codec == "deflate":
            deflater = zlib.compressobj(wbits=-15)
            body = deflater.compress(body) + deflater.flush()
        return varint(len(records), padded=True) + varint(len(body), padded=True) + body + SYNC

    def chunk_path(self, begin: datetime, *, shard: int = 0, chunk: int = 0) -> str:
        """Where a chunk is."""
        return f"log/{shard:02d}/{begin:%Y/%m/%d/%H%M}/{chunk:05d}.avro"

    def expire(self, begin: datetime) -> None:
        """Remove a segment, as retention does."""
        name = f"{begin:%Y/%m/%d/%H%M}"
        for path in sorted(self._begun):
            if name in path:
                self.sink.delete(path)
                self._begun.discard(path)
        self.sink.delete(f"idx/segments/{name}/meta.json")

    def _manifest(self, name: str, folders: list[str], status: str, minutes: int) -> None:
        begin = datetime.strptime(name, "%Y/%m/%d/%H%M").replace(tzinfo=UTC)
        self._json(
            f"idx/segments/{name}/meta.json",
            {
                "version": 0,
                "begin": f"{begin:%Y-%m-%dT%H:%M:%S}.000Z",
                "intervalSecs": minutes * 60,
                "status": status,
                "config": {"version": 1, "numShards": len(folders), "recordsFormat": "avro", "formatSchemaVersion": self.version},
                "chunkFilePaths": folders,
                "storageDiagnostics": {"version": 0, "data": {"aid": "77cb7abe"}},
            },
        )

    def _json(self, path: str, document: Mapping[str, object]) -> None:
        self.sink.put(path, json.dumps(document).encode())
