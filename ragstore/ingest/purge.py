"""The name of a blob in, nothing of it left in the index out, with the proof: every place is looked at again afterwards."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ragstore.contracts import DropDocument, Source, Store
from ragstore.conversations import Conversations
from ragstore.errors import ConfigError, GuardError, PoisonError, TransientError
from ragstore.ingest.traces import Traces, collect, traced
from ragstore.ledger import Ledger
from ragstore.models import BlobId

_ANY_GENERATION: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where anything of a blob may be, and who can tell whether the blob itself is still there."""

    ledger: Ledger
    stores: Sequence[Store]
    """The collection that serves and, where another embedder is configured, the one that would."""
    spool: Path
    """Above the spools of all processes of this machine."""
    sources: Sequence[Source]
    conversations: Conversations
    """Turns that were made of its chunks go with it."""


@dataclass(slots=True, kw_only=True)
class Erasure:
    """What went, and what was there when it was looked for again."""

    blob: BlobId
    in_source: bool | None
    """Whether the blob is still in its source, so that the next pass brings it back; None where that could not be asked."""
    removed: dict[str, int]
    """How many of each kind went. `cached_vectors` and `unused_texts` are those of any blob that no chunk has."""
    found: dict[str, int] = field(default_factory=dict)
    """How many of each kind are there afterwards: all 0, unless something is left."""
    files: int = 0
    """Searched, byte by byte."""
    samples: int = 0
    """Searched for: texts, text hashes and ids of the blob's chunks."""
    left: list[str] = field(default_factory=list)
    """What is still there, for people; empty where all is erased."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "blob": self.blob.name,
            "account": self.blob.account,
            **self.found,
            "removed": self.removed,
            "files_searched": self.files,
            "samples": self.samples,
            "in_source": self.in_source,
            "left": self.left,
        }


async def purge(places: Places, name: str, *, force: bool = False) -> Erasure:
    """Erase one blob, `container/path` or `account/container/path`. It may be repeated, and then finishes what a crash left.

    To be run by the only process that writes. Raises `ConfigError` for a name that means no blob of the index or several, `GuardError`
    where the blob is still in its source (unless `force`), `OutageError` and `TransientError` where a disk or a server fails.
    """
    ledger = places.ledger
    blob = await asyncio.to_thread(_resolve, places, name)
    in_source = await _guarded(places, blob, force=force)
    document_id = blob.document_id
    await asyncio.to_thread(ledger.erasures.begin, document_id)
    traces = await collect(ledger, places.stores, document_id)
    done = Erasure(blob=blob, in_source=in_source, removed=await _found(places, document_id))
    # Out of every answer first; then the store, while the ledger knows that it may hold rows of this blob; the ledger last.
    await asyncio.to_thread(ledger.documents.withdraw, [document_id], "deleted")
    files: list[Path] = []
    for store in places.stores:
        await store.apply([DropDocument(document_id=document_id, generation=_ANY_GENERATION)])
        expunged = await store.expunge()
        files += expunged.files
        done.left += [f"{older} is from before the erasure, and could not be removed" for older in expunged.older]
    done.removed |= await asyncio.to_thread(_erase, ledger, blob, before=done.removed)
    done.removed["turns"] = await asyncio.to_thread(places.conversations.erase, document_id)
    await asyncio.to_thread(_empty, places.spool)
    scrubbed = await asyncio.to_thread(ledger.erasures.scrub)
    if scrubbed.blocked:
        done.left.append(scrubbed.blocked)
    await _look_again(places, done, traces, files, [*scrubbed.files, *places.conversations.files])
    if not done.left:
        await asyncio.to_thread(ledger.erasures.end, document_id)
    return done


def _resolve(places: Places, name: str) -> BlobId:
    meant = places.ledger.erasures.named(name, {source.account for source in places.sources})
    if not meant:
        raise ConfigError(
            f"the index holds nothing of {name!r}; write the name as search and failures show it, CONTAINER/PATH, "
            "or as ACCOUNT/CONTAINER/PATH"
        )
    if len(meant) > 1:
        names = ", ".join(repr(f"{blob.account}/{blob.name}") for blob in meant)
        raise ConfigError(f"{name!r} means several blobs, and none was touched; name one of {names}")
    return meant[0]


async def _guarded(places: Places, blob: BlobId, *, force: bool) -> bool | None:
    """Whether the blob is still in its source. Raises `GuardError` where it is, or nobody can tell, and nobody said to go on."""
    there: bool | None = False
    why = "is still in its source, and the next pass would index it again"
    for source in places.sources:
        if (source.account, source.container) == (blob.account, blob.container):
            try:
                there = await source.state(blob.path) is not None
            except PoisonError:
                there = True  # whatever is wrong with it
            except (TransientError, ConfigError) as error:
                there, why = None, f"may still be in its source, which could not be asked ({error})"
    if there is not False and not force:
        raise GuardError(
            f"{blob.name!r} {why}; nothing was erased. Delete it there, or leave it out ([source] exclude), and run this again; "
            "to erase what is indexed now all the same: --force"
        )
    return there


def _erase(ledger: Ledger, blob: BlobId, *, before: dict[str, int]) -> dict[str, int]:
    """What went of each kind; chunks were withdrawn already."""
    gone = ledger.erasures.erase(blob)
    return {kind: max(number, before.get(kind, 0)) for kind, number in gone.items()}


async def _look_again(places: Places, done: Erasure, traces: Traces, files: Sequence[Path], databases: Sequence[Path]) -> None:
    done.found = await _found(places, done.blob.document_id)
    done.left += [f"{number} {kind.replace('_', ' ')}" for kind, number in done.found.items() if number]
    done.files, done.samples = len(files) + len(databases), len(traces.all)
    done.left += [f"{str(file)!r} holds {what}" for file, what in (await traced(files, databases, traces, places.stores)).items()]


async def _found(places: Places, document_id: str) -> dict[str, int]:
    """How much is there of each kind, in the order in which it is shown."""
    rows = 0
    for store in places.stores:
        async for _ in store.keys([document_id]):
            rows += 1
    in_ledger = await asyncio.to_thread(places.ledger.erasures.remains, document_id)
    turns = await asyncio.to_thread(places.conversations.count, document_id)
    return {"rows": rows, **in_ledger, "turns": turns, "spool_files": await asyncio.to_thread(_spooled, places.spool)}


def _empty(spool: Path) -> None:
    """Nobody reads content now; what is there was left by a run that was killed, and may be of any blob."""
    for left in spool.glob("*"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _spooled(spool: Path) -> int:
    return sum(file.is_file() for file in spool.rglob("*"))
