"""A query and a principal in, hits out: every one of them committed, checked again, and readable by this principal now."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast, get_args

from ragstore.access.policy import Policy
from ragstore.contracts import Embedder, Reranker, Store
from ragstore.errors import AccessError, ConfigError
from ragstore.filters import ALWAYS, Never, all_of, simplify
from ragstore.models import CommittedChunk, Hit, Match, Principal
from ragstore.retrieval.candidates import Candidates, Legs, check_legs
from ragstore.retrieval.diversity import Selection
from ragstore.retrieval.expression import Expression, evaluate, to_filter
from ragstore.retrieval.fusion import Fusion
from ragstore.retrieval.syntax import parse

Committed = Callable[[Sequence[str]], Mapping[str, CommittedChunk]]
"""Chunk ids in, those that belong to a committed generation out. Called in a worker thread; whatever it raises denies."""

MAX_LIMIT: Final = 1000
_FIRST_CANDIDATES: Final = 100
_MOST_CANDIDATES: Final = 12_800
_SLICE: Final = 32
_RERANKED: Final = 50
_ID_LENGTH: Final = 128

_log = logging.getLogger("ragstore.retrieval")


class Retriever:
    """The one door for reading: no method answers without a principal, and nothing leaves that was not checked here.

    What the store says is a proposal. A hit must be in the ledger's committed list, and both the attributes with which its generation was
    read and the current ones must grant; a store that ignores its filter, or that lags behind, costs time and shows nothing.

    What remains is this: a store weighs words by how rare they are in the whole collection. Whoever may read documents that hold a word
    can learn from scores roughly how many other chunks hold it, not which, and nothing else of them. Keep apart what even that would tell.
    """

    def __init__(self, *, store: Store, embedder: Embedder, policy: Policy, committed: Committed, reranker: Reranker | None = None) -> None:
        self._store = store
        self._embedder = embedder
        self._policy = policy
        self._committed = committed
        self._reranker = reranker

    async def search(
        self,
        query: str,
        *,
        principal: Principal,
        limit: int = 8,
        filter: str | Expression | None = None,
        fusion: Fusion = "max-norm",
        per_blob: int | None = None,
        legs: Legs = "both",
    ) -> list[Hit]:
        """Up to `limit` hits, best first; fewer only where no more can be found.

        - `filter` narrows what the principal may read (syntax: `retrieval.syntax`); it can never widen it.
        - `per_blob` is the most hits of one blob; of equal texts only one is returned.
        - Scores are comparable within one answer only: fused, those of the one leg that was asked, or the reranker's.
        - Raises `ConfigError` for a blank query, a limit outside 1 to 1000 or a filter that does not parse, `AccessError` without a
          principal or where the policy or the ledger cannot be reached, `TransientError` where the store cannot.
        """
        words = _checked(query, limit=limit, per_blob=per_blob, fusion=fusion)
        check_legs(legs, self._store)
        wanted = parse(filter) if isinstance(filter, str) else filter
        scope = self._policy.filter_for(_asking(principal))
        admitted = simplify(all_of((scope.filter, ALWAYS if wanted is None else to_filter(wanted)[0])))
        if isinstance(admitted, Never):
            return []
        candidates = Candidates(store=self._store, embedder=self._embedder, query=words, filter=admitted, legs=legs, fusion=fusion)
        door = _Door(policy=self._policy, committed=self._committed, principal=principal, wanted=wanted)
        if self._reranker is None:
            return await _collect(candidates, door, limit=limit, per_blob=per_blob)
        pool = await _collect(candidates, door, limit=max(_RERANKED, limit), per_blob=None)
        return await self._reranked(words, pool, limit=limit, per_blob=per_blob)

    async def chunk(self, chunk_id: str, *, principal: Principal) -> Hit | None:
        """One chunk by its id, or None: missing, not committed and forbidden look the same. Its score is 0.

        Raises `AccessError` as `search` does.
        """
        scope = simplify(self._policy.filter_for(_asking(principal)).filter)
        if isinstance(scope, Never) or not _could_be_an_id(chunk_id):
            return None
        door = _Door(policy=self._policy, committed=self._committed, principal=principal, wanted=None)
        found = (await door.look_up([chunk_id])).get(chunk_id)
        if found is None or not door.admits(found):
            return None
        async for row in self._store.rows([found.document_id]):
            if row.chunk_id == chunk_id:
                return _hit(found, text=row.text, score=0.0)
        return None

    async def _reranked(self, query: str, pool: list[Hit], *, limit: int, per_blob: int | None) -> list[Hit]:
        """The pool in the order of the reranker, which sees permitted texts only; a score that is no number goes last."""
        if self._reranker is None or not pool:
            return pool
        scores = await self._reranker.rerank(query, [hit.text for hit in pool])
        scored = [replace(hit, score=score if math.isfinite(score) else -math.inf) for hit, score in zip(pool, scores, strict=True)]
        selection = Selection(limit=limit, per_blob=per_blob)
        for hit in sorted(scored, key=lambda hit: -hit.score):
            selection.add(hit)
        return selection.hits


@dataclass(slots=True, kw_only=True)
class _Door:
    """What one principal may see of the committed chunks, under one filter; remembers what the ledger said during one query."""

    policy: Policy
    committed: Committed
    principal: Principal
    wanted: Expression | None
    known: dict[str, CommittedChunk | None] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Committed chunks that the store proposed and the check refused: its access columns lag behind, or it ignores filters."""

    async def look_up(self, chunk_ids: Sequence[str]) -> dict[str, CommittedChunk]:
        """The committed ones among these. Raises `AccessError` for whatever goes wrong: without the ledger nothing is shown."""
        unknown = [chunk_id for chunk_id in chunk_ids if chunk_id not in self.known]
        if unknown:
            try:
                found = await asyncio.to_thread(self.committed, unknown)
            except AccessError:
                raise
            except Exception as error:
                raise AccessError("the ledger cannot be reached, so nothing can be shown; try again when it is back") from error
            self.known.update({chunk_id: found.get(chunk_id) for chunk_id in unknown})
        pairs = ((chunk_id, self.known[chunk_id]) for chunk_id in chunk_ids)
        return {chunk_id: chunk for chunk_id, chunk in pairs if chunk is not None}

    def admits(self, chunk: CommittedChunk) -> bool:
        """Whether the principal may read the chunk, by the attributes of its generation and by the current ones, and wants it."""
        readable = self.policy.grants(self.principal, chunk.generation_access) and self.policy.grants(self.principal, chunk.current_access)
        if not readable:
            self.refused.add(chunk.chunk_id)
            return False
        return self.wanted is None or evaluate(self.wanted, chunk.current_access, media_type=chunk.media_type)


async def _collect(candidates: Candidates, door: _Door, *, limit: int, per_blob: int | None) -> list[Hit]:
    """Permitted hits in fused order, asking for twice as many candidates until there are enough or there are no more."""
    number = max(_FIRST_CANDIDATES, 2 * limit)
    while True:
        selection = Selection(limit=limit, per_blob=per_blob)
        ranked = await candidates.best(number)
        for start in range(0, len(ranked), max(_SLICE, limit)):
            if selection.full:
                break
            await _admit(ranked[start : start + max(_SLICE, limit)], candidates.matches, door, selection)
        if selection.full or candidates.exhausted or number >= _MOST_CANDIDATES:
            break
        number *= 2
    if door.refused:
        _log.info("retrieval.hits_refused", extra={"count": len(door.refused), "candidates": number})
    return selection.hits


async def _admit(ranked: Sequence[tuple[str, float]], matches: Mapping[str, Match], door: _Door, selection: Selection) -> None:
    """Add to the selection what passes the door; the whole slice, because a fresh copy may follow a stale one."""
    found = await door.look_up([chunk_id for chunk_id, _ in ranked])
    for chunk_id, score in ranked:
        chunk = found.get(chunk_id)
        if chunk is not None and matches[chunk_id].document_id == chunk.document_id and door.admits(chunk):
            selection.add(_hit(chunk, text=matches[chunk_id].text, score=score))


def _hit(chunk: CommittedChunk, *, text: str, score: float) -> Hit:
    return Hit(
        blob=chunk.blob.name,
        chunk=chunk.chunk_id,
        score=score,
        text=text,
        start=chunk.start,
        end=chunk.end,
        page=chunk.page,
        heading=chunk.heading,
        title=chunk.title,
        version=chunk.version,
        etag=chunk.etag,
        stale=chunk.stale,
    )


def _could_be_an_id(text: str) -> bool:
    """Whether a ledger can be asked for it at all; what it cannot store must look like what it does not have."""
    return text.isascii() and text.isprintable() and 0 < len(text) <= _ID_LENGTH


def _asking(principal: Principal) -> Principal:
    """The principal, of which callers without types may have none."""
    if not isinstance(cast("object", principal), Principal):
        raise AccessError("nobody asks: pass the principal on whose behalf to search")
    return principal


def _checked(query: str, *, limit: int, per_blob: int | None, fusion: Fusion) -> str:
    """The query as every store and tokenizer can take it."""
    words = query.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
    if not words:
        raise ConfigError("the query is blank: say what to look for")
    if not 1 <= limit <= MAX_LIMIT:
        raise ConfigError(f"limit must be between 1 and {MAX_LIMIT}, not {limit}")
    if per_blob is not None and per_blob < 1:
        raise ConfigError(f"per_blob must be at least 1, not {per_blob}")
    if fusion not in get_args(Fusion):
        raise ConfigError(f"fusion must be one of {', '.join(get_args(Fusion))}, not {fusion!r}")
    return words
