"""Chunk ids that a store proposed in; those that the ledger has committed and that this principal may read now out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ragstore import tracing
from ragstore.access.policy import Policy, Scope
from ragstore.errors import AccessError
from ragstore.filters import matches
from ragstore.models import AccessAttributes, BlobId, CommittedChunk, Match, Principal
from ragstore.retrieval.expression import Expression, evaluate

Committed = Callable[[Sequence[str]], Mapping[str, CommittedChunk]]
"""Chunk ids in, those that belong to a committed generation out. Called in a worker thread; whatever it raises denies."""
CommittedAtOnce = Callable[[Sequence[str]], Mapping[str, CommittedChunk] | None]
"""As `Committed`, called in the event loop's thread; None where that would hold it up."""
Grants = Callable[[AccessAttributes], bool]
Place = tuple[str, str]
"""Account and container."""

_AHEAD: Final = 60.0
"""Seconds by which the clock of another machine that writes may be ahead of ours."""
_AT_ONCE: Final = 250
"""Chunks that are decided before anybody else gets a turn."""

_log = logging.getLogger("ragstore.retrieval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Attributes that were not looked at for too long grant nothing."""

    max_age: float
    """Seconds."""
    listed: Callable[[], Mapping[Place, float]]
    """When each container was last listed to its end, in seconds since the epoch; called in a worker thread."""
    now: Callable[[], float] = time.time

    def holds(self, blob: BlobId, seen_at: float, listed: Mapping[Place, float]) -> bool:
        """Whether somebody looked at this blob's attributes lately: at it alone, or by listing its container."""
        seen = max(seen_at, listed.get((blob.account, blob.container), 0.0))
        age = self.now() - seen
        return -_AHEAD <= age <= self.max_age


@dataclass(slots=True, kw_only=True)
class Door:
    """What one principal may see of the committed chunks, under one filter; remembers what the ledger said during one query."""

    policy: Policy
    scope: Scope
    committed: Committed
    at_once: CommittedAtOnce | None = None
    principal: Principal
    wanted: Expression | None = None
    freshness: Freshness | None = None
    by_store: bool = True
    """Whether a store proposes the chunks under the filter. Of a chunk that is asked for by its id, no store can leak anything; and to
    look for that would take longer than to look for a chunk that is not there."""
    known: dict[str, CommittedChunk | None] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Committed chunks that the store proposed and the check refused: its access columns lag behind, or it ignores filters."""
    outdated: set[str] = field(default_factory=set)
    """Those of them that were refused because nobody looked at their blob's attributes for too long."""
    leaked: set[str] = field(default_factory=set)
    """Those that the policy's filter, which is exact, should have kept the store from proposing. See `_is_leak`."""
    _listed: Mapping[Place, float] | None = None
    _admitted: dict[str, bool] = field(default_factory=dict)
    _decided: dict[str, tuple[AccessAttributes, AccessAttributes, bool]] = field(default_factory=dict)
    """By document id: attributes of the generation and current ones, and whether both grant. Chunks of a document come together."""

    async def permitted(self, proposed: Sequence[Match]) -> list[Match]:
        """Those that may be shown, in the same order; each is decided once. Raises `AccessError` as `look_up` does."""
        with tracing.step("access.check", proposed=len(proposed)):
            return await self._permitted(proposed)

    async def _permitted(self, proposed: Sequence[Match]) -> list[Match]:
        kept: list[Match] = []
        for start in range(0, len(proposed), _AT_ONCE):
            some = proposed[start : start + _AT_ONCE]
            found = await self.look_up([match.chunk_id for match in some])
            grants = self.policy.grants_for(self.principal)
            kept += [match for match in some if match.chunk_id in found and self._shows(match, found[match.chunk_id], grants)]
        return kept

    def chunk_of(self, match: Match) -> CommittedChunk:
        """Where a permitted match stands."""
        chunk = self.known[match.chunk_id]
        if chunk is None:
            raise AccessError("a chunk was to be shown that is not committed")
        return chunk

    def _shows(self, match: Match, chunk: CommittedChunk, grants: Grants) -> bool:
        if match.document_id != chunk.document_id:
            return False
        if match.chunk_id not in self._admitted:
            self._admitted[match.chunk_id] = self.admits(chunk, grants)
        return self._admitted[match.chunk_id]

    async def look_up(self, chunk_ids: Sequence[str]) -> dict[str, CommittedChunk]:
        """The committed ones among these. Raises `AccessError` for whatever goes wrong: without the ledger nothing is shown."""
        unknown = [chunk_id for chunk_id in chunk_ids if chunk_id not in self.known]
        if unknown:
            try:
                found = self.at_once(unknown) if self.at_once else None
                if found is None:
                    found = await asyncio.to_thread(self.committed, unknown)
                if self.freshness is not None and self._listed is None:
                    self._listed = await asyncio.to_thread(self.freshness.listed)
            except AccessError:
                raise
            except Exception as error:
                raise AccessError("the ledger cannot be reached, so nothing can be shown; try again when it is back") from error
            self.known.update({chunk_id: found.get(chunk_id) for chunk_id in unknown})
        pairs = ((chunk_id, self.known[chunk_id]) for chunk_id in chunk_ids)
        return {chunk_id: chunk for chunk_id, chunk in pairs if chunk is not None}

    def admits(self, chunk: CommittedChunk, grants: Grants | None = None) -> bool:
        """Whether the principal may read the chunk, by the attributes of its generation and by the current ones, and wants it.

        `grants` is the policy's `grants_for` the principal, where several chunks are decided at once.
        """
        if not self._is_readable(chunk, grants or self.policy.grants_for(self.principal)):
            self.refused.add(chunk.chunk_id)
            if chunk.generation_access == chunk.current_access and self._is_leak(chunk):
                self.leaked.add(chunk.chunk_id)
            return False
        if not self._is_fresh(chunk):
            self.refused.add(chunk.chunk_id)
            self.outdated.add(chunk.chunk_id)
            return False
        return self.wanted is None or evaluate(self.wanted, chunk.current_access, media_type=chunk.media_type)

    def _is_readable(self, chunk: CommittedChunk, grants: Grants) -> bool:
        read, current = chunk.generation_access, chunk.current_access
        known = self._decided.get(chunk.document_id)
        if known is not None and known[:2] == (read, current):
            return known[2]
        granted = grants(current) and (read == current or grants(read))
        self._decided[chunk.document_id] = (read, current, granted)
        return granted

    def tell(self) -> None:
        """Log what was refused, by number only: the event `access.filter_leaked` is an alarm, for a fault of the store or of ours."""
        if self.refused:
            counts = {"count": len(self.refused), "outdated": len(self.outdated), "candidates": len(self.known)}
            _log.info("retrieval.hits_refused", extra=counts)
        if self.leaked:
            _log.error("access.filter_leaked", extra={"count": len(self.leaked), "mode": self.policy.mode})

    def _is_leak(self, chunk: CommittedChunk) -> bool:
        """Whether an exact filter let it through although the store has been told what its columns are.

        A store that has still to be told (`pending`) lags behind, which is no fault. Where the filter is true of the columns, the policy
        granted a row by its filter that it does not grant: a fault of the translation. Where it is not, the store did not apply it.
        """
        if not self.by_store or not self.scope.exact or chunk.pending or self.policy.filter_for(self.principal).filter != self.scope.filter:
            return False  # no store was asked, it is not exact, not told yet, or the policy has changed since the store was asked
        columns = self.policy.columns(chunk.current_access, media_type=chunk.media_type)
        kind = "translation" if matches(self.scope.filter, columns) else "store"
        _log.debug("access.filter_leaked", extra={"by": kind})
        return True

    def _is_fresh(self, chunk: CommittedChunk) -> bool:
        if self.freshness is None:
            return True
        return self.freshness.holds(chunk.blob, chunk.seen_at, self._listed or {})
