"""A query and a principal in, hits out: every one of them committed, checked again, and readable by this principal now."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, cast, get_args

from ragstore.access.policy import Policy
from ragstore.contracts import Embedder, Reranker, Store
from ragstore.errors import AccessError, ConfigError
from ragstore.filters import ALWAYS, Filter, Never, all_of, simplify
from ragstore.models import CommittedChunk, Hit, Principal
from ragstore.retrieval.candidates import Candidates, Legs, check_legs, larger
from ragstore.retrieval.diversity import Selection
from ragstore.retrieval.door import Committed, Door, Freshness
from ragstore.retrieval.expression import Expression, to_filter
from ragstore.retrieval.fusion import Fusion
from ragstore.retrieval.record import Observer, Retrieval, now, query_hash
from ragstore.retrieval.syntax import parse

MAX_LIMIT: Final = 1000
_FIRST_CANDIDATES: Final = 100
_FIRST_PERMITTED: Final = 32
"""Of each leg, where candidates are checked before they are ranked."""
_SPARE: Final = 4
"""Beyond the limit, where one leg alone answers and no rank depends on another: for texts that are there twice."""
_SLICE: Final = 32
_RERANKED: Final = 50
_ID_LENGTH: Final = 128


class Retriever:
    """The one door for reading: no method answers without a principal, and nothing leaves that was not checked here.

    What the store says is a proposal. A hit must be in the ledger's committed list, and both the attributes with which its generation was
    read and the current ones must grant; a store that ignores its filter, or that lags behind, costs time and shows nothing.

    Nor does it move the score or the rank of what is shown: by those one could ask for the words of hidden blobs. What remains is this: a
    store weighs words by how rare they are in the whole collection. Whoever may read documents that hold a word can learn from scores
    roughly how many other chunks hold it, not which, and nothing else of them. Keep apart what even that would tell.
    """

    def __init__(
        self,
        *,
        store: Store,
        embedder: Embedder,
        policy: Policy,
        committed: Committed,
        reranker: Reranker | None = None,
        freshness: Freshness | None = None,
        observe: Observer | None = None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._policy = policy
        self._committed = committed
        self._reranker = reranker
        self._freshness = freshness
        self._observe = observe

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
        door = self._door(principal, wanted)
        admitted = simplify(all_of((door.scope.filter, ALWAYS if wanted is None else to_filter(wanted)[0])))
        hits: list[Hit] = []
        if not isinstance(admitted, Never):
            candidates = Candidates(store=self._store, embedder=self._embedder, query=words, filter=admitted, legs=legs, fusion=fusion)
            if self._reranker is None:
                hits = await _collect(candidates, door, limit=limit, per_blob=per_blob)
            else:
                pool = await _collect(candidates, door, limit=max(_RERANKED, limit), per_blob=None)
                hits = await self._reranked(words, pool, limit=limit, per_blob=per_blob)
        await self._record("search", door, admitted, hits, query=words)
        return hits

    async def chunk(self, chunk_id: str, *, principal: Principal) -> Hit | None:
        """One chunk by its id, or None: missing, not committed and forbidden look the same. Its score is 0.

        Raises `AccessError` as `search` does.
        """
        door = self._door(principal, by_store=False)
        scope = simplify(door.scope.filter)
        hit = None
        if not isinstance(scope, Never) and _could_be_an_id(chunk_id):
            hit = await self._fetch(chunk_id, door)
        await self._record("chunk", door, scope, [hit] if hit else [])
        return hit

    async def _fetch(self, chunk_id: str, door: Door) -> Hit | None:
        found = (await door.look_up([chunk_id])).get(chunk_id)
        if found is None or not door.admits(found):
            return None
        async for row in self._store.rows([found.document_id]):
            if row.chunk_id == chunk_id:
                return _hit(found, text=row.text, score=0.0)
        return None

    def _door(self, principal: Principal, wanted: Expression | None = None, *, by_store: bool = True) -> Door:
        scope = self._policy.filter_for(_asking(principal))
        # What the algebra says exactly, this store may still apply as a superset.
        scope = replace(scope, exact=scope.exact and self._store.capabilities.exact_filters)
        return Door(
            policy=self._policy,
            scope=scope,
            committed=self._committed,
            principal=principal,
            wanted=wanted,
            freshness=self._freshness,
            by_store=by_store,
        )

    async def _record(self, kind: Literal["search", "chunk"], door: Door, asked: Filter, hits: Sequence[Hit], query: str = "") -> None:
        if self._observe is None:
            return
        record = Retrieval(
            kind=kind,
            moment=now(),
            principal=door.principal.id,
            mode=self._policy.mode,
            policy=self._policy.digest,
            filter=asked,
            exact=door.scope.exact,
            query=query_hash(query) if query else "",
            returned=tuple(hit.chunk for hit in hits),
            refused=tuple(sorted(door.refused)),
            leaked=len(door.leaked),
        )
        await asyncio.to_thread(self._observe, record)

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


async def _collect(candidates: Candidates, door: Door, *, limit: int, per_blob: int | None) -> list[Hit]:
    """Permitted hits in fused order, asking for more candidates until there are enough or there are no more.

    What is refused must not move the scores of what is shown: by them one could ask for the words of hidden blobs. So where the filter
    admits more than may be read, or turns out to have let something through, candidates are checked before they are ranked.
    """
    hits: list[Hit] = []
    alone = limit + _SPARE if candidates.one_leg and per_blob is None else 0
    if door.scope.exact:
        hits = await _fill(candidates, door, alone or max(_FIRST_CANDIDATES, 2 * limit), limit=limit, per_blob=per_blob)
    if door.refused or not door.scope.exact:
        candidates.sieve = door.permitted
        hits = await _fill(candidates, door, alone or max(_FIRST_PERMITTED, 2 * limit), limit=limit, per_blob=per_blob)
    door.tell()
    return hits


async def _fill(candidates: Candidates, door: Door, number: int, *, limit: int, per_blob: int | None) -> list[Hit]:
    """Up to `limit` hits, of `number` candidates of each leg at first."""
    size = max(_SLICE, limit)
    while True:
        selection = Selection(limit=limit, per_blob=per_blob)
        ranked = await candidates.best(number)
        for start in range(0, len(ranked), size):
            if selection.full:
                break
            scores = dict(ranked[start : start + size])  # the whole slice, because a fresh copy may follow a stale one
            for match in await door.permitted([candidates.matches[chunk_id] for chunk_id in scores]):
                selection.add(_hit(door.chunk_of(match), text=match.text, score=scores[match.chunk_id]))
        if selection.full or candidates.exhausted:
            return selection.hits
        number = larger(number)


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
