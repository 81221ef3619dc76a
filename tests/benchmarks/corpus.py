"""A number of files in, a folder with as many documents, their tags and an index over them out, with counters at embedder and store."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

import ragstore
from ragstore import config
from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.contracts import Embedder, Store, TextQuery, VectorQuery, Write
from ragstore.filters import Filter
from ragstore.models import Match, Row, RowKey
from ragstore.testing.faults import CrashingStore

DIMENSIONS = 384
_ROOT = Path(__file__).parents[2]
_SUBSET = 300


class TimedEmbedder(Embedder):
    """Passes everything on; counts texts and the seconds inside `embed`."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.fingerprint = embedder.fingerprint
        self.dimensions = embedder.dimensions
        self.max_tokens = embedder.max_tokens
        self.price_per_million_tokens = embedder.price_per_million_tokens
        self.scripts = embedder.scripts
        self.unrelated_cosine = embedder.unrelated_cosine
        self.texts = 0
        self.seconds = 0.0

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        begin = time.perf_counter()
        vectors = await self._embedder.embed(texts, purpose=purpose)
        self.seconds += time.perf_counter() - begin
        self.texts += len(texts)
        return vectors

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._embedder.count_tokens(texts)

    @override
    async def close(self) -> None:
        await self._embedder.close()


def _ignore(_writes: Sequence[Write]) -> None:
    """Nothing happens before or after a write."""


class WatchedStore(CrashingStore):
    """Passes everything on; counts the calls that read or write rows."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, before=_ignore, after=_ignore)
        self.calls = 0

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        self.calls += 1
        await super().apply(writes)

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        self.calls += 1
        return await super().search(query, filter=filter, limit=limit)

    @override
    def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        self.calls += 1
        return super().rows(document_ids)

    @override
    def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        self.calls += 1
        return super().keys(document_ids)


class Watched(Connectors):
    """Real connectors with counters around embedder and store."""

    embedders: list[TimedEmbedder]
    stores: list[WatchedStore]

    def __init__(self) -> None:
        self.embedders, self.stores = [], []

    @override
    def embedder(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Embedder:
        self.embedders.append(TimedEmbedder(super().embedder(kind, options, settings)))
        return self.embedders[-1]

    @override
    def store(self, settings: Settings, *, collection: str, dimensions: int) -> Store:
        self.stores.append(WatchedStore(super().store(settings, collection=collection, dimensions=dimensions)))
        return self.stores[-1]


class Corpus:
    """`docs/` under a base folder, each document readable for one group; the index has the default store and `hash` vectors."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.docs = base / "docs"
        self.docs.mkdir()
        self.tags: dict[str, str] = {}
        self.save_tags()
        self.watched = Watched()

    def fill(self, count: int) -> None:
        """Copy the first `count` documents of the shared corpus, or of this project's own texts where that is absent."""
        for name, file, tag in _sources()[:count]:
            target = self.docs / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            self.tags[name] = tag
        self.save_tags()

    @property
    def names(self) -> list[str]:
        """Paths of the documents, sorted."""
        return sorted(self.tags)

    def move(self, name: str, to: str) -> None:
        """Rename a document; its tag goes with it."""
        target = self.docs / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.docs / name).rename(target)
        self.tags[to] = self.tags.pop(name)

    def save_tags(self) -> None:
        """Write what the source reads its tags from."""
        tags = {path: {"allow": group} for path, group in self.tags.items()}
        (self.base / "tags.json").write_text(json.dumps(tags), encoding="utf-8")

    def open(self) -> ragstore.Index:
        """The index; one small document is in it already, so that imports are done and the store is open."""
        warm = self.docs / "warm-up.md"
        warm.write_text("# Warm-up\n\nThis text loads what has to be loaded once.\n", encoding="utf-8")
        index = ragstore.open(settings(self.base), connectors=self.watched)
        index.sync()
        return index

    @property
    def embedder(self) -> TimedEmbedder:
        """The one of the open index."""
        return self.watched.embedders[-1]

    @property
    def store(self) -> WatchedStore:
        """The one of the open index."""
        return self.watched.stores[-1]


def settings(base: Path) -> Settings:
    """As a user would write them."""
    principals = [{"id": "ada", "name": "Ada", "groups": [f"grp-{number}" for number in range(10)]}]
    (base / "principals.json").write_text(json.dumps(principals), encoding="utf-8")
    sections = {
        "source": {"type": "folder", "path": "docs", "tags": "tags.json"},
        "embedder": {"type": "hash", "dimensions": DIMENSIONS},
        "store": {"type": "lancedb"},
        "access": {"mode": "groups", "tag_key": "allow", "principals": "principals.json"},
    }
    return config.from_mapping(sections, base=base, environ={})


def _sources() -> list[tuple[str, Path, str]]:
    """Path, file and tag of every document: first the 300 of the subset, then the others."""
    shared = Path(os.environ.get("RAGSTORE_SHARED", "missing")) / "data" / "corpus"
    if shared.is_dir():
        tags: dict[str, str] = json.loads((shared / "tags.json").read_text(encoding="utf-8"))
        first = (shared / "subset.txt").read_text(encoding="utf-8").split()
        names = [*first, *sorted(tags.keys() - set(first))]
        return [(name, shared / "docs" / name, tags[name]) for name in names]
    files = sorted(file for folder in ("ragstore", "connectors", "tests", "examples") for file in (_ROOT / folder).rglob("*.py"))
    full = [file for file in files if file.stat().st_size > _SUBSET]
    return [(file.relative_to(_ROOT).as_posix(), file, f"grp-{number % 10}") for number, file in enumerate(full)]
