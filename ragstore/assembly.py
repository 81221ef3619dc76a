"""Settings in, the parts of an index out: connectors are built when they are first needed, and with the embedder that the index holds."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragstore import plugins
from ragstore.access import open_policy, open_principals
from ragstore.access.acl_table import AclTables
from ragstore.access.directory import CachedDirectory
from ragstore.chunking import Chunker
from ragstore.config import ConnectorSettings, Settings
from ragstore.contracts import Embedder, Feed, GroupResolver, Reranker, Source, Store
from ragstore.conversations import Conversations
from ragstore.errors import ConfigError, EmbedderChangedError
from ragstore.ingest.copying import Copied, copy_index
from ragstore.ingest.parts import Parts
from ragstore.ingest.purge import Places
from ragstore.ingest.report import Clocked
from ragstore.ledger import Ledger
from ragstore.ledger.connection import spool_folder, state_folder
from ragstore.parsing import ParserPool
from ragstore.prompting import count_by

_ACCESS_MODE = "access_mode"
_LISTING = "listing"
_SPECIAL_TOKENS = 2
"""A model of the BERT family puts one token before and one after a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Which embedder's vectors the index holds, and in which collection of the store."""

    fingerprint: str
    dimensions: int
    collection: str
    type: str
    options: Mapping[str, Any]


class Connectors:
    """Builds connectors from settings. Tests give a subclass that wraps what it builds."""

    def source(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Source:
        """The source of this type."""
        built: Source = plugins.build("sources", kind, options, base=settings.base)
        return built

    def feed(self, kind: str, options: Mapping[str, Any], settings: Settings, *, source: Source, source_options: Mapping[str, Any]) -> Feed:
        """The feed of this type over a source."""
        built: Feed = plugins.build("feeds", kind, options, base=settings.base, source=source, source_options=source_options)
        return built

    def embedder(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Embedder:
        """The embedder of this type."""
        built: Embedder = plugins.build("embedders", kind, options, base=settings.base)
        return built

    def reranker(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Reranker:
        """The reranker of this type."""
        built: Reranker = plugins.build("rerankers", kind, options, base=settings.base)
        return built

    def store(self, settings: Settings, *, collection: str, dimensions: int) -> Store:
        """A collection of the configured store."""
        section = settings.store
        context = {"base": settings.base, "collection": collection, "dimensions": dimensions}
        built: Store = plugins.build("stores", section.type, section.options, **context)
        return built

    def directory(self, kind: str, options: Mapping[str, Any], settings: Settings) -> GroupResolver:
        """The directory of this type. A credential is the host's to give, and cannot be written into a file."""
        built: GroupResolver = plugins.build("directories", kind, options, base=settings.base, credential=None)
        return built


class Assembly:
    """The parts of one index. Everything that is built here is closed here."""

    def __init__(self, settings: Settings, connectors: Connectors | None = None) -> None:
        """Opens the ledger and reads the policy; raises `ConfigError` where either is wrong."""
        self.settings = settings
        self._connectors = connectors or Connectors()
        self._warm: set[str] = set()
        access = settings.access.model_dump(exclude={"graph"})
        self.policy = open_policy(access, settings.base, acls=AclTables(lambda: self.ledger.acls))
        self.principals = open_principals(access, settings.base)
        self.ledger = Ledger(settings.ledger.url, base=settings.base)
        self._spool = spool_folder(
            state_folder(settings.ledger.url, settings.base), owner=self.ledger.owner if self.ledger.shared else None
        )
        self._embedders: dict[str, Embedder] = {}
        self._reranker: Reranker | None = None
        self._stores: dict[str, Store] = {}
        self._sources: list[Source] | None = None
        self._parsers: ParserPool | None = None
        self._directory: CachedDirectory | None = None
        self._count_tokens: Callable[[Sequence[str]], list[int]] | None = None

    def holding(self) -> Holding | None:
        """What the index holds; None before the first pass."""
        text = self.ledger.setting("embedder")
        return Holding(**json.loads(text)) if text else None

    def hold(self, holding: Holding) -> None:
        """From now on searches use this embedder and this collection."""
        self.ledger.set_setting("embedder", json.dumps(asdict(holding)))

    def configured(self) -> Holding:
        """What the index would hold after a pass with the configured embedder."""
        if self.settings.source:
            self.sources()  # before a model is fetched: whatever is wrong with them is told at once
        section = self.settings.embedder
        embedder = self.embedder(section.type, section.options)
        digest = hashlib.blake2b(embedder.fingerprint.encode(), digest_size=4).hexdigest()
        return Holding(
            fingerprint=embedder.fingerprint,
            dimensions=embedder.dimensions,
            collection=f"chunks-{self._index_id()}-{digest}",
            type=section.type,
            options=section.options,
        )

    def embedder(self, kind: str, options: Mapping[str, Any]) -> Embedder:
        """An embedder, built once."""
        key = json.dumps([kind, options], sort_keys=True, default=str)
        if key not in self._embedders:
            self._embedders[key] = self._connectors.embedder(kind, options, self.settings)
        return self._embedders[key]

    def reranker(self) -> Reranker | None:
        """What `[reranker]` names, built once; None where there is no such section. Its model is no part of the index and may change."""
        section = self.settings.reranker
        if section is not None and self._reranker is None:
            self._reranker = self._connectors.reranker(section.type, section.options, self.settings)
        return self._reranker

    def store(self, holding: Holding) -> Store:
        """A collection of the store, opened once."""
        if holding.collection not in self._stores:
            self._stores[holding.collection] = self._connectors.store(
                self.settings, collection=holding.collection, dimensions=holding.dimensions
            )
        return self._stores[holding.collection]

    def reading(self) -> tuple[Embedder, Store]:
        """The embedder and the store that answer now, which are those that the index holds, not those configured for the next pass."""
        holding = self.holding()
        if holding is None:
            raise ConfigError("nothing is indexed yet; run: ragstore index")
        self.check_access_mode()
        embedder = self.embedder(holding.type, holding.options)
        if embedder.fingerprint != holding.fingerprint:
            raise EmbedderChangedError(
                f"the embedder {holding.type!r} is not what it was when this index was made (then {holding.fingerprint!r}, now "
                f"{embedder.fingerprint!r}); bring the model back, or run: ragstore index --reembed"
            )
        return embedder, self.store(holding)

    async def counting(self) -> Callable[[Sequence[str]], list[int]]:
        """What counts the tokens of a prompt: the tokenizer in `[prompt]`, read once, or else the embedder of the index."""
        tokenizer = self.settings.prompt.tokenizer
        if tokenizer and self._count_tokens is None:
            self._count_tokens = await asyncio.to_thread(count_by, self.settings.base / tokenizer)
        return self._count_tokens or self.reading()[0].count_tokens

    async def warm(self, embedder: Embedder) -> None:
        """Have it embed a word, once: what it was built from may be opened, or asked whether it is there, by the first text alone."""
        if embedder.fingerprint not in self._warm:
            await embedder.embed(["ready"], purpose="query")
            self._warm.add(embedder.fingerprint)

    def note_access_mode(self, *, complete: bool) -> None:
        """Remember under which mode the index is made: access control from the beginning of a pass, `open` when one has come to its end."""
        if complete or self.policy.mode != "open":
            self.ledger.set_setting(_ACCESS_MODE, self.policy.mode)

    def check_access_mode(self) -> None:
        """A configuration that was lost or mistaken for another must not open what one with access control has indexed: `ConfigError`."""
        made_with = self.ledger.setting(_ACCESS_MODE)
        if self.policy.mode == "open" and made_with not in {None, "open"}:
            raise ConfigError(
                f"this index was made with [access] mode = {made_with!r}, and is now asked with 'open', by which everybody may read all of "
                "it; name the configuration it was made with (--config FILE), or, if everybody may, run with this one: ragstore index"
            )

    def writing(self) -> Parts:
        """The parts for a pass. Raises `EmbedderChangedError` where the configured embedder is not the one that the index holds."""
        configured = self.configured()
        holding = self.holding()
        if holding is None:
            self.hold(configured)
        elif holding.fingerprint != configured.fingerprint:
            counts = self.ledger.documents.counts()
            raise EmbedderChangedError(
                f"the index holds vectors of {holding.fingerprint!r}, and [embedder] is {configured.fingerprint!r}: "
                f"{counts['chunks']} chunks would have to be embedded again. To do so: ragstore index --reembed "
                "(searches use the old vectors until it is done). "
                f"To keep the index as it is, let [embedder] be {_section(holding)} again"
            )
        return self.parts(configured)

    def parts(self, holding: Holding) -> Parts:
        """The parts for reading and writing this collection."""
        embedder = self.embedder(holding.type, holding.options)
        return Parts(
            settings=self.settings,
            sources=self.sources(),
            ledger=self.ledger,
            store=self.store(holding),
            embedder=embedder,
            policy=self.policy,
            chunker=self._chunker(embedder),
            parsers=self._parser_pool(),
            spool=self._spool,
        )

    async def copy_to(self, section: ConnectorSettings, clock: Clocked) -> Copied:
        """Copy what the index holds to a store of this section, and close that again. Raises `ConfigError` for the store that it is in."""
        holding = self.holding()
        if holding is None:
            raise ConfigError("nothing is indexed yet, so there is nothing to copy; run: ragstore index")
        if section == self.settings.store:
            raise ConfigError("that is the store that the index is in; name another one")
        settings = self.settings.model_copy(update={"store": section})
        other = self._connectors.store(settings, collection=holding.collection, dimensions=holding.dimensions)
        try:
            columns = lambda access, media_type: self.policy.columns(access, media_type=media_type)  # noqa: E731 - a method with its keyword
            return await copy_index(self.ledger, old=self.store(holding), new=other, columns=columns, clock=clock)
        finally:
            await other.close()

    def places(self) -> Places:
        """Where anything of a blob may be. An embedder is built only where another one than that of the index is configured."""
        holding, section = self.holding(), self.settings.embedder
        held = [] if holding is None else [holding]
        if holding is not None and (holding.type, dict(holding.options)) != (section.type, dict(section.options)):
            held.append(self.configured())  # a `--reembed` that was stopped has filled some of it
        return Places(
            ledger=self.ledger,
            stores=list({each.collection: self.store(each) for each in held}.values()),
            spool=state_folder(self.settings.ledger.url, self.settings.base) / "spool",
            conversations=Conversations(conversations_file(self.settings), keep_days=self.settings.chat.keep_days),
            sources=self.sources() if self.settings.source else [],
        )

    def sources(self) -> list[Source]:
        """The configured sources. Raises `ConfigError` for none, and for two of the same container."""
        if self._sources is None:
            if not self.settings.source:
                raise ConfigError("there is no [source]; name one in ragstore.toml, or say: ragstore index FOLDER")
            built = [self._connectors.source(section.type, split(section).options, self.settings) for section in self.settings.source]
            places = [(source.account, source.container) for source in built]
            for place in places:
                if places.count(place) > 1:
                    raise ConfigError(f"two sources are the container {place[1]!r} of account {place[0]!r}; give one of them another name")
            self._sources = built
        return self._sources

    def feeds(self) -> list[Feed]:
        """New feeds over the configured sources, which the caller closes; none for a source that is only listed."""
        found = []
        for section, source in zip(self.settings.source, self.sources(), strict=True):
            parts = split(section)
            for kind, options in parts.feeds.items():
                found.append(self._connectors.feed(kind, options, self.settings, source=source, source_options=parts.options))
        return found

    def directory(self) -> CachedDirectory | None:
        """The directory of `[access.graph]`, whose answers are kept for `cache_seconds` (default 300); None where none is configured."""
        section = self.settings.access.graph
        if section is not None and self._directory is None:
            options = section.options
            seconds = options.pop("cache_seconds", 300)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                raise ConfigError(f"[access.graph] cache_seconds = {seconds!r} must be a number: how long a revocation may go unnoticed")
            self._directory = CachedDirectory(self._connectors.directory(section.type, options, self.settings), seconds=seconds)
        return self._directory

    async def close(self) -> None:
        """Give back everything that was built."""
        if self._parsers is not None:
            await self._parsers.close()
        parts: list[Source | Embedder | Reranker | Store | CachedDirectory] = [
            *(self._sources or []),
            *self._embedders.values(),
            *self._stores.values(),
        ]
        parts += [part for part in (self._reranker, self._directory) if part is not None]
        for part in parts:
            await part.close()
        if self.ledger.shared:
            shutil.rmtree(self._spool, ignore_errors=True)
        self.ledger.close()

    def _chunker(self, embedder: Embedder) -> Chunker:
        chunking = self.settings.chunking
        if chunking.size + _SPECIAL_TOKENS > embedder.max_tokens:
            raise ConfigError(
                f"[chunking] size = {chunking.size} is more than the embedder {self.settings.embedder.type!r} reads: it takes "
                f"{embedder.max_tokens} tokens, special ones included; set size to {embedder.max_tokens - _SPECIAL_TOKENS} or less"
            )
        return Chunker(size=chunking.size, count_tokens=embedder.count_tokens, min_ratio=chunking.min_ratio, scripts=embedder.scripts)

    def _parser_pool(self) -> ParserPool:
        if self._parsers is None:
            parsing = self.settings.parsing
            self._parsers = ParserPool(workers=parsing.workers, seconds=parsing.seconds, memory=parsing.memory, text=parsing.text)
        return self._parsers

    def _index_id(self) -> str:
        """Tells the collections of two indexes apart that share a store; a lost ledger starts a collection of its own."""
        return self.ledger.setting("index_id") or self.ledger.set_default("index_id", secrets.token_hex(4))


def conversations_file(settings: Settings) -> Path:
    """Where `ragstore serve` keeps conversations: beside the ledger, or as `[chat] conversations` says."""
    named = settings.chat.conversations
    return settings.base / named if named else state_folder(settings.ledger.url, settings.base) / "conversations.db"


def _section(holding: Holding) -> str:
    """The section as it stands in a file, on one line."""
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in {"type": holding.type, **holding.options}.items()) + "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceParts:
    """A source's section taken apart."""

    options: Mapping[str, Any]
    """What the source's connector is built with."""
    feeds: Mapping[str, Mapping[str, Any]]
    """The options of each feed that follows it, by the feed's type."""


def split(section: ConnectorSettings) -> SourceParts:
    """`feed` names one feed or several, `listing` for none; a table of a feed's name inside the section holds its options.

    Raises `ConfigError` for an unknown feed, and for options of a feed that is not followed.
    """
    options = section.options
    named = options.pop("feed", _LISTING)
    kinds = [named] if isinstance(named, str) else named
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise ConfigError(f"[source] feed = {named!r} is no name and no list of names, such as {_LISTING!r}")
    known = plugins.names("feeds")
    for kind in kinds:
        if kind not in {*known, _LISTING}:
            raise ConfigError(f"[source] feed = {kind!r} is unknown; choose of {', '.join([_LISTING, *known])}")
    feeds = {kind: options.pop(kind, {}) for kind in dict.fromkeys(kinds) if kind != _LISTING}
    for kind, table in feeds.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"[source] {kind} = {table!r}: the options of a feed are a table, [source.{kind}]")
    for kind in known:
        if kind in options:
            raise ConfigError(
                f"[source.{kind}] has options, but the feed is not followed: write feed = {kind!r}, or feed = [..., {kind!r}]"
            )
    return SourceParts(options=options, feeds=feeds)
