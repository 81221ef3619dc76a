"""The parser pool: what a hostile file can do to its worker, and that it can do nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from ragstore.errors import PoisonError
from ragstore.models import Block, Document
from ragstore.parsing import ParsedStream, ParserPool, as_stream, is_trusted
from ragstore.parsing.blocks import LARGEST

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or relies on limits that only Linux keeps")

MEBIBYTE = 2**20
PAGE = b"<html><title>T</title><h1>Head</h1><p>words"


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ParserPool]:
    pool = ParserPool(workers=2)
    yield pool
    await pool.close()


def write(folder: Path, name: str, data: bytes) -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


def slow_file(folder: Path, mebibytes: float = 6) -> Path:
    """RTF that takes about two seconds of CPU time for each MB."""
    return write(folder, "slow.rtf", rb"{\rtf1 " + rb"\b a\b0 b " * int(mebibytes * MEBIBYTE / 10) + b"}")


async def text_of(pool: ParserPool, file: Path, declared: str | None = None) -> str:
    async with await pool.parse(file, name=file.name, declared=declared) as stream:
        return "".join([block.text async for block in stream.blocks])


async def kind_of(pool: ParserPool, file: Path) -> str:
    with pytest.raises(PoisonError) as caught:
        await text_of(pool, file)
    return caught.value.kind


def workers() -> list[psutil.Process]:
    """Parser processes that belong to this test process."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("ragstore.parsing.worker" in part for part in child.cmdline()):
                found.append(child)
    return found


async def busy_worker(pool: ParserPool, other_than: int = 0) -> int:
    """The pid of a worker that has a file in hand."""
    async with asyncio.timeout(30):
        while True:
            pids = [worker.pid for worker in pool._busy if worker.pid != other_than and not worker.idle]
            if pids:
                return pids[0]
            await asyncio.sleep(0.01)


async def test_small_plain_text_is_read_without_a_worker(pool: ParserPool, tmp_path: Path) -> None:
    for name in ("a.txt", "a.md", "a.csv", "a.json", "a.py"):
        assert "words" in await text_of(pool, write(tmp_path, name, b'"words"\n'))
    assert "words" in await text_of(pool, write(tmp_path, "b.txt", b"words " * 50_000))
    assert workers() == []


def test_only_small_files_of_cheap_kinds_are_trusted(tmp_path: Path) -> None:
    assert is_trusted(write(tmp_path, "a.md", b"# x"), name="a.md", declared=None)
    assert not is_trusted(write(tmp_path, "a.txt", b"%PDF-1.4"), name="a.txt", declared="text/plain")
    assert not is_trusted(write(tmp_path, "a.html", PAGE), name="a.html", declared=None)
    assert not is_trusted(write(tmp_path, "b.txt", b"x" * (MEBIBYTE + 1)), name="b.txt", declared=None)


async def test_one_worker_reads_file_after_file_and_is_replaced_when_worn(
    pool: ParserPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragstore.parsing.sandbox._RECYCLE_FILES", 3)
    file = write(tmp_path, "a.html", PAGE)
    pids = []
    for _ in range(4):
        assert await text_of(pool, file) == "# Head\n\nwords"
        pids += [worker.pid for worker in workers()]
    assert pids[0] == pids[1] != pids[-1]
    assert len(workers()) == 1


async def test_what_a_file_says_crosses_the_process_border(pool: ParserPool, tmp_path: Path) -> None:
    async with await pool.parse(write(tmp_path, "a.html", PAGE), name="a.html", declared=None) as stream:
        (block,) = [block async for block in stream.blocks]
    assert (stream.media_type, stream.title, stream.encoding) == ("text/html", "T", "utf-8")
    assert [(mark.start, mark.level, mark.text) for mark in block.headings] == [(0, 1, "Head")]


async def test_poison_crosses_the_process_border_and_leaves_the_worker_alive(pool: ParserPool, tmp_path: Path) -> None:
    assert await kind_of(pool, write(tmp_path, "a.html", b"<html><p>")) == "no_text"
    (before,) = workers()
    assert await kind_of(pool, write(tmp_path, "a.pdf", b"%PDF-1.4")) == "corrupt"
    (after,) = workers()
    assert before.pid == after.pid


async def test_hostile_names_reach_the_worker(pool: ParserPool, tmp_path: Path) -> None:
    file = write(tmp_path, "spooled", PAGE)
    for name in ("../../etc/passwd", "a\x00b.html", "\ud800.html", "a\nb"):
        async with await pool.parse(file, name=name, declared="text/html\r\nX: y") as stream:
            assert stream.media_type == "text/html"


async def test_a_file_that_takes_too_long_is_a_timeout_and_others_go_on(tmp_path: Path) -> None:
    pool = ParserPool(workers=2, seconds=1)
    slow = asyncio.create_task(kind_of(pool, slow_file(tmp_path)))
    page = write(tmp_path, "a.html", PAGE)
    assert [await text_of(pool, page) for _ in range(3)] == ["# Head\n\nwords"] * 3
    assert await slow == "timeout"
    assert await text_of(pool, page) == "# Head\n\nwords"
    await pool.close()


@linux
async def test_a_file_that_takes_too_much_memory_is_too_large(tmp_path: Path) -> None:
    pool = ParserPool(workers=1, memory=300 * MEBIBYTE)
    file = write(tmp_path, "a.json", b"[" + b"[1]," * (3 * MEBIBYTE) + b"1]")
    assert await kind_of(pool, file) == "too_large"
    assert await text_of(pool, write(tmp_path, "a.html", PAGE)) == "# Head\n\nwords"
    await pool.close()


async def test_text_beyond_the_cap_is_too_large(tmp_path: Path) -> None:
    pool = ParserPool(workers=1, text=1000)
    assert await kind_of(pool, write(tmp_path, "a.html", b"<html><p>" + b"word " * 1000)) == "too_large"
    await pool.close()


@linux
@pytest.mark.parametrize(
    ("sent", "kind"),
    [(signal.SIGSEGV, "crashed"), (signal.SIGKILL, "too_large"), (signal.SIGABRT, "too_large"), (signal.SIGXCPU, "timeout")],
)
async def test_a_file_whose_worker_dies_twice_is_poison(pool: ParserPool, tmp_path: Path, sent: signal.Signals, kind: str) -> None:
    parsing = asyncio.create_task(kind_of(pool, slow_file(tmp_path)))
    first = await busy_worker(pool)
    os.kill(first, sent)
    if sent != signal.SIGXCPU:
        os.kill(await busy_worker(pool, other_than=first), sent)
    assert await parsing == kind


@linux
async def test_a_file_whose_worker_dies_once_is_read_at_the_second_attempt(pool: ParserPool, tmp_path: Path) -> None:
    parsing = asyncio.create_task(text_of(pool, slow_file(tmp_path, 0.5)))
    os.kill(await busy_worker(pool), signal.SIGSEGV)
    assert (await parsing).startswith("ab ab")


async def test_a_cancelled_file_frees_its_place_and_ends_its_worker(tmp_path: Path) -> None:
    pool = ParserPool(workers=1)
    parsing = asyncio.create_task(text_of(pool, slow_file(tmp_path)))
    await busy_worker(pool)
    parsing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await parsing
    assert workers() == []
    assert await text_of(pool, write(tmp_path, "a.html", PAGE)) == "# Head\n\nwords"
    await pool.close()


async def test_a_stream_that_is_closed_early_frees_its_place(tmp_path: Path) -> None:
    pool = ParserPool(workers=1)
    file = write(tmp_path, "a.txt", b"some words in a line\n" * (12 * MEBIBYTE // 21))
    stream = await pool.parse(file, name="a.txt", declared=None)
    first = await anext(stream.blocks)
    assert first.start == 0
    await stream.aclose()
    await stream.aclose()
    assert await text_of(pool, write(tmp_path, "a.html", PAGE)) == "# Head\n\nwords"
    await pool.close()


async def test_a_pool_that_is_closed_leaves_no_process(tmp_path: Path) -> None:
    pool = ParserPool(workers=2)
    parsing = asyncio.create_task(kind_of(pool, slow_file(tmp_path)))
    await text_of(pool, write(tmp_path, "a.html", PAGE))
    await busy_worker(pool)
    await pool.close()
    with contextlib.suppress(RuntimeError):
        await parsing
    assert workers() == []


async def test_a_file_that_is_gone_is_no_poison(pool: ParserPool, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await pool.parse(tmp_path / "gone.html", name="gone.html", declared=None)


@linux
async def test_a_worker_sees_neither_credentials_nor_proxies(pool: ParserPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_CLIENT_SECRET", "HTTPS_PROXY", "http_proxy", "OPENAI_API_KEY", "PYTHONPATH"):
        monkeypatch.setenv(name, "not-for-parsers")
    await text_of(pool, write(tmp_path, "a.html", PAGE))
    (worker,) = workers()
    assert "not-for-parsers" not in worker.environ().values()


PARENT = """
import asyncio, os, pathlib, signal, sys
from ragstore.parsing import ParserPool
async def main():
    pool = ParserPool(workers=1)
    stream = await pool.parse(pathlib.Path(sys.argv[1]), name="a.html", declared=None)
    print(next(iter(pool._idle)).pid, flush=True)
    asyncio.ensure_future(pool.parse(pathlib.Path(sys.argv[2]), name="slow.rtf", declared=None))
    while not pool._busy:
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@linux
@pytest.mark.parametrize("as_script", [False, True])
def test_a_worker_dies_with_its_parent_which_may_be_any_script(tmp_path: Path, *, as_script: bool) -> None:
    """The script has no `__main__` guard, and modules beside it are not imported in place of the standard library's."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')")
    program = [str(write(tmp_path, "parent.py", PARENT.encode()))] if as_script else ["-c", PARENT]
    page, slow = write(tmp_path, "a.html", PAGE), slow_file(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", *program, page, slow], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(timeout=20)


async def consume(file: Path, name: str) -> tuple[int, int, int]:
    """Characters of a large file, read through a worker; the peak of the worker's memory, and by how much ours grew, in bytes."""
    pool = ParserPool(workers=1)
    total = peak = growth = 0
    ours = psutil.Process()
    before = ours.memory_info().rss
    async with await pool.parse(file, name=name, declared=None) as stream:
        async for block in stream.blocks:
            assert block.start == total
            assert len(block.text) <= LARGEST
            total += len(block.text)
            for worker in workers():
                with contextlib.suppress(psutil.Error):
                    peak = max(peak, worker.memory_info().rss)
            growth = max(growth, ours.memory_info().rss - before)
    await pool.close()
    return total, peak, growth


def large_file(folder: Path, name: str, mebibytes: int) -> tuple[Path, int]:
    """Lines that differ, in the shape that the extension asks for; and the number of bytes."""
    line = {"txt": "{0} some words of line {1}\n", "csv": "{0},name {1},city {1}\n", "jsonl": '{{"id": {0}, "text": "words of {1}"}}\n'}
    shape = line[name.rpartition(".")[2]]
    chunk = "".join(shape.format(number, number * 7919 % 1000) for number in range(30_000)).encode()
    file = folder / name
    with file.open("wb") as stream:
        for _ in range(mebibytes * MEBIBYTE // len(chunk) + 1):
            stream.write(chunk)
    return file, file.stat().st_size


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
async def test_a_large_text_is_read_in_pieces(tmp_path: Path, name: str) -> None:
    file, size = large_file(tmp_path, name, 8)
    total, peak, growth = await consume(file, name)
    assert total > size * 0.7
    assert peak < 120 * MEBIBYTE
    assert growth < 60 * MEBIBYTE


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
async def test_a_text_of_256_megabytes_takes_less_than_500_megabytes_of_memory(tmp_path: Path, name: str) -> None:
    file, size = large_file(tmp_path, name, 256)
    total, peak, growth = await consume(file, name)
    assert total > size * 0.7
    assert peak < 150 * MEBIBYTE
    assert growth < 100 * MEBIBYTE


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_document_becomes_a_stream_whether_its_blocks_are_ready_or_not(*, lazy: bool) -> None:
    blocks = (Block(text="a", start=0), Block(text="b", start=1))
    document = Document(media_type="text/plain", blocks=iter(blocks) if lazy else blocks)
    async with as_stream(document) as stream:
        assert isinstance(stream, ParsedStream)
        assert tuple([block async for block in stream.blocks]) == blocks
