"""Texts in, vectors or an error out: whatever breaks, nobody who waits for a vector waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from ragstore.embedding.hashing import HashEmbedder
from ragstore.ingest.report import Clocked, SyncReport
from ragstore.ingest.supply import VectorSupply
from ragstore.ledger import Ledger, Vectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PATIENCE = 10


class _BrokenCache(Vectors):
    """A cache on a disk that fails."""

    def __init__(self, good: Vectors, *, breaks: str) -> None:
        self._good = good
        self.breaks = breaks

    @override
    def get(self, text_hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        if self.breaks == "get":
            raise OSError(5, "the disk is gone")
        return self._good.get(text_hashes)

    @override
    def put(self, new: Mapping[str, NDArray[np.float32]]) -> None:
        if self.breaks == "put":
            raise OSError(28, "the disk is full")
        self._good.put(new)


@pytest.mark.parametrize("breaks", ["get", "put"])
async def test_a_cache_that_fails_is_an_error_for_each_who_waits_and_the_next_texts_are_served(tmp_path: Path, breaks: str) -> None:
    ledger = Ledger("sqlite:///ledger.db", base=tmp_path)
    embedder = HashEmbedder()
    cache = _BrokenCache(ledger.vectors(embedder.fingerprint), breaks=breaks)
    supply = VectorSupply(embedder, cache, Clocked(SyncReport(), None))
    try:
        for round_number in range(4):  # more than there are workers
            with pytest.raises(OSError, match="the disk"):
                await asyncio.wait_for(supply.of({f"h{round_number}": "some words"}), _PATIENCE)
        cache.breaks = ""
        assert set(await asyncio.wait_for(supply.of({"h0": "some words"}), _PATIENCE)) == {"h0"}
    finally:
        await supply.close()
        ledger.close()
