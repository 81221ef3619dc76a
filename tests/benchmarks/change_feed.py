"""A change feed on Azurite in; how fast our reader and the vendor's read it, side by side in one run, out.

    python tests/benchmarks/change_feed.py change-feed [--quick] [--output FILE]

Every pass runs in a process of its own. The vendor's reader takes minutes for what ours does in seconds, so it is given the first hours of
the same feed, with chunks of the same size, and compared by event. Without azure-storage-blob-changefeed (the extra `benchmark`) ours is
measured alone. The sparse feed is read through a proxy that delays each request.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from azure.storage.blob import ContainerClient

from ragstore_azure import AzureBlobSource, ChangeFeed
from ragstore_azure.changefeed.avro import ChunkReader
from tests.benchmarks.figures import Figure, finish, options
from tests.support.azurite import Azurite, Emulator
from tests.support.feed_writer import ContainerSink, FeedWriter, MemorySink, record

_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_SHARDS = 4
_VENDOR = "azure.storage.blob.changefeed"
_CONTAINER = "$blobchangefeed"
_VENDOR_HOURS = 2
_LATENCY = 0.02
_ROUNDS = 3
_FLAT = 1.2


def write_feed(azurite: Azurite, container: str, *, events: int, hours: int) -> None:
    """A feed of so many events of the container `docs`, of 700 bytes each, in final segments."""
    writer = FeedWriter.of(ContainerSink(ContainerClient.from_connection_string(azurite.connection_string, container)))
    number = 0
    for hour in range(hours):
        begin = _BEGIN + hour * timedelta(hours=1)
        writer.segment(begin, shards=_SHARDS, final=True)
        for shard in range(_SHARDS):
            count = events * (hour * _SHARDS + shard + 1) // (hours * _SHARDS) - number
            writer.append(begin, [_record(number + one, begin) for one in range(count)], shard=shard)
            number += count
    writer.consumable(begin)


def _record(number: int, begin: datetime) -> dict[str, Any]:
    """As long as those seen in the service."""
    blob = number % 5000
    path = f"folder{blob % 97:02d}/below{blob % 13}/file-{blob:07d}.bin"
    guid = f"00000000-1111-2222-3333-{number:012x}"
    return record(
        path,
        number=number,
        moment=begin + timedelta(milliseconds=number % 3_600_000),
        clientRequestId=guid,
        contentType="application/octet-stream",
        url=f"https://devstoreaccount1.blob.core.windows.net/docs/{path}",
        containerVersion="01D8FA117B7976B7",
        blobTier="Hot",
        previousInfo={"WasBlobSoftDeleted": "false", "PreviousTier": "Hot"} if number % 2 else None,
        storageDiagnostics={"bid": guid, "sid": guid, "seq": f"(683,{number},{number},{number})"},
    )


# -- the readers, each in a process of its own


async def _ours(container: str) -> int:
    given = {"url": "docs", "connection_string_env": "BENCHMARK_CONNECTION"}
    source = AzureBlobSource(url="docs", connection_string_env="BENCHMARK_CONNECTION")
    feed = ChangeFeed(base=Path(), source=source, source_options=given, container=container)
    count = 0
    async for batch in feed.read(None):
        count += len(batch.events)
    await feed.close()
    await source.close()
    return count


def _vendor(hours: str) -> int:
    client = importlib.import_module(_VENDOR).ChangeFeedClient.from_connection_string(os.environ["BENCHMARK_CONNECTION"])
    end = _BEGIN + timedelta(hours=int(hours) - 1) if hours else None
    return sum(1 for _event in client.list_changes(end_time=end))


def _pass(reader: str, argument: str) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    count = asyncio.run(_ours(argument)) if reader == "ours" else _vendor(argument)
    told = {"events": count, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({**told, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def _run(azurite: Azurite, reader: str, argument: str) -> Mapping[str, float]:
    environment = {**os.environ, "BENCHMARK_CONNECTION": azurite.connection_string}
    done = subprocess.run([sys.executable, __file__, reader, argument], capture_output=True, text=True, env=environment, check=True)
    told: Mapping[str, float] = json.loads(done.stdout)
    return told


# -- latency


async def _delay(upstream: int) -> None:
    """Forward connections to a port of this machine; what a client sends arrives later."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
        while data := await reader.read(2**18):
            await asyncio.sleep(seconds)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", upstream)
        await asyncio.gather(pump(reader, back, _LATENCY), pump(there, writer, 0), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def _delayed(azurite: Azurite) -> Iterator[Azurite]:
    command = [sys.executable, __file__, "delay", str(azurite.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield Azurite(port=int(proxy.stdout.readline()))
        finally:
            proxy.terminate()


# -- figures


def measure(*, quick: bool) -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder, closing(Emulator("blob", Path(folder))) as blobs:
        azurite = Azurite(port=blobs.port)
        yield from _dense(azurite, events=50_000 if quick else 200_000, hours=6 if quick else 24)
    with tempfile.TemporaryDirectory(prefix="ragstore-benchmark-") as folder, closing(Emulator("blob", Path(folder))) as blobs:
        azurite = Azurite(port=blobs.port)
        yield from _sparse(azurite, hours=48 if quick else 168)
    yield from _decoders()


def _has_vendor() -> bool:
    try:
        importlib.import_module(_VENDOR)
    except ModuleNotFoundError:
        return False
    return True


def _dense(azurite: Azurite, *, events: int, hours: int) -> Iterator[Figure]:
    write_feed(azurite, _CONTAINER, events=events, hours=hours)
    write_feed(azurite, "quarter", events=events // 4, hours=hours // 4)
    ours, theirs = [], []
    for _round in range(_ROUNDS):
        ours.append(_run(azurite, "ours", _CONTAINER))
        if _has_vendor():
            theirs.append(_run(azurite, "vendor", str(_VENDOR_HOURS)))
    assert all(told["events"] == events for told in ours)
    note = "" if theirs else "NOT COMPARED: pip install 'ragstore[benchmark]' first"
    for unit, target in (("cpu", 50.0), ("wall", 25.0)):
        own = statistics.median(told["events"] / told[unit] for told in ours)
        name = "CPU" if unit == "cpu" else "wall"
        yield Figure(
            name=f"events per {name} second",
            value=own,
            unit="events/s",
            wall=statistics.median(told["wall"] for told in ours),
            cpu=statistics.median(told["cpu"] for told in ours),
            note=note,
        )
        if theirs:
            vendor = statistics.median(told["events"] / told[unit] for told in theirs)
            note_ = f"the vendor's reader: {vendor:.0f} events/s"
            yield Figure(name=f"faster by {name} time", value=own / vendor, unit="times", target=target, at_least=True, note=note_)
    quarter = _run(azurite, "ours", "quarter")["megabytes"]
    most = max(told["megabytes"] for told in ours)
    note = f"{most:.0f} MB, and {quarter:.0f} MB for a quarter of the feed"
    yield Figure(name="memory, by a feed four times as long", value=most / quarter, unit="times", target=_FLAT, note=note)


def _sparse(azurite: Azurite, *, hours: int) -> Iterator[Figure]:
    write_feed(azurite, _CONTAINER, events=20 * hours, hours=hours)
    with _delayed(azurite) as slow:
        ours = min(_run(slow, "ours", _CONTAINER)["wall"] for _round in range(2))
        theirs = _run(slow, "vendor", "")["wall"] if _has_vendor() else None
    name = f"sparse feed, {hours} h, 20 ms a request"
    yield Figure(name=name, value=ours, unit="s", wall=ours)
    if theirs is not None:
        note = f"the vendor's reader: {theirs:.1f} s"
        yield Figure(name="faster on the sparse feed", value=theirs / ours, unit="times", target=15.0, at_least=True, note=note)


def _decoders() -> Iterator[Figure]:
    """What the decoder was chosen by: CPU time per record in memory."""
    writer = FeedWriter.of(MemorySink())
    records = [_record(number, _BEGIN) for number in range(10_000)]
    content = writer.header() + b"".join(writer.block(records[at : at + 100]) for at in range(0, len(records), 100))
    own = min(_decode(content) for _round in range(_ROUNDS))
    yield Figure(name="decoding, generated for the schema", value=own, unit="CPU-us", note="per record, nine fields of it")
    try:
        fastavro = importlib.import_module("fastavro")
    except ModuleNotFoundError:
        return
    begin = time.process_time()
    count = sum(1 for _record in fastavro.reader(io.BytesIO(content)))
    yield Figure(name="decoding, fastavro", value=(time.process_time() - begin) / count * 1e6, unit="CPU-us", note="all fields")


def _decode(content: bytes) -> float:
    begin = time.process_time()
    reader = ChunkReader(offset=0, index=0)
    reader.add(0, content)
    count = 0
    while rows := reader.rows(2000):
        count += len(rows)
    return (time.process_time() - begin) / count * 1e6


def main() -> int:
    """Measure; or be one of the processes that are measured."""
    match sys.argv[1:]:
        case ["ours" | "vendor" as reader, argument]:
            _pass(reader, argument)
        case ["delay", port]:
            asyncio.run(_delay(int(port)))
        case _:
            chosen = options(__doc__, ["change-feed"])
            return finish(list(measure(quick=chosen.quick)), chosen.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
