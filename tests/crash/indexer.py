"""A process that brings an index in step and may kill itself on the way; run by `test_kill.py`.

Arguments: settings as JSON, a file to which every embedded text's hash is appended, the moment (`before:2`, `after:0`, or `-`), and
`pass` for one pass or `worker` for a worker that ends when it is idle.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

import ragstore
from ragstore import config
from ragstore.assembly import Connectors
from ragstore.config import Settings
from ragstore.contracts import Embedder, Store
from ragstore.index import AsyncIndex
from ragstore.ingest.report import SyncReport
from ragstore.models import text_hash
from ragstore.testing.faults import CrashingStore, FaultyEmbedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECONDS_PER_BATCH = 0.05


class _Slow(FaultyEmbedder):
    """Takes time, so that a kill can hit it, and writes down what it was asked for before it answers."""

    def __init__(self, embedder: Embedder, log: Path) -> None:
        super().__init__(embedder)
        self._log = log

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        time.sleep(_SECONDS_PER_BATCH)  # noqa: ASYNC251 - a busy processor
        with self._log.open("a", encoding="ascii") as log:
            log.writelines(f"{text_hash(text)}\n" for text in texts)
        return await super().embed(texts, purpose=purpose)


class _Killing(Connectors):
    def __init__(self, log: Path, moment: str) -> None:
        self._log = log
        self._when, _, at = moment.partition(":")
        self._left = int(at or 0)

    @override
    def embedder(self, kind: str, options: Mapping[str, Any], settings: Settings) -> Embedder:
        return _Slow(super().embedder(kind, options, settings), self._log)

    @override
    def store(self, settings: Settings, *, collection: str, dimensions: int) -> Store:
        store = super().store(settings, collection=collection, dimensions=dimensions)
        return CrashingStore(store, before=lambda _: self._maybe("before"), after=lambda _: self._maybe("after"))

    def _maybe(self, when: str) -> None:
        if when == self._when:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


def main() -> None:
    """Run one pass, or a worker until it is idle, and print the report."""
    data, log, moment, what = sys.argv[1:]
    sections = json.loads(data)
    settings = config.from_mapping(sections, base=Path(sections.pop("base")), environ={})
    connectors = _Killing(Path(log), moment)
    if what == "worker":
        print(json.dumps(asyncio.run(follow(settings, connectors)).as_dict()))
        return
    with ragstore.open(settings, connectors=connectors) as index:
        print(json.dumps(index.sync().as_dict()))


async def follow(settings: Settings, connectors: Connectors) -> SyncReport:
    """A worker's life from start to idle."""
    async with AsyncIndex(settings, connectors) as index:
        return await index.follow(until_idle=True)


if __name__ == "__main__":
    main()
