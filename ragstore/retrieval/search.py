"""A query and a principal in, hits out: every one of them committed, checked again, and readable by this principal now."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, Unpack, cast

from ragstore import tracing
from ragstore.access.policy import Policy
from ragstore.contracts import Embedder, Reranker, Store
from ragstore.errors import AccessError, ConfigError, QueryError
from ragstore.filters import ALWAYS, Filter, Never, all_of, simplify
from ragstore.models import CommittedChunk, Hit, Principal, Row
from ragstore.retrieval.candidates import Candidates, Legs, check_legs, larger
from ragstore.retrieval.diversity import Selecting
from ragstore.retrieval.door import Committed, CommittedAtOnce, Door, Freshness
from ragstore.retrieval.expression import Expression, to_filter
from ragstore.retrieval.quality import Quality, Switches
from ragstore.retrieval.record import Observer, Retrieval, now, query_hash
from ragstore.retrieval.reordering import boosted, diverse
from ragstore.retrieval.reranking import reranked
from ragstore.retrieval.surroundings import Around, Widened, widened
from ragstore.retrieval.syntax import parse

MAX_LIMIT: Final = 1000
_FIRST_CANDIDATES: Final = 100
_FIRST_PERMITTED: Final = 32
"""Of each leg, where candidates are checked before they are ranked."""
_SPARE: Final = 4
"""Beyond the limit, where one leg alone answers and no rank depends on another: for texts that are there twice."""
_SLICE: Final = 16
_RERANKED: Final = 50
"""The least that is put into another order: what is better may stand behind what will be shown."""
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
        at_once: CommittedAtOnce | None = None,
        reranker: Reranker | None = None,
        freshness: Freshness | None = None,
        observe: Observer | None = None,
        quality: Quality = Quality(),  # noqa: B008 - frozen
        around: Around | None = None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._policy = policy
        self._committed = committed
        self._at_once = at_once
        self._reranker = reranker
        self._freshness = freshness
        self._observe = observe
        self._quality = quality
        self._around = around

    async def search(
        self,
        query: str,
        *,
        principal: Principal,
        limit: int = 8,
        filter: str | Expression | None = None,
        per_blob: int | None = None,
        legs: Legs = "both",
        join: bool = True,
        **switches: Unpack[Switches],
    ) -> list[Hit]:
        """Up to `limit` hits, best first; fewer only where no more can be found.

        - `filter` narrows what the principal may read (syntax: `retrieval.syntax`); it can never widen it.
        - `per_blob` is the most hits of one blob; of equal texts only one is returned.
        - `switches` say what is other than configured for this query; see `Quality`. All of them work on permitted hits only.
        - With `join`, the neighbours of a hit are joined to its text and its span; without, they come behind it as hits of their own,
          beyond the limit.
        - Scores are comparable within one answer only: fused, those of the one leg that was asked, or the reranker's.
        - A reranker that fails costs its order and not the answer (see `reranking`); one that is set up wrongly raises `ConfigError`.
        - Raises `QueryError` for a blank query, a limit outside 1 to 1000 or a filter that does not parse, `AccessError` without a
          principal or where the policy or the ledger cannot be reached, `TransientError` where the store cannot.
        """
        words = _checked(query, limit=limit, per_blob=per_blob)
        quality = replace(self._quality, **switches)
        check_legs(legs, self._store)
        reranker = self._reranker_for(quality)
        wanted = parse(filter) if isinstance(filter, str) else filter
        door = self._door(principal, wanted)
        admitted = simplify(all_of((door.scope.filter, ALWAYS if wanted is None else to_filter(wanted)[0])))
        hits: list[Hit] = []
        if not isinstance(admitted, Never):
            candidates = Candidates(
                store=self._store,
                embedder=self._embedder,
                query=words,
                filter=admitted,
                legs=legs,
                fusion=quality.fusion,
                vector_weight=quality.vector_weight,
            )
            hits = await self._best(candidates, door, quality, reranker, limit=limit, per_blob=per_blob)
            door.tell()
        found = await self._widened(hits, door, quality.neighbours)
        shown = [part for each in found for part in (each.hit, *each.beside)]
        await self._record("search", door, admitted, [hit.chunk for hit in shown], query=words)
        return [each.joined() for each in found] if join else shown

    async def chunk(self, chunk_id: str, *, principal: Principal) -> Hit | None:
        """One chunk by its id, or None: missing, not committed and forbidden look the same. Its score is 0.

        Raises `AccessError` as `search` does.
        """
        door = self._door(principal, by_store=False)
        scope = simplify(door.scope.filter)
        hit = None
        if not isinstance(scope, Never) and _could_be_an_id(chunk_id):
            hit = await self._fetch(chunk_id, door)
        await self._record("chunk", door, scope, [hit.chunk] if hit else [])
        return hit

    async def readable(self, chunk_ids: Collection[str], *, principal: Principal) -> frozenset[str]:
        """Those of these chunks that may be read now: missing, not committed and forbidden ones are left out alike.

        For whoever kept what was made of them. Raises `AccessError` as `search` does.
        """
        door = self._door(principal, by_store=False)
        scope = simplify(door.scope.filter)
        asked = [] if isinstance(scope, Never) else [chunk_id for chunk_id in dict.fromkeys(chunk_ids) if _could_be_an_id(chunk_id)]
        found = await door.look_up(asked)
        admitted = [chunk_id for chunk_id, chunk in found.items() if door.admits(chunk)]
        await self._record("readable", door, scope, admitted)
        return frozenset(admitted)

    async def _fetch(self, chunk_id: str, door: Door) -> Hit | None:
        with tracing.step("access.check", proposed=1):
            found = (await door.look_up([chunk_id])).get(chunk_id)
            if found is None or not door.admits(found):
                return None
        row = (await self._rows([found])).get(chunk_id)
        return None if row is None else _hit(found, text=row.text, score=0.0)

    def _door(self, principal: Principal, wanted: Expression | None = None, *, by_store: bool = True) -> Door:
        scope = self._policy.filter_for(_asking(principal))
        # What the algebra says exactly, this store may still apply as a superset.
        scope = replace(scope, exact=scope.exact and self._store.capabilities.exact_filters)
        return Door(
            policy=self._policy,
            scope=scope,
            committed=self._committed,
            at_once=self._at_once,
            principal=principal,
            wanted=wanted,
            freshness=self._freshness,
            by_store=by_store,
        )

    async def _record(
        self, kind: Literal["search", "chunk", "readable"], door: Door, asked: Filter, returned: Sequence[str], query: str = ""
    ) -> None:
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
            returned=tuple(returned),
            refused=tuple(sorted(door.refused)),
            leaked=len(door.leaked),
        )
        await asyncio.to_thread(self._observe, record)

    def _reranker_for(self, quality: Quality) -> Reranker | None:
        if quality.rerank and self._reranker is None:
            raise QueryError("there is no reranker here that could be asked for: leave rerank out, or name one in [reranker]")
        return None if quality.rerank is False else self._reranker

    async def _best(
        self, candidates: Candidates, door: Door, quality: Quality, reranker: Reranker | None, *, limit: int, per_blob: int | None
    ) -> list[Hit]:
        """Permitted hits in the order that reranker, recency and diversity give to a pool of those with the best scores."""
        if reranker is None and not quality.reorders:
            return await _collect(candidates, door, Selecting(limit=limit, per_blob=per_blob, near_duplicates=quality.near_duplicates))
        size = max(_RERANKED, 2 * limit if quality.reorders else limit)
        while True:
            # So many of each blob that, however they are reordered, enough are left of a pool that is full.
            share = per_blob * size // limit if per_blob and reranker else None
            pool = await _collect(candidates, door, Selecting(limit=size, per_blob=share))
            hits = pool if reranker is None else await reranked(reranker, candidates.query, pool)
            if quality.half_life_days:
                modified = {hit.chunk: chunk.modified for hit in hits if (chunk := door.known[hit.chunk]) and chunk.modified}
                hits = boosted(hits, modified, half_life_days=quality.half_life_days, now=now())
            selection = Selecting(limit=size, per_blob=per_blob, near_duplicates=quality.near_duplicates).begin()
            for hit in hits:
                selection.add(hit)
            # A larger pool is no matter of cost but where each text of it is sent to a reranker.
            if len(selection.hits) >= limit or len(pool) < size or reranker is not None:
                break
            size *= 2
        if quality.mmr == 1:
            return selection.hits[:limit]
        rows = await self._rows([chunk for hit in selection.hits if (chunk := door.known[hit.chunk])])
        vectors = {chunk_id: row.vector for chunk_id, row in rows.items()}
        return await asyncio.to_thread(diverse, selection.hits, vectors, relevance=quality.mmr, limit=limit)

    async def _widened(self, hits: Sequence[Hit], door: Door, number: int) -> list[Widened]:
        """The hits with up to so many neighbours on each side, which pass the door as they did. Raises `AccessError` as `search` does."""
        if not number or not hits:
            return [Widened(hit=hit, beside=()) for hit in hits]
        if self._around is None:
            raise ConfigError("neighbours cannot be found here: nobody said in which order the chunks of a document stand")
        try:
            with tracing.step("ledger.neighbours", hits=len(hits)):
                around = await asyncio.to_thread(self._around, [hit.chunk for hit in hits], number)
        except Exception as error:
            raise AccessError("the ledger cannot be reached, so nothing can be shown; try again when it is back") from error
        asked = replace(door, by_store=False)  # with the same memory; of what no store proposes, none can leak

        async def permitted(chunk_ids: Sequence[str]) -> Mapping[str, Hit]:
            found = [chunk for chunk in (await asked.look_up(chunk_ids)).values() if asked.admits(chunk)]
            rows = await self._rows(found)
            return {chunk.chunk_id: _hit(chunk, text=rows[chunk.chunk_id].text, score=0.0) for chunk in found if chunk.chunk_id in rows}

        return await widened(hits, around, permitted)

    async def _rows(self, chunks: Sequence[CommittedChunk]) -> dict[str, Row]:
        """The stored rows of these chunks, by chunk id. A store gives whole documents, so a long one takes its time."""
        documents = {chunk.chunk_id: chunk.document_id for chunk in chunks}
        found: dict[str, Row] = {}
        if not documents:
            return found
        with tracing.step("store.rows", chunks=len(documents)):
            async for row in self._store.rows(sorted(set(documents.values()))):
                if documents.get(row.chunk_id) == row.document_id:
                    found[row.chunk_id] = row
                if len(found) == len(documents):
                    break
        return found


async def _collect(candidates: Candidates, door: Door, selecting: Selecting) -> list[Hit]:
    """Permitted hits in fused order, asking for more candidates until there are enough or there are no more.

    What is refused must not move the scores of what is shown: by them one could ask for the words of hidden blobs. So where the filter
    admits more than may be read, or turns out to have let something through, candidates are checked before they are ranked.
    """
    hits: list[Hit] = []
    limit = selecting.limit
    alone = limit + _SPARE if candidates.one_leg and selecting.only_copies else 0
    if door.scope.exact:
        hits = await _fill(candidates, door, alone or max(_FIRST_CANDIDATES, 2 * limit), selecting)
    if door.refused or not door.scope.exact:
        candidates.sieve = door.permitted
        first = _FIRST_CANDIDATES if door.scope.exact else _FIRST_PERMITTED  # a refusal must not show in how many were ranked
        hits = await _fill(candidates, door, alone or max(first, 2 * limit), selecting)
    return hits


async def _fill(candidates: Candidates, door: Door, number: int, selecting: Selecting) -> list[Hit]:
    """Up to the limit of hits, of `number` candidates of each leg at first."""
    size = max(_SLICE, selecting.limit + _SPARE)
    while True:
        selection = selecting.begin()
        ranked = await candidates.best(number)
        # A store that lags behind shows what may not be read any more, also where it ranks too low to be looked at and yet moves others.
        besides = [match.chunk_id for match in candidates.measures]
        for start in range(0, len(ranked), size):
            if selection.full:
                break
            scores = dict(ranked[start : start + size])  # the whole slice, because a fresh copy may follow a stale one
            looked_at = dict.fromkeys([*scores, *besides])
            besides = []
            for match in await door.permitted([candidates.matches[chunk_id] for chunk_id in looked_at]):
                if match.chunk_id in scores:
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


def _checked(query: str, *, limit: int, per_blob: int | None) -> str:
    """The query as every store and tokenizer can take it."""
    words = query.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
    if not words:
        raise QueryError("the query is blank: say what to look for")
    if not 1 <= limit <= MAX_LIMIT:
        raise QueryError(f"limit must be between 1 and {MAX_LIMIT}, not {limit}")
    if per_blob is not None and per_blob < 1:
        raise QueryError(f"per_blob must be at least 1, not {per_blob}")
    return words
