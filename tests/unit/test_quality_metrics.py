"""The retrieval benchmark: the path from a set on disk to its figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.judged import make_set

_SCRIPT = Path(__file__).parents[1] / "benchmarks" / "quality.py"


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    """The benchmark script, which is no package: loaded by its path."""
    spec = importlib.util.spec_from_file_location("benchmark_quality", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_set_is_indexed_and_asked_from_end_to_end(quality: ModuleType, tmp_path: Path) -> None:
    measured = quality.measure(make_set(tmp_path / "small"), name="small", store="memory", embedder="hash")
    assert (measured.documents, measured.queries, measured.chunks) == (3, 2, 3)
    assert (measured.ndcg, measured.recall) == (1.0, 1.0)
    assert measured.reached
