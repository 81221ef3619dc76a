"""A folder of documents, tags and an index over it, for the tests of the whole write and read path."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from ragstore import config
from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.contracts import Embedder, Feed, Source, Store
from ragstore.index import AsyncIndex
from ragstore.models import Hit
from ragstore.testing.faults import FaultyEmbedder
from tests.support.feeds import ScriptedFeed

PRINCIPALS = [
    {"id": "ada", "name": "Ada", "groups": ["staff", "board"]},
    {"id": "bob", "name": "Bob", "groups": ["staff"]},
    {"id": "eve", "name": "Eve", "groups": []},
]


class Wrapping(Connectors):
    """Real connectors; the embedder counts and can fail, and a test may put a wrapper around store and source."""

    def __init__(self) -> None:
        self.embedders: list[FaultyEmbedder] = []
        self.wrapper: Callable[[Store], Store] = lambda store: store
        self.source_wrapper: Callable[[Source], Source] = lambda source: source
        self.feeds: list[ScriptedFeed] = []
        """Every feed that was built; a test speaks through them instead of the one that is configured."""

    @override
    def embedder(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Embedder:
        embedder = FaultyEmbedder(super().embedder(kind, options, settings))
        self.embedders.append(embedder)
        return embedder

    @override
    def feed(self, kind: str, options: Mapping[str, Any], settings: Settings, *, source: Source, source_options: Mapping[str, Any]) -> Feed:
        self.feeds.append(ScriptedFeed(source))
        return self.feeds[-1]

    @override
    def store(self, settings: Settings, *, collection: str, dimensions: int) -> Store:
        return self.wrapper(super().store(settings, collection=collection, dimensions=dimensions))

    @override
    def source(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Source:
        return self.source_wrapper(super().source(kind, options, settings))


class Workspace:
    """`docs/` under a base folder, indexed with `hash` vectors; access by the tag `allow` unless a test says otherwise."""

    def __init__(self, base: Path, *, store: str = "memory", **sections: Any) -> None:
        self.base = base
        self.docs = base / "docs"
        self.docs.mkdir(exist_ok=True)
        self.tags: dict[str, dict[str, str]] = {}
        (base / "principals.json").write_text(json.dumps(PRINCIPALS), encoding="utf-8")
        self._namespace = uuid.uuid4().hex
        stores = {"memory": {"type": "memory", "namespace": self._namespace}, "lancedb": {"type": "lancedb", "path": "index"}}
        self.sections: dict[str, Any] = {
            "source": {"type": "folder", "path": "docs", "tags": "tags.json"},
            "embedder": {"type": "hash"},
            "store": stores[store],
            "chunking": {"size": 64},
            "access": {"mode": "groups", "tag_key": "allow", "principals": "principals.json"},
            **sections,
        }
        self.connectors = Wrapping()
        self.save_tags()

    def write(self, path: str, text: str, *, allow: str | None = "staff") -> None:
        """A document, readable for `allow`."""
        file = self.docs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if allow is not None:
            self.allow(path, allow)

    def allow(self, path: str, ids: str) -> None:
        self.tags[path] = {"allow": ids}
        self.save_tags()

    def save_tags(self) -> None:
        (self.base / "tags.json").write_text(json.dumps(self.tags), encoding="utf-8")

    def settings(self) -> Settings:
        return config.from_mapping(self.sections, base=self.base, environ={})

    def open(self) -> AsyncIndex:
        return AsyncIndex(self.settings(), self.connectors)

    @property
    def embedder(self) -> FaultyEmbedder:
        return self.connectors.embedders[-1]

    @property
    def embedded(self) -> list[str]:
        """Every text that was ever embedded, by any embedder of this workspace."""
        return [text for embedder in self.connectors.embedders for text in embedder.embedded]


def paragraphs(topic: str, count: int) -> str:
    """A document of `count` paragraphs, each of its own words and about one chunk long."""
    return "\n\n".join(f"{topic} paragraph number{i} speaks about subject{i} and " + f"detail{i} " * 14 for i in range(count))


async def texts(index: AsyncIndex, query: str, who: str, **options: Any) -> list[str]:
    """The texts that this person finds."""
    return [hit.text for hit in await found(index, query, who, **options)]


async def found(index: AsyncIndex, query: str, who: str, **options: Any) -> list[Hit]:
    return await index.search(query, principal=index.principal(who), **options)
