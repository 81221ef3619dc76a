"""Finished generations in, the swap of many at once out: pending mark, rows, ledger, clean-up (design: the ledger row is the swap)."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Store, Write
from ragstore.errors import OutageError, PoisonError, TransientError
from ragstore.ledger import Commit, KnownBlob, Ledger, State
from ragstore.models import AccessColumns, BlobState, Row

Refuse = Callable[[BlobState, PoisonError], Awaitable[None]]
"""Called with a blob whose finished generation, or new access columns, the store will not take."""

_ROWS = 4096
_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """One document's new generation (or new attributes), whose rows were all given to `Swapper.put`."""

    commit: Commit
    stale: frozenset[str] = frozenset()
    """Chunk ids of the generation before that the new one does not have."""
    retag: AccessColumns | None = None
    """New access columns, where rows that stay carry others."""
    done: Callable[[], None]
    """Called when the ledger holds it."""


@dataclass(slots=True)
class _Group:
    states: dict[str, BlobState] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    swaps: list[Swap] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)


class Swapper:
    """Groups the writes of many documents into few commits of the store, each between two transactions of the ledger.

    Whatever the moment of a crash: what the ledger lists is in the store, and a document for which the store may hold more is marked.
    """

    def __init__(self, ledger: Ledger, store: Store, refuse: Refuse) -> None:
        self._ledger = ledger
        self._store = store
        self._refuse = refuse
        self._refused: dict[str, PoisonError] = {}
        """Documents whose rows the store will not take, and that are still being read."""
        self._group = _Group()
        self._flushing = asyncio.Lock()
        self._unfinished: set[str] = set()
        """Documents of which rows went to the store before their generation was complete."""

    async def put(self, state: BlobState, rows: Sequence[Row]) -> None:
        """Rows of a generation that is not finished yet; waits for a write where many rows are held.

        Raises `PoisonError` where the store has refused earlier rows of it.
        """
        self._raise_refusal(state.id.document_id)
        self._group.states[state.id.document_id] = state
        self._group.rows.extend(rows)
        if len(self._group.rows) >= _ROWS:
            await self.flush()

    async def finish(self, swap: Swap) -> None:
        """The generation is complete: commit it with the next group. Raises `PoisonError` as `put` does."""
        self._raise_refusal(swap.commit.document_id)
        self._group.states[swap.commit.document_id] = swap.commit.state
        self._group.swaps.append(swap)
        if len(self._group.swaps) >= _ROWS or time.monotonic() - self._group.since > _SECONDS:
            await self.flush()

    async def abandon(self, document_id: str) -> bool:
        """Forget what is held of a generation that will not be finished. Returns whether rows of it are in the store."""
        async with self._flushing:
            self._group.states.pop(document_id, None)
            self._group.rows = [row for row in self._group.rows if row.document_id != document_id]
            self._refused.pop(document_id, None)
            written = document_id in self._unfinished
            self._unfinished.discard(document_id)
            return written

    async def flush(self) -> None:
        """Write all that is held. Others go on filling the next group meanwhile."""
        async with self._flushing:
            group, self._group = self._group, _Group()
            refused = await self._write(group) if group.states else {}
        for document_id, error in refused.items():
            await self._refuse(group.states[document_id], error)

    async def _write(self, group: _Group) -> dict[str, PoisonError]:
        """Returns the finished documents that the store will not take."""
        documents = self._ledger.documents
        finished = {swap.commit.document_id for swap in group.swaps}
        self._unfinished = (self._unfinished | {row.document_id for row in group.rows}) - finished
        await asyncio.to_thread(documents.mark_pending, list(group.states.values()))
        refused = await self._apply_each([PutRows(rows=group.rows)]) if group.rows else {}
        self._refused |= {document_id: error for document_id, error in refused.items() if document_id not in finished}
        self._unfinished |= refused.keys()  # some of its rows may be there
        commits = [swap.commit for swap in group.swaps if swap.commit.document_id not in refused]
        lost = await asyncio.to_thread(documents.commit, commits)
        swaps = [swap for swap in group.swaps if swap.commit.document_id not in lost | refused.keys()]
        for swap in swaps:
            swap.done()
        refused |= await self._follow(swaps)
        if lost:
            names = ", ".join(sorted(swap.commit.state.id.name for swap in group.swaps if swap.commit.document_id in lost))
            raise OutageError(f"somebody else committed {names} while this pass read them; run it again")
        return {document_id: error for document_id, error in refused.items() if document_id in finished}

    def _raise_refusal(self, document_id: str) -> None:
        if document_id in self._refused:
            raise self._refused[document_id]

    async def _follow(self, swaps: Sequence[Swap]) -> dict[str, PoisonError]:
        """Bring the store in line with what was just committed: nobody can see what this removes, so a crash here only leaves work.

        Returns the documents whose new columns the store will not take.
        """
        writes: list[Write] = []
        for swap in swaps:
            generation = swap.commit.expected_generation
            if swap.stale:
                writes.append(DropRows(document_id=swap.commit.document_id, generation=generation, chunk_ids=swap.stale))
            if swap.retag is not None:
                writes.append(Retag(document_id=swap.commit.document_id, access=swap.retag))
        refused = await self._apply_each(writes) if writes else {}
        followed = [swap.commit.document_id for swap in swaps if swap.commit.pending and swap.commit.document_id not in refused]
        await asyncio.to_thread(self._ledger.documents.clear_pending, followed)
        return refused

    async def withdraw(self, blobs: Sequence[KnownBlob], state: State) -> None:
        """Take documents out of every answer, then out of the store."""
        if not blobs:
            return
        documents = self._ledger.documents
        ids = [known.document_id for known in blobs]
        await asyncio.to_thread(documents.withdraw, ids, state)
        # A generation that was being written when it failed is one above the committed one.
        await self._apply([DropDocument(document_id=known.document_id, generation=known.generation + 1) for known in blobs])
        await asyncio.to_thread(documents.clear_pending, ids)

    async def _apply_each(self, writes: Sequence[Write]) -> dict[str, PoisonError]:
        """Apply all at once or, where the store refuses something, each document by itself. Returns the documents it will not take."""
        try:
            await self._apply(writes)
        except PoisonError:
            pass  # it does not tell of which document
        else:
            return {}
        refused: dict[str, PoisonError] = {}
        for document_id, own in _by_document(writes).items():
            try:
                await self._apply(own)
            except PoisonError as error:
                refused[document_id] = error
        return refused

    async def _apply(self, writes: Sequence[Write]) -> None:
        """A store that is down concerns every document, not the one whose turn it is."""
        try:
            await self._store.apply(writes)
        except TransientError as error:
            raise OutageError(f"the store cannot be written to: {error}. Nothing is lost; run this again when it is back") from error


def _by_document(writes: Sequence[Write]) -> dict[str, list[Write]]:
    """The writes of each document, in their order."""
    found: defaultdict[str, list[Write]] = defaultdict(list)
    for write in writes:
        if not isinstance(write, PutRows):
            found[write.document_id].append(write)
            continue
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in write.rows:
            rows[row.document_id].append(row)
        for document_id, own in rows.items():
            found[document_id].append(PutRows(rows=own))
    return found
