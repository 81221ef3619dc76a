"""LanceDB and other processes: a writer that is killed anywhere, a reader beside a writer, two writers at once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragstore.contracts import DropRows, PutRows, Retag, VectorQuery, Write
from ragstore.filters import ALWAYS
from ragstore.testing.rows import access, chunks, document_id, listed, row, vector
from ragstore_lancedb import LanceDBStore

CHUNKS = 8

# Generation N of each document has its own text; generation N + 1 drops the first half of the chunks of N and moves the document.
WRITER = textwrap.dedent(
    """
    import asyncio, importlib.util, sys
    from pathlib import Path

    spec = importlib.util.spec_from_file_location("crash", sys.argv[1])
    crash = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(crash)

    async def main():
        store = crash.opened(Path(sys.argv[2]))
        for generation in range(int(sys.argv[4]), int(sys.argv[5])):
            await store.apply(crash.writes_of(sys.argv[3], generation))
            print(generation, flush=True)

    asyncio.run(main())
    """
)


def opened(base: Path) -> LanceDBStore:
    return LanceDBStore(base=base, collection="chunks", dimensions=8)


def writes_of(prefix: str, generation: int) -> list[Write]:
    """One apply: four documents get their next generation, and lose the chunks that it does not have."""
    writes: list[Write] = []
    for name in (f"{prefix}{number}" for number in range(4)):
        writes.append(Retag(document_id=document_id(name), access=access(f"{name}/{generation}")))
        shown = numbers_of(generation)
        columns = access(f"{name}/{generation}")
        writes.append(PutRows(rows=[row(name, n, text=f"{name} {generation}", generation=generation, columns=columns) for n in shown]))
        stale = [number for number in numbers_of(generation - 1) if number not in shown]
        writes.append(DropRows(document_id=document_id(name), generation=generation, chunk_ids=chunks(name, stale)))
    return writes


def numbers_of(generation: int) -> range:
    """The chunk numbers of a generation; they differ from those of the one before."""
    return range(generation, generation + CHUNKS)


@contextmanager
def writer(base: Path, prefix: str, start: int, stop: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, __file__, str(base), prefix, str(start), str(stop)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"RUST_LOG": "off"})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def acknowledged(process: subprocess.Popen[str]) -> int | None:
    """The generation that the writer says is applied; None when it has ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    return int(line) if line else None


async def check_converged(base: Path, prefix: str, generation: int) -> None:
    store = opened(base)
    found = {key.chunk_id: (key.generation, key.access.path) for key in await listed(store.keys())}
    assert found == {
        chunk_id: (generation, f"{prefix}{number}/{generation}")
        for number in range(4)
        for chunk_id in chunks(f"{prefix}{number}", list(numbers_of(generation)))
    }
    await store.close()


def test_repeating_an_apply_that_was_killed_converges(tmp_path: Path) -> None:
    pause = random.Random(5)
    done = 0
    for _ in range(3):
        with writer(tmp_path, "d", done + 1, 10_000) as process:
            assert acknowledged(process) == done + 1
            done += 1
            time.sleep(pause.uniform(0, 0.08))  # anywhere inside one of the next applies: the moment is the point of the test
            process.send_signal(signal.SIGKILL)
            while (generation := acknowledged(process)) is not None:
                done = generation

        async def repeat(done: int = done) -> None:
            store = opened(tmp_path)
            keys = await listed(store.keys())
            assert len({key.chunk_id for key in keys}) == len(keys)
            assert {key.generation for key in keys} <= {done, done + 1}
            await store.apply(writes_of("d", done + 1))
            await store.close()
            await check_converged(tmp_path, "d", done + 1)

        asyncio.run(repeat())
        done += 1


def test_a_reader_beside_a_writer_never_sees_part_of_a_commit(tmp_path: Path) -> None:
    async def read(process: subprocess.Popen[str]) -> set[int]:
        store = opened(tmp_path)
        seen: set[int] = set()
        while process.poll() is None:
            keys = await listed(store.keys())
            by_document: dict[str, list[int]] = {}
            for key in keys:
                by_document.setdefault(key.document_id, []).append(key.generation)
            for generations in by_document.values():
                newest = max(generations)
                # All rows of the newest generation, and at most what is left of the one before until the delete.
                assert generations.count(newest) == CHUNKS
                assert len(generations) <= CHUNKS + 1
                seen.add(newest)
            result = await store.search(VectorQuery(vector=vector(1)), filter=ALWAYS, limit=1_000)
            assert len({match.chunk_id for match in result}) == len(result)
        await store.close()
        return seen

    with writer(tmp_path, "d", 1, 25) as process:
        seen = asyncio.run(read(process))
    assert len(seen) > 3
    asyncio.run(check_converged(tmp_path, "d", 24))


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    with writer(tmp_path, "a", 1, 9) as one, writer(tmp_path, "b", 1, 9) as other:
        for process in (one, other):
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors

    async def check() -> None:
        store = opened(tmp_path)
        keys = await listed(store.keys())
        assert len({key.chunk_id for key in keys}) == len(keys) == 2 * 4 * CHUNKS
        assert {key.generation for key in keys} == {8}
        await store.close()

    asyncio.run(check())
