"""A plan in, the index in step with it out: retags first, then deletes, then content, many blobs at a time within a budget of bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ragstore.errors import PoisonError, TransientError
from ragstore.ingest.adopt import Adopter, Donors
from ragstore.ingest.budget import ByteBudget
from ragstore.ingest.content import ContentReader, Generation
from ragstore.ingest.parts import Parts, columns_hash
from ragstore.ingest.plan import Plan, Planned
from ragstore.ingest.reach import Reach
from ragstore.ingest.recover import recover
from ragstore.ingest.report import Clocked
from ragstore.ingest.supply import VectorSupply
from ragstore.ingest.swap import Swap, Swapper
from ragstore.ledger import Commit, KnownBlob
from ragstore.models import AccessAttributes, AccessColumns, BlobState, FetchedBlob

T = TypeVar("T")

_AT_ONCE = 64
_BYTES_AT_ONCE = 256 * 2**20
_LEAST_BYTES = 64 * 2**10


class Applier:
    """Applies changes to blobs, each after looking at what the blob is now."""

    def __init__(self, parts: Parts, clock: Clocked, plan: Plan, donors: Donors) -> None:
        self._parts = parts
        self._clock = clock
        self._report = clock.report
        self._failures = dict(plan.baseline.failures)
        self._gone = frozenset(known.document_id for known in plan.deletes)
        """What the listing lacks: content found there was moved, not copied."""
        self.moved_away: set[str] = set()
        """Document ids of blobs whose content was found at another path."""
        self.postponed: set[str] = set()
        """Document ids of blobs whose change could not be applied for a passing reason."""
        self._seen: dict[str, str] = {}
        """JSON of the attributes that the ledger holds as current where this pass changed them, by document id."""
        self._swapper = Swapper(parts.ledger, parts.store, self._refuse)
        self._supply = VectorSupply(parts.embedder, parts.ledger.vectors(parts.embedder.fingerprint), clock)
        self._content = ContentReader(parts, self._supply, self._swapper)
        self._adopter = Adopter(parts, donors)
        self._reach = Reach()
        self._budget = ByteBudget(_BYTES_AT_ONCE)

    async def close(self) -> None:
        """End the background work."""
        await self._supply.close()

    @property
    def embedder_down(self) -> str:
        """What the embedder said where its last answer was that it cannot; empty otherwise."""
        return self._supply.down

    @property
    def source_down(self) -> str:
        """What a source said that does not answer any more; empty otherwise."""
        return self._reach.down

    def language_warnings(self) -> list[str]:
        """Whether the embedder knows the scripts of what was read."""
        return self._content.scripts.warnings(self._parts.settings.embedder.type)

    # Access columns only: the fast lane.

    async def narrow(self, plan: Plan) -> None:
        """Have the attributes that the listing shows count at once, beside those of the committed generations: all must grant.

        This takes access away and never gives any, so it waits neither for content nor for a guard, and no blob that cannot be read keeps
        its old readers.
        """
        planned = (*plan.retags, *plan.upserts, *plan.too_large, *plan.deferred)
        seen = [(item.known, item.state.access) for item in planned if item.known and item.known.serves]
        await self._narrow(seen, at=plan.baseline.looked_at)

    async def retag(self, planned: Sequence[Planned]) -> list[Planned]:
        """Give blobs their present attributes, reading no content. Returns those whose content changed meanwhile."""
        changed: list[Planned] = []

        async def one(item: Planned) -> None:
            began = time.time()
            state = await self._state(item.state)
            if state is None or item.known is None:
                return  # gone since the listing; the next pass deletes it
            if state.etag != item.known.etag:
                await self._narrow([(item.known, state.access)], at=began)
                changed.append(Planned(state=state, known=item.known, reason="changed"))
                return
            await self._set_attributes(state, item.known, began)

        await self._each(planned, lambda item: self._setting_aside(item, one))
        await self._swapper.flush()
        return changed

    async def _set_attributes(self, state: BlobState, known: KnownBlob, began: float) -> None:
        """Commit attributes of content that stays as it is; the store is told only where its columns differ."""
        self._warn(state)
        columns = self._parts.columns(state.access, known.media_type)
        differs = columns_hash(columns) != known.columns_hash
        retagged = self._parts.retags(known, state.access)
        commit = self._commit(state, known, sha256=known.sha256, columns=columns, pending=differs, seen_at=began)

        def done() -> None:
            if retagged:
                self._report.retagged += 1
            else:
                self._report.unchanged += 1
            self._mended(known.document_id)
            self._clock.tick()

        await self._swapper.finish(Swap(commit=commit, retag=columns if differs else None, done=done))

    # Content.

    async def upsert(self, planned: Sequence[Planned]) -> None:
        """Bring content in, each blob on its own: what fails is set aside with its reason, and the others go on."""
        self._report.bytes_total += sum(item.state.size for item in planned)
        await self._each(planned, self._upsert)
        await self._swapper.flush()

    async def _upsert(self, item: Planned) -> None:
        size = min(max(item.state.size, _LEAST_BYTES), _BYTES_AT_ONCE)
        async with self._budget.hold(size):
            await self._setting_aside(item, self._read)
        self._report.bytes_done += item.state.size
        self._clock.tick()

    async def _setting_aside(self, item: Planned, action: Callable[[Planned], Awaitable[None]]) -> None:
        """Run the action; what is wrong with one blob concerns that blob alone."""
        try:
            await action(item)
        except PoisonError as error:
            await self.quarantine(item, error)
        except TransientError as error:
            await self._postpone(item, error)

    async def _read(self, item: Planned) -> None:
        began = time.time()
        source = self._parts.source_of(item.state.id)
        fetched = await self._reach.fetch(source, item.state.id.path, self._parts.spool) if source else None
        if fetched is None:
            return  # gone since the listing; the next pass deletes it
        try:
            await self._take(item, fetched, began)
        except PoisonError as error:
            await self.quarantine(Planned(state=fetched.state, known=item.known, reason=item.reason), error, sha256=fetched.sha256)
        finally:
            await _remove(fetched)

    async def _take(self, item: Planned, fetched: FetchedBlob, began: float) -> None:
        known, state = item.known, fetched.state
        if known and known.serves:
            await self._narrow([(known, state.access)], at=began)
            same_bytes = (known.sha256, known.content_type) == (fetched.sha256, state.content_type)
            if same_bytes and known.pipeline == self._parts.pipeline:
                await self._set_attributes(state, known, began)
                return
        self._refuse_known_poison(fetched)
        self._warn(state)
        generation = self._next_generation(state, known, began)
        if not await self._adopt(item, fetched, generation):
            columns = await self._content.read(fetched, generation)
            await self._finish(item, fetched, generation, columns, moved_from=None)

    def _next_generation(self, state: BlobState, known: KnownBlob | None, began: float) -> Generation:
        kept = self._parts.ledger.documents.chunk_ids(known.document_id) if known and known.serves else frozenset()
        return Generation(
            document_id=state.id.document_id,
            number=(known.generation if known else 0) + 1,
            began=began,
            kept=kept,
            written=kept if known and self._parts.has_terms_of_now(known) else frozenset(),
        )

    async def _adopt(self, item: Planned, fetched: FetchedBlob, generation: Generation) -> bool:
        donor = self._adopter.donor(fetched, gone=self._gone)
        adopted = await self._adopter.rows(donor, fetched, generation) if donor else None
        if donor is None or adopted is None:
            return False
        rows, columns = adopted
        self._supply.count_reused(len(generation.records))
        await self._swapper.put(fetched.state, rows)
        moved = donor.document_id in self._gone and donor.document_id not in self.moved_away
        if moved:
            self.moved_away.add(donor.document_id)
        await self._finish(item, fetched, generation, columns, moved_from=donor if moved else None)
        return True

    async def _finish(
        self, item: Planned, fetched: FetchedBlob, generation: Generation, columns: AccessColumns, *, moved_from: KnownBlob | None
    ) -> None:
        known, state = item.known, fetched.state
        self._report.warn(state.id.name, tuple(generation.warnings))
        stale = generation.stale()
        retag = columns if known and known.serves and known.columns_hash != columns_hash(columns) else None
        commit = Commit(
            state=state,
            sha256=fetched.sha256,
            media_type=generation.media_type,
            title=generation.title,
            pipeline=self._parts.pipeline,
            columns_hash=columns_hash(columns),
            expected_generation=generation.number - 1,
            seen_at=generation.began,
            chunks=generation.records,
            pending=bool(stale) or retag is not None,
        )

        def done() -> None:
            self._count(known, moved=moved_from is not None)
            self._report.chunks += len(generation.records)
            self._mended(state.id.document_id)
            self._clock.tick()

        await self._swapper.finish(Swap(commit=commit, stale=stale, retag=retag, done=done))

    def _count(self, known: KnownBlob | None, *, moved: bool) -> None:
        if known and known.serves:
            self._report.changed += 1
        elif moved:
            self._report.moved += 1
        else:
            self._report.added += 1

    # What goes wrong, and what goes away.

    async def quarantine(self, item: Planned, error: PoisonError, *, sha256: str | None = None) -> None:
        """Set a blob aside. Its old rows go: the blob no longer holds that text."""
        state = item.state
        await self._discard(item)
        # First out of every answer, then into the quarantine: a crash in between makes the next pass read the blob again.
        if item.known and item.known.serves:
            await self._swapper.withdraw([item.known], "quarantined")
        self._parts.ledger.documents.note(state, as_state="quarantined")
        self._parts.ledger.quarantine.add(
            document_id=state.id.document_id,
            blob=state.id.name,
            kind=error.kind,
            reason=error.reason,
            etag=state.etag,
            sha256=sha256,
            pipeline=self._parts.pipeline,
        )
        self._report.quarantined += 1

    async def _refuse(self, state: BlobState, error: PoisonError) -> None:
        """The store will not take this blob, for its metadata has no room for so many readers, for one."""
        known = await asyncio.to_thread(self._parts.ledger.documents.get, state.id.document_id)
        await self.quarantine(Planned(state=state, known=known, reason="changed"), error)

    async def _postpone(self, item: Planned, error: TransientError) -> None:
        """The old version goes on serving, marked stale; the next pass tries again."""
        await self._discard(item)
        state = item.state
        self._parts.ledger.quarantine.add(
            document_id=state.id.document_id,
            blob=state.id.name,
            kind="transient",
            reason=str(error),
            etag=state.etag,
            sha256=None,
            pipeline=self._parts.pipeline,
        )
        # A blob of which nothing is indexed is noted too, so that its failure ends when it is deleted.
        self._parts.ledger.documents.note(state, as_state="stale" if item.known and item.known.serves else "new")
        self._report.failed += 1
        self.postponed.add(state.id.document_id)

    async def _discard(self, item: Planned) -> None:
        """Rows of a generation that will not be finished."""
        document_id = item.state.id.document_id
        if await self._swapper.abandon(document_id):
            begun = self._parts.ledger.documents.get(document_id)
            await recover(self._parts, [begun] if begun else [])

    async def defer(self, planned: Sequence[Planned]) -> None:
        """Archived blobs wait; what they held before is served no more, because nobody can say that it still is so."""
        await self._swapper.withdraw([item.known for item in planned if item.known and item.known.serves], "deferred")
        for item in planned:
            self._parts.ledger.documents.note(item.state, as_state="deferred")

    async def delete(self, blobs: Sequence[KnownBlob]) -> None:
        """Delete blobs from the index, each confirmed by its source: an incomplete listing alone deletes nothing."""
        gone: list[KnownBlob] = []

        async def one(known: KnownBlob) -> None:
            source = self._parts.source_of(known.id)
            try:
                if source is None or await self._reach.state(source, known.id.path) is None:
                    gone.append(known)
            except PoisonError:
                return  # it is there, whatever is wrong with it; the next pass says so
            except TransientError as error:
                self._report.failed += 1
                self.postponed.add(known.document_id)
                self._report.warn(known.id.name, (f"whether it is gone could not be asked: {error}",))

        await self._each(blobs, one)
        # Before: a crash in between has the next pass delete them again, while a tombstone is not looked at any more.
        for known in gone:
            self._mended(known.document_id)
        await self._swapper.withdraw(gone, "deleted")
        self._report.deleted += sum(known.serves and known.document_id not in self.moved_away for known in gone)

    # Small steps.

    def _mended(self, document_id: str) -> None:
        """What was wrong with a blob is over: it is indexed, or gone."""
        if self._failures.pop(document_id, None):
            self._parts.ledger.quarantine.clear([document_id])

    async def _narrow(self, seen: Iterable[tuple[KnownBlob, AccessAttributes]], *, at: float) -> None:
        """From now on both sets of attributes must grant, long before the new content is searchable."""
        new: dict[str, AccessAttributes] = {}
        for known, access in seen:
            held, now = self._seen.get(known.document_id, known.current_access), access.to_json()
            if now != held:
                self._seen[known.document_id] = now
                new[known.document_id] = access
        await asyncio.to_thread(self._parts.ledger.documents.see_access, new, at=at)

    def _refuse_known_poison(self, fetched: FetchedBlob) -> None:
        failure = self._failures.get(fetched.state.id.document_id)
        if failure and failure.kind != "transient" and failure.sha256 == fetched.sha256 and failure.pipeline == self._parts.pipeline:
            raise PoisonError(failure.kind, failure.reason)

    def _commit(
        self, state: BlobState, known: KnownBlob, *, sha256: str | None, columns: AccessColumns, pending: bool, seen_at: float
    ) -> Commit:
        return Commit(
            state=state,
            seen_at=seen_at,
            sha256=sha256,
            media_type=known.media_type,
            title=known.title,
            pipeline=known.pipeline,
            columns_hash=columns_hash(columns),
            expected_generation=known.generation,
            chunks=None,
            pending=pending,
        )

    async def _state(self, listed: BlobState) -> BlobState | None:
        source = self._parts.source_of(listed.id)
        return await self._reach.state(source, listed.id.path) if source else None

    def _warn(self, state: BlobState) -> None:
        self._report.warn(state.id.name, tuple(self._parts.policy.problems(state.access)))

    async def _each(self, items: Sequence[T], action: Callable[[T], Awaitable[None]]) -> None:
        """Run the action on every item, a bounded number at a time."""
        pending = iter(items)

        async def lane() -> None:
            for item in pending:
                await action(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(items))):
                    group.create_task(lane())
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # the others were cancelled by it


async def _remove(fetched: FetchedBlob) -> None:
    """Delete what was fetched, in a thread where the disk takes part; whoever is cancelled meanwhile leaves nothing behind either."""
    if fetched.content.in_memory:
        return
    try:
        await asyncio.to_thread(fetched.content.remove)
    except asyncio.CancelledError:
        fetched.content.remove()  # at once: nothing may be awaited any more
        raise
