"""The metrics of the retrieval benchmark, and the path from a set on disk to its figures."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ragstore.models import Hit

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


def hit(blob: str, score: float) -> Hit:
    return Hit(
        blob=blob, chunk=f"{blob}{score}", score=score, text="", start=0, end=0, page=None, heading=None, title=None, version=None, etag=""
    )


def make_set(folder: Path) -> Path:
    """Three documents and three questions, one of which nothing answers."""
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": "a/b: 1", "title": "Keys", "text": "How to rotate a signing key."},
        {"_id": "2", "title": "", "text": "Bread is baked in an oven."},
        {"_id": "3", "title": "Sea", "text": "The tide follows the moon."},
    ]
    queries = [
        {"_id": "q1", "text": "rotate signing key"},
        {"_id": "q2", "text": "bread in the oven"},
        {"_id": "q3", "text": "nothing about this"},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in documents), encoding="utf-8")
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries), encoding="utf-8")
    judgements = "query-id\tcorpus-id\tscore\nq1\ta/b: 1\t1\nq2\t2\t2\nq3\t3\t0\n"
    (folder / "qrels" / "test.tsv").write_text(judgements, encoding="utf-8")
    return folder


def test_ndcg_is_one_for_the_ideal_order(quality: ModuleType) -> None:
    assert quality.ndcg(["a", "b", "c"], {"a": 2, "b": 1, "c": 0}) == 1.0


def test_ndcg_discounts_by_rank_and_weighs_by_grade(quality: ModuleType) -> None:
    found = quality.ndcg(["x", "b", "a"], {"a": 2, "b": 1})
    assert found == pytest.approx((1 / math.log2(3) + 2 / math.log2(4)) / (2 + 1 / math.log2(3)))


def test_ndcg_sees_ten_documents_only(quality: ModuleType) -> None:
    assert quality.ndcg([*"0123456789", "a"], {"a": 1}) == 0.0
    assert quality.ndcg([f"r{rank}" for rank in range(10)], {f"r{rank}": 1 for rank in range(20)}) == 1.0


def test_recall_counts_the_relevant_documents_among_the_first_ten(quality: ModuleType) -> None:
    assert quality.recall(["a", "x", "b"], {"a": 1, "b": 2, "c": 1, "x": 0}) == pytest.approx(2 / 3)
    assert quality.recall([*"0123456789", "a"], {"a": 1}) == 0.0


def test_a_question_without_relevant_documents_scores_zero(quality: ModuleType) -> None:
    assert (quality.ndcg(["a"], {"a": 0}), quality.recall(["a"], {})) == (0.0, 0.0)


def test_a_blob_stands_where_its_best_hit_stands(quality: ModuleType) -> None:
    assert quality.rank_blobs([hit("a", 0.2), hit("b", 0.5), hit("a", 0.9), hit("c", 0.1)]) == ["a", "b", "c"]


def test_a_set_holds_titles_with_texts_and_answered_questions_only(quality: ModuleType, tmp_path: Path) -> None:
    loaded = quality.load(make_set(tmp_path / "small"))
    assert loaded.documents["a/b: 1"] == "Keys\nHow to rotate a signing key."
    assert loaded.documents["2"] == "Bread is baked in an oven."
    assert list(loaded.queries) == ["q1", "q2"]
    assert loaded.judgements["q2"] == {"2": 2}


def test_a_set_is_indexed_and_asked_from_end_to_end(quality: ModuleType, tmp_path: Path) -> None:
    measured = quality.measure(quality.load(make_set(tmp_path / "small")), store="memory", embedder="hash")
    assert (measured.documents, measured.queries, measured.chunks) == (3, 2, 3)
    assert (measured.ndcg, measured.recall) == (1.0, 1.0)
    assert measured.reached
