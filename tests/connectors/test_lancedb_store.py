"""The LanceDB store against the suite, in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_lancedb import LanceDBStore


class TestLanceDBStore(StoreSuite):
    @pytest.fixture
    @override
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda collection, dimensions: LanceDBStore(base=tmp_path, collection=collection, dimensions=dimensions)
