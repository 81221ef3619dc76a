"""A blob that is about to be erased in; samples of what it left, and the files in which they still are, out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

from ragstore.contracts import Store
from ragstore.ledger import Ledger
from ragstore.models import Row, text_hash

T = TypeVar("T")

_SAMPLES: Final = 8
"""Of each kind; for every one all files are searched."""
_ROWS: Final = 200
"""Among which texts are chosen: a blob may have more rows than memory holds."""
_SHORTEST: Final = 24
"""Bytes of a text; a shorter one may stand anywhere by chance."""
_BLOCK: Final = 2**23
_COPY: Final = """
import shutil, sys
try:
    file = open(sys.argv[1], "rb")
except FileNotFoundError:
    sys.exit(0)
shutil.copyfileobj(file, sys.stdout.buffer, 2**20)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Bytes that nothing but one blob has, each with what it is."""

    texts: dict[bytes, str] = field(default_factory=dict)
    """Of chunks, whole, that no other blob has. A chunk of another one may still have such a text within its own."""
    digests: dict[bytes, str] = field(default_factory=dict)
    """These are nowhere by chance."""

    @property
    def all(self) -> dict[bytes, str]:
        """Of both kinds."""
        return {**self.digests, **self.texts}


async def collect(ledger: Ledger, stores: Iterable[Store], document_id: str) -> Traces:
    """Samples from ledger and stores, to be taken before anything is erased."""
    chunks = await asyncio.to_thread(ledger.documents.chunks, document_id)
    rows = [row for store in stores for row in await _some_rows(store, document_id)]
    texts = {text_hash(row.text): row.text.encode("utf-8", "surrogatepass") for row in rows}
    hashes = list(dict.fromkeys([*texts, *(record.text_hash for record in chunks)]))
    shared = await asyncio.to_thread(ledger.erasures.shared, document_id, hashes)
    own = [text for key, text in texts.items() if key not in shared and len(text) >= _SHORTEST]
    chunk_ids = dict.fromkeys([*(row.chunk_id for row in rows), *(record.chunk_id for record in chunks)])
    digests = {document_id.encode(): "its document id"}
    digests |= {chunk_id.encode(): "a chunk id of it" for chunk_id in _spread(list(chunk_ids))}
    digests |= {key.encode(): "the hash of a text of it" for key in _spread([key for key in hashes if key not in shared])}
    return Traces(texts=dict.fromkeys(_spread(own), "a text of it"), digests=digests)


async def traced(files: Sequence[Path], databases: Sequence[Path], traces: Traces, stores: Sequence[Store]) -> dict[Path, str]:
    """The files that hold any of these, each with what it holds first. `databases` are those that SQLite has open in this process."""
    samples = traces.all
    found = await asyncio.to_thread(_search, files, databases, list(samples))
    if theirs := {text for text in found.values() if text in traces.texts}:
        theirs = await _within_others(theirs, stores)
        found = await asyncio.to_thread(_search, files, databases, [sample for sample in samples if sample not in theirs])
    return {file: samples[sample] for file, sample in found.items()}


async def _some_rows(store: Store, document_id: str) -> list[Row]:
    rows: list[Row] = []
    async with aclosing(cast("Any", store.rows([document_id]))) as stored:
        async for row in stored:
            rows.append(row)
            if len(rows) >= _ROWS:
                break
    return rows


async def _within_others(texts: set[bytes], stores: Sequence[Store]) -> set[bytes]:
    """Those of the texts that stand within a row that is stored, and so belong to another blob as well."""
    found: set[bytes] = set()
    for store in stores:
        documents = {key.document_id async for key in store.keys()}  # noqa: SIM118 - no dictionary
        async for row in store.rows(sorted(documents)):
            stored = row.text.encode("utf-8", "surrogatepass")
            found |= {text for text in texts if text in stored}
    return found


def _spread(items: Sequence[T]) -> list[T]:
    """Some of them, from the beginning to the end."""
    return list(items[:: max(1, -(-len(items) // _SAMPLES))])


def _search(files: Iterable[Path], databases: Iterable[Path], samples: Sequence[bytes]) -> dict[Path, bytes]:
    """By file, one sample that is in it; a file that went meanwhile holds nothing."""
    found: dict[Path, bytes] = {}
    for file, reading in [*((file, _opened) for file in files), *((file, _opened_apart) for file in databases)]:
        try:
            with reading(file) as opened:
                sample = _first(opened, samples)
        except FileNotFoundError:
            continue
        if sample is not None:
            found[file] = sample
    return found


def _first(opened: IO[bytes], samples: Sequence[bytes]) -> bytes | None:
    overlap = max(map(len, samples)) - 1
    tail, sample = b"", None
    while block := opened.read(_BLOCK):
        seen = tail + block
        sample = sample or next((each for each in samples if each in seen), None)  # and on, for whoever writes must come to an end
        tail = seen[max(0, len(seen) - overlap) :]
    return sample


def _opened(file: Path) -> AbstractContextManager[IO[bytes]]:
    return file.open("rb")


@contextmanager
def _opened_apart(file: Path) -> Iterator[IO[bytes]]:
    """The content of a file that only another process opens.

    A process that closes a database file by itself loses the locks that SQLite holds on it: another one then takes itself for the last that
    uses it, and throws away the log to which this one goes on to write (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    command = [sys.executable, "-I", "-S", "-c", _COPY, str(file)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:  # noqa: S603 - this Python
        if process.stdout is None:
            raise OSError("a process was started without its output")
        yield process.stdout
    if process.returncode:
        raise OSError(f"{str(file)!r} cannot be read, so nobody can tell what is in it")
