"""A workspace with open and hidden documents: a canary stands in the name, title, heading, tags and text of every hidden one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from typing_extensions import override

from ragstore.contracts import Reranker, Store, TextQuery, VectorQuery
from ragstore.filters import ALWAYS, Filter
from ragstore.index import AsyncIndex
from ragstore.models import Hit, Match, Row
from ragstore.retrieval import Retriever
from ragstore.testing.faults import CrashingStore
from tests.support.azure_files import BLOBS, assigned
from tests.support.workspace import Workspace, found

Mode = Literal["groups", "azure", "inexact"]
"""`inexact` is `azure` with a condition that no store can be asked: everything passes the filter, and the check decides."""
MODES: Final[tuple[Mode, ...]] = ("groups", "azure", "inexact")

CANARY: Final = "quokka"
OPEN: Final = frozenset({"docs/open/food.md", "docs/open/rooms.md"})
HIDDEN: Final = frozenset({f"docs/{CANARY}/{CANARY}-deal.md", f"docs/open/{CANARY}.md"})

PROJECT: Final = f"@Resource[{BLOBS}/tags:Project<$key_case_sensitive$>]"
LEVEL: Final = f"@Resource[{BLOBS}/tags:Level<$key_case_sensitive$>]"
PATH: Final = f"@Resource[{BLOBS}:path]"
_CONDITIONS: Final = {"azure": f"{PROJECT} StringEquals 'Open'", "inexact": f"{LEVEL} NumericLessThan 5"}


class WatchedStore(CrashingStore):
    """A real store; notes what it is asked, and where it does not obey, answers as if there was no filter."""

    def __init__(self, store: Store, *, obeys: bool = True) -> None:
        super().__init__(store, before=lambda _writes: None, after=lambda _writes: None)
        self.obeys = obeys
        self.asked: list[tuple[type[VectorQuery | TextQuery], Filter]] = []
        self.read: list[Sequence[str]] = []

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        self.asked.append((type(query), filter))
        return await super().search(query, filter=filter if self.obeys else ALWAYS, limit=limit)

    @override
    def rows(self, document_ids: Sequence[str]) -> AsyncIterator[Row]:
        self.read.append(document_ids)
        return super().rows(document_ids)


class Vault(Workspace):
    """Bob (staff) reads what is open, Ada (board) everything, Eve nothing."""

    def __init__(self, base: Path, *, mode: Mode, store: str = "memory") -> None:
        files = {"assignments": "assignments.json", "deny_assignments": "none"}
        decides = {"mode": "groups", "tag_key": "allow"} if mode == "groups" else {"mode": "azure", **files}
        super().__init__(base, store=store, access={**decides, "principals": "principals.json"})
        self.mode = mode
        self.stores: list[WatchedStore] = []
        self.connectors.wrapper = self._watched
        if mode != "groups":
            self.assign(assigned("staff", condition=_CONDITIONS[mode]), assigned("board"))

    def assign(self, *assignments: object) -> None:
        (self.base / "assignments.json").write_text(json.dumps(assignments), encoding="utf-8")

    def put(self, path: str, text: str, *, readers: Literal["staff", "board", "nobody"]) -> None:
        """A document for all of staff, for the board alone, or, without any tag, for nobody but an assignment without a condition."""
        self.write(path, text, allow=None)
        self.tag(path, readers=readers)

    def tag(self, path: str, *, readers: Literal["staff", "board", "nobody"]) -> None:
        """Change who may read it, and nothing else."""
        hidden = readers != "staff"
        tags = {"allow": readers, "Project": f"{CANARY} project" if hidden else "Open", "Level": "9" if hidden else "1"}
        self.tags.pop(path, None)
        if readers != "nobody":
            self.tags[path] = {**tags, **({CANARY: CANARY} if hidden else {})}
        self.save_tags()

    def fill(self) -> None:
        """Two documents that are open and two that are hidden, about the same words."""
        for name in sorted(OPEN):
            path = name.removeprefix("docs/")
            self.put(path, f"# About {path}\n\n## Details\n\nThe merger concerns the kitchen and the rooms of {path}.\n", readers="staff")
        for name in sorted(HIDDEN):
            path = name.removeprefix("docs/")
            text = f"# The {CANARY} title\n\n## The {CANARY} heading\n\nThe merger of the {CANARY}, the merger, is signed: {path}.\n"
            self.put(path, text, readers="board")

    @property
    def watched(self) -> WatchedStore:
        """The store that answers."""
        return self.stores[-1]

    def _watched(self, store: Store) -> Store:
        self.stores.append(WatchedStore(store))
        return self.stores[-1]


async def blobs(index: AsyncIndex, query: str, who: str, **options: Any) -> set[str]:
    """The names of the blobs that this person finds."""
    return {hit.blob for hit in await found(index, query, who, **{"limit": 50, **options})}


async def asked(index: AsyncIndex, query: str, who: str, *, reranker: Reranker | None = None, **options: Any) -> list[Hit]:
    """What this person finds by a retriever with other parts or other legs than the index has."""
    assembly = index._assembly
    embedder, store = assembly.reading()
    retriever = Retriever(
        store=store, embedder=embedder, policy=assembly.policy, committed=assembly.ledger.documents.committed, reranker=reranker
    )
    return await retriever.search(query, principal=index.principal(who), **{"limit": 50, **options})


async def readable(index: AsyncIndex, vault: Vault, who: str) -> set[str]:
    """The names of the blobs that this person reads at any door: by search, by the id of a chunk, and where the store does not obey."""
    found_ = await blobs(index, f"merger {CANARY}", who)
    everything = index._assembly.ledger.documents.all_chunk_ids()
    asking = index.principal(who)
    by_id = {hit.blob for _, chunk in everything if (hit := await index.chunk(chunk, principal=asking)) is not None}
    vault.watched.obeys = False
    try:
        unfiltered = await blobs(index, f"merger {CANARY}", who)
    finally:
        vault.watched.obeys = True
    assert by_id == found_ == unfiltered
    return found_


def chunk_ids(index: AsyncIndex, blob: str) -> list[str]:
    """The ids of a blob's committed chunks, whoever may read them."""
    everything = [chunk for _, chunk in index._assembly.ledger.documents.all_chunk_ids()]
    return [chunk for chunk, known in index._assembly.ledger.documents.committed(everything).items() if known.blob.name == blob]


def with_all_indexes(patch: pytest.MonkeyPatch) -> None:
    """From now on LanceDB has an index for each column from the first row on."""
    from ragstore_lancedb import maintenance

    patch.setattr(maintenance, "_SCALAR_INDEXES_FROM", 0)
