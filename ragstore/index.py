"""The public face, asynchronous: open an index, bring it in step with its sources, ask it as a principal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

from ragstore import config
from ragstore.access import LOCAL_PRINCIPAL, principal_for
from ragstore.access.claims import GroupsClaim, Ids
from ragstore.access.claims import principal_of_claims as read_claims
from ragstore.assembly import Assembly, Connectors
from ragstore.config import ConnectorSettings, Settings
from ragstore.errors import GuardError, StoreDamagedError
from ragstore.ingest.copying import Copied
from ragstore.ingest.estimate import estimate
from ragstore.ingest.purge import Erasure
from ragstore.ingest.purge import purge as erase
from ragstore.ingest.reembed import reembed as fill_new_collection
from ragstore.ingest.refresh import refresh_access as run_access_pass
from ragstore.ingest.repair import repair_store
from ragstore.ingest.report import Clocked, Progress, SyncReport
from ragstore.ingest.sync import sync as run_pass
from ragstore.ingest.verify import Differences
from ragstore.ingest.verify import verify as compare_all
from ragstore.instrumentation import Instruments
from ragstore.ledger import KnownBlob
from ragstore.models import AttributeScalar, Hit, Principal, Prompt
from ragstore.overview import overview, quarantined, retry
from ragstore.prompting import SHIPPED, PromptBuilder
from ragstore.prompting.history import cleaned, recent
from ragstore.retrieval import AuditLog, Freshness, Observer, Quality, Retriever, Switches
from ragstore.retrieval.record import observe_all
from ragstore.retrieval.standing import Standing, contents, find, readers, standing
from ragstore.worker import Worker
from ragstore.worker.state import read_state

Answer = TypeVar("Answer")

_LAST_SYNC = "last_sync"
_PROMPT_HITS = 24
"""Candidates for a prompt; the token budget decides how many of them go in."""


def open_async(config_file: str | Path | Settings = "ragstore.toml") -> AsyncIndex:
    """The index that a configuration file (or `Settings`) describes; use it as an async context. Raises `ConfigError`."""
    settings = config_file if isinstance(config_file, Settings) else config.load(Path(config_file))
    return AsyncIndex(settings)


class AsyncIndex:
    """One index. Reading needs no lock and may go on in any number of processes; writing is for one process at a time."""

    def __init__(self, settings: Settings, connectors: Connectors | None = None) -> None:
        self._assembly = Assembly(settings, connectors)
        self._settings = settings
        self._writing = asyncio.Lock()
        self._quality = Quality(**settings.retrieval.model_dump())
        hours = settings.access.max_age_hours
        self._freshness = Freshness(max_age=hours * 3600, listed=self._assembly.ledger.listed) if hours else None
        self._observers: list[Observer] = []
        self._audit = AuditLog(settings.base / settings.access.audit) if settings.access.audit else None
        if self._audit is not None:
            self._observers.append(self._audit)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back connections, processes and threads."""
        await self._assembly.close()
        if self._audit is not None:
            self._audit.close()

    def observe(self, observer: Observer) -> None:
        """Tell this function of every answer before it is given, without content; what it raises is raised instead."""
        self._observers.append(observer)

    # Writing.

    async def sync(self, *, allow_mass_delete: bool = False, reembed: bool = False, progress: Progress | None = None) -> SyncReport:
        """Bring the index in step with its sources.

        Raises `GuardError` where a listing would delete too much, `EmbedderChangedError` where the embedder is another one and `reembed`
        does not say to pay for it, `IndexLockedError` where another process writes, `ConfigError` where a source may not be read.
        """
        async with self._writing:
            with self._assembly.ledger.writing():
                nothing_to_pay = not self._assembly.ledger.documents.counts()["chunks"]
                paid = await self._reembed(progress) if reembed or nothing_to_pay else SyncReport()
                parts = self._assembly.writing()
                self._assembly.note_access_mode(complete=False)
                report = await run_pass(parts, allow_mass_delete=allow_mass_delete, progress=progress)
                report.chunks_embedded += paid.chunks_embedded
                report.tokens += paid.tokens
                report.seconds += paid.seconds
                self._note_in_step()
                return report

    async def refresh_access(self, *, progress: Progress | None = None) -> SyncReport:
        """Bring access alone in step with the sources: tags, metadata and ACLs by listing, no content. Raises as `sync` does."""
        async with self._writing:
            with self._assembly.ledger.writing():
                self._assembly.check_access_mode()
                return await run_access_pass(self._assembly.writing(), progress=progress)

    async def follow(
        self,
        *,
        until_idle: bool = False,
        allow_mass_delete: bool = False,
        instruments: Instruments | None = None,
        started: Callable[[Worker], None] = lambda _worker: None,
    ) -> SyncReport:
        """Follow the feeds of the sources until `Worker.stop` is called, or with `until_idle` until there is nothing left to do.

        `started` is given the worker before it begins. The report counts what was applied since. Raises as `sync` does, where a feed is not
        there or may not be read `ConfigError`; what is down is waited for.
        """
        assembly = self._assembly
        clock = Clocked(SyncReport(), None)
        async with self._writing:
            with assembly.ledger.following():
                feeds = assembly.feeds()  # before a model is fetched: a package that they need may be missing
                try:
                    parts = assembly.writing()
                except BaseException:
                    for feed in feeds:
                        await feed.close()
                    raise
                assembly.note_access_mode(complete=False)
                worker = Worker(parts, feeds, instruments or Instruments(), clock, in_step=self._note_in_step)
                started(worker)
                await worker.run(until_idle=until_idle, allow_mass_delete=allow_mass_delete)
                clock.report.held_back = worker.held_back
                # Those of earlier runs too, as after a pass.
                clock.report.quarantined = sum(failure["kind"] != "transient" for failure in self.failures())
                return clock.report

    def _note_in_step(self) -> None:
        self._assembly.note_access_mode(complete=True)
        self._assembly.ledger.set_setting(_LAST_SYNC, str(time.time()))

    async def plan(self, *, progress: Progress | None = None) -> SyncReport:
        """What `sync` would do, in the same numbers, changing nothing. It reads new and changed blobs to count their chunks."""
        assembly = self._assembly
        return (await estimate(assembly.parts(assembly.configured()), progress=progress))[0]

    async def verify(self, *, repair: bool = False) -> Differences:
        """Compare sources, ledger and store; with `repair`, mend what differs and compare again."""
        assembly = self._assembly
        parts = assembly.parts(assembly.holding() or assembly.configured())
        if repair:
            assembly.check_access_mode()
            async with self._writing:
                with assembly.ledger.writing():
                    await repair_store(parts)
                    await run_pass(assembly.writing())
        return await compare_all(parts)

    async def purge(self, blob: str, *, force: bool = False) -> Erasure:
        """Erase what the index holds of one blob, `container/path` or `account/container/path`, and look whether anything is left.

        With it go the vectors, of whatever blob, whose text no chunk has any more. Raises `ConfigError` for an unknown or ambiguous name,
        `GuardError` where the blob is still in its source (unless `force`) or a worker follows feeds, `IndexLockedError` where another
        process writes. A purge that was killed is finished by the next one of the same blob.
        """
        assembly = self._assembly
        async with self._writing:
            with assembly.ledger.writing():
                self._refuse_workers("old versions of the store cannot be removed under it")
                return await erase(assembly.places(), blob, force=force)

    async def copy_to(self, store: Mapping[str, Any], *, progress: Progress | None = None) -> Copied:
        """Copy the index to the store of this `[store]` section, embedding nothing; the index goes on with the one that it has.

        What an attempt that was stopped has copied stays. Raises `ConfigError` for nothing to copy and for the store that it is in,
        `GuardError` where a worker follows feeds, `IndexLockedError` where another process writes.
        """
        assembly = self._assembly
        async with self._writing:
            with assembly.ledger.writing():
                self._refuse_workers("what they write would be missing in the copy")
                return await assembly.copy_to(ConnectorSettings.model_validate(store), Clocked(SyncReport(), progress))

    def _refuse_workers(self, why: str) -> None:
        ledger = self._assembly.ledger
        if ledger.shared and (read_state(ledger) or ledger.work.backlog().taken):
            raise GuardError(
                f"a worker is at this index, and {why}; nothing was done. "
                "Stop all workers, and run this again (one that was killed is forgotten after two minutes)"
            )

    async def _reembed(self, progress: Progress | None) -> SyncReport:
        assembly = self._assembly
        holding, configured = assembly.holding(), assembly.configured()
        if holding is None or holding.fingerprint == configured.fingerprint:
            return SyncReport()
        old, new = assembly.store(holding), assembly.store(configured)
        embedder = assembly.embedder(configured.type, configured.options)
        clock = Clocked(SyncReport(), progress)
        await fill_new_collection(assembly.ledger, old=old, new=new, embedder=embedder, clock=clock)
        assembly.hold(configured)
        await old.drop()
        return clock.report

    # Reading.

    def principal(self, name: str | None = None) -> Principal:
        """Who asks, by id or name. In mode `open` None is the local user; elsewhere a missing or unknown one is a `ConfigError`."""
        return principal_for(self._settings.access.mode, self._assembly.principals, name)

    async def principal_of_claims(
        self,
        claims: Mapping[str, object],
        *,
        groups_claim: GroupsClaim = "sometimes",
        ids: Ids = "guid",
        attributes: Mapping[str, tuple[AttributeScalar, ...]] | None = None,
        environment: Mapping[str, str | bool] | None = None,
    ) -> Principal:
        """Who a token speaks of that the caller has verified; what it leaves out is asked of the directory in `[access.graph]`.

        See `ragstore.access.claims.principal_of_claims`. Raises `AccessError` where the groups cannot be had as a whole.
        """
        directory = self._assembly.directory()
        return await read_claims(claims, directory, groups_claim=groups_claim, ids=ids, attributes=attributes, environment=environment)

    async def search(
        self,
        query: str,
        *,
        principal: Principal,
        limit: int = 8,
        filter: str | None = None,
        per_blob: int | None = None,
        legs: Literal["both", "vector", "text"] = "both",
        **switches: Unpack[Switches],
    ) -> list[Hit]:
        """Up to `limit` hits that this principal may read, best first. See `ragstore.retrieval.Retriever.search`.

        `switches` say what is other than in `[retrieval]`: `fusion`, `vector_weight`, `near_duplicates`, `mmr`, `half_life_days`,
        `neighbours`, `rerank`; see `ragstore.retrieval.Quality`. Raises `StoreDamagedError` where the store has lost its rows: that is
        another answer than finding nothing.
        """
        asked = {"principal": principal, "limit": limit, "filter": filter, "per_blob": per_blob, "legs": legs, **switches}
        return await self._hits(query, asked)

    async def chunk(self, chunk_id: str, *, principal: Principal) -> Hit | None:
        """One chunk by its id; None where there is none, and where this principal may not read it."""
        return await self._ask(lambda retriever: retriever.chunk(chunk_id, principal=principal))

    async def readable(self, chunk_ids: Collection[str], *, principal: Principal) -> frozenset[str]:
        """Those of these chunks that this principal may read now; absent ones and forbidden ones are left out alike."""
        return await self._ask(lambda retriever: retriever.readable(chunk_ids, principal=principal))

    async def prompt(
        self,
        query: str,
        *,
        principal: Principal,
        max_tokens: int | None = None,
        limit: int = _PROMPT_HITS,
        filter: str | None = None,
        per_blob: int | None = None,
        legs: Literal["both", "vector", "text"] = "both",
        template: str | None = None,
        history: Sequence[Mapping[str, str]] = (),
        wishes: str = "",
        look_up: str | None = None,
        **switches: Unpack[Switches],
    ) -> Prompt:
        """Messages for a model, with numbered citations, in at most `max_tokens` tokens (default: `[prompt] max_tokens`).

        - `template` is "answer", "summarise", "chat" or a file; by default `[prompt] template`, or else "chat" where there is a history.
        - `history`: earlier messages, `{"role": "user" | "assistant", "content": ...}`. What a client sends there is untrusted: it is
          never evidence, and this question alone is looked up, anew, as this principal.
        - `wishes`: how the answer should be, such as in which language; below the rules of the template.
        - `look_up`: what is looked up instead of the question, such as "and in Berlin?" put so that it stands alone. It is a query and
          nothing else: the prompt holds the question.
        - `per_blob`, `legs` and `switches` as of `search`. Neighbours of a hit go in right behind it, each whole as far as the budget goes.
        """
        asked = {"principal": principal, "limit": limit, "filter": filter, "per_blob": per_blob, "legs": legs, "join": False, **switches}
        hits = await self._hits(query if look_up is None else look_up, asked)
        settings = self._settings.prompt
        named = template or settings.template or ("chat" if history else "answer")
        builder = PromptBuilder(count_tokens=await self._assembly.counting(), template=SHIPPED.get(named, self._settings.base / named))
        return builder.build(query, hits, max_tokens=max_tokens or settings.max_tokens, history=history, wishes=wishes)

    async def earlier(self, history: Sequence[Mapping[str, str]], *, max_tokens: int | None = None) -> list[dict[str, str]]:
        """Those of these messages that `prompt` puts before the question, as they stand there; for who asks a model for its `look_up`."""
        count, most = await self._assembly.counting(), max_tokens or self._settings.prompt.max_tokens
        return recent(cleaned(history), max_tokens=most, count=lambda text: count([text])[0])[0]

    async def _hits(self, query: str, asked: Mapping[str, Any]) -> list[Hit]:
        hits = await self._ask(lambda retriever: retriever.search(query, **asked), rerank=asked.get("rerank", self._quality.rerank))
        if not hits:
            await self._refuse_lost_rows()
        return hits

    async def _ask(self, question: Callable[[Retriever], Awaitable[Answer]], *, rerank: bool | None = False) -> Answer:
        """The answer of the collection that is there now: one replaced meanwhile (`reembed`) may have been gone when it answered.

        A question that will not be reranked does not wait for that model to be loaded.
        """
        assembly = self._assembly
        while True:
            embedder, store = assembly.reading()
            retriever = Retriever(
                store=store,
                embedder=embedder,
                policy=assembly.policy,
                committed=assembly.ledger.documents.committed,
                at_once=assembly.ledger.documents.committed_at_once,
                reranker=None if rerank is False else assembly.reranker(),
                freshness=self._freshness,
                observe=observe_all(self._observers),
                quality=self._quality,
                around=assembly.ledger.documents.beside,
            )
            answer = await question(retriever)
            if assembly.reading()[1] is store:
                return answer

    async def _refuse_lost_rows(self) -> None:
        held = await self._assembly.reading()[1].stats()
        if not held.rows and self._assembly.ledger.documents.counts()["chunks"]:
            # Whoever asks may be anybody, and how many there are is not for everybody.
            raise StoreDamagedError("the store has lost all that is indexed; bring it back, or make it anew with: ragstore verify --repair")

    # Seeing who may read what: for whoever may see the policy.

    async def explain(self, blob: str, *, principal: Principal) -> Standing:
        """Why this principal is, or is not, shown the chunks of a blob (`container/path`). Raises `ConfigError` for an unknown blob."""
        return await asyncio.to_thread(self._explain, blob, principal)

    def _explain(self, blob: str, principal: Principal) -> Standing:
        known = find(self._assembly.ledger.documents, blob)
        return standing(known, self._assembly.policy, principal, fresh=self._is_fresh(known))

    async def readers(self, blob: str) -> list[tuple[Principal, bool]]:
        """Each known principal, and whether it is shown the chunks of this blob."""
        return await asyncio.to_thread(self._readers, blob)

    def _readers(self, blob: str) -> list[tuple[Principal, bool]]:
        known = find(self._assembly.ledger.documents, blob)
        return readers(known, self._assembly.policy, self._assembly.principals.all(), fresh=self._is_fresh(known))

    async def contents(self, *, principal: Principal) -> dict[str, list[str]]:
        """The blobs that this principal is shown, `container/path`, with the ids of their chunks in document order."""
        documents, policy = self._assembly.ledger.documents, self._assembly.policy
        return await asyncio.to_thread(contents, documents, policy, principal, is_fresh=self._is_fresh)

    def _is_fresh(self, known: KnownBlob) -> bool:
        ledger = self._assembly.ledger
        return self._freshness is None or self._freshness.holds(known.id, ledger.documents.seen_at(known.document_id), ledger.listed())

    # Seeing what is there.

    async def status(self) -> dict[str, Any]:
        """Plain JSON values: counts, feeds, embedder, store."""
        last = self._assembly.ledger.setting(_LAST_SYNC)
        return await overview(self._assembly, last_sync=float(last) if last else None)

    async def ready(self) -> None:
        """Whether a question could be answered now: raises as `search` does where ledger, policy, model or store is not there."""
        embedder, _ = self._assembly.reading()
        if self._quality.rerank is not False:
            self._assembly.reranker()
        self._assembly.principals.all()
        self._assembly.policy.filter_for(LOCAL_PRINCIPAL)
        await asyncio.gather(self._assembly.warm(embedder), self._refuse_lost_rows())

    def failures(self) -> list[dict[str, Any]]:
        """Blobs that could not be indexed, oldest first: `{"blob", "kind", "reason", "attempts", "since"}`."""
        return quarantined(self._assembly.ledger)

    def retry_failures(self, blob: str | None = None) -> int:
        """Have the next pass try these again (all, or the blob `container/path`), or the worker, where one runs. Returns how many."""
        return retry(self._assembly.ledger, blob)

    def drop_failures(self, blob: str | None = None) -> int:
        """Report these no more until the blob changes. Returns how many."""
        return self._assembly.ledger.quarantine.dismiss(blob)

    @property
    def settings(self) -> Settings:
        """What the index was opened with."""
        return self._settings
