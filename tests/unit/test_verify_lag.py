"""A store that shows writes after a while only: `verify` waits for it, and for nothing else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.contracts import Store
from ragstore.ingest.verify import verify
from ragstore.models import RowKey
from ragstore.testing.faults import CrashingStore
from tests.support.workspace import Workspace, paragraphs


class Lagging(CrashingStore):
    """Shows no key at the first `lags` times that it is asked for all of them."""

    def __init__(self, store: Store, *, lags: int, immediate: bool, settle: float) -> None:
        super().__init__(store, before=lambda _writes: None, after=lambda _writes: None)
        self.capabilities = replace(store.capabilities, immediate=immediate, lag_seconds=settle)
        self.lags = lags

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        if document_ids is None and self.lags:
            self.lags -= 1
            return
        async for key in super().keys(document_ids):
            yield key


@pytest.mark.parametrize(
    ("immediate", "lags", "settle", "clean"), [(False, 3, 20.0, True), (False, 10**6, 0.3, False), (True, 1, 20.0, False)]
)
async def test_differences_of_a_store_that_lags_are_waited_for(
    tmp_path: Path, *, immediate: bool, lags: int, settle: float, clean: bool
) -> None:
    work = Workspace(tmp_path)
    stores: list[Lagging] = []

    def wrap(store: Store) -> Store:
        stores.append(Lagging(store, lags=0, immediate=immediate, settle=settle))
        return stores[-1]

    work.connectors.wrapper = wrap
    work.write("a.txt", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        stores[-1].lags = lags
        began = time.monotonic()
        parts = index._assembly.writing()
        assert bool(await verify(parts)) is not clean
        assert time.monotonic() - began < 19
