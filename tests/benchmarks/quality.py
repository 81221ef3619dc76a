"""Retrieval sets in BEIR layout in, nDCG@10 and recall@10 of the whole path out: files in a folder, indexed and asked as users do it.

    RAGSTORE_SHARED=FOLDER python tests/benchmarks/quality.py [NAME ...] [--store lancedb] [--embedder minilm]

Reads `$RAGSTORE_SHARED/data/eval/NAME` (`corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`), prints a table and writes
`tests/benchmarks/results/quality.json`. Ends with 1 where a set falls short of its target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ragstore
from ragstore.config import Settings
from ragstore.evaluation import Variant, evaluate, load, unpack

TARGETS = {
    "scifact": 0.725,
    "cranfield": 0.415,
    "msmarco-dl-5k": 0.797,
    "limit-small": 0.992,
    "xquad/en": 0.969,
    "xquad/zh": 0.950,
    "cmrc2018-zh": 0.959,
    "xquad/de": 0.940,
    "xquad/es": 0.961,
    "xquad/ru": 0.952,
    "xquad/ar": 0.933,
    "arcd-ar": 0.802,
}
"""The nDCG@10 that the default configuration must reach: that of the best single method (dense, BM25 with the language's own stemmer), and
0.01 less than that of the best fusion, as they were measured over whole documents, outside of ragstore."""
RESULTS = Path(__file__).parent / "results" / "quality.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What one set gave."""

    name: str
    documents: int
    queries: int
    chunks: int
    ndcg: float
    recall: float
    target: float | None
    index_seconds: float
    query_milliseconds: float
    """Median."""

    @property
    def reached(self) -> bool:
        """Whether the target was reached, where there is one."""
        return self.target is None or self.ndcg >= self.target


def measure(folder: Path, *, name: str, store: str, embedder: str) -> Quality:
    """Index the documents of this set in a temporary folder, ask every question, compare with the judgements."""
    judged = load(folder)
    with tempfile.TemporaryDirectory(prefix="ragstore-quality-") as temporary:
        base = Path(temporary)
        documents = unpack(folder, base / "docs")
        settings = Settings.model_validate(
            {
                "base": base,
                "source": [{"type": "folder", "path": "docs"}],
                "store": {"type": store},
                "embedder": {"type": embedder},
                "access": {"mode": "open"},
            }
        )
        with ragstore.open(settings) as index:
            begin = time.perf_counter()
            report = index.sync()
            seconds = time.perf_counter() - begin
            failed = [failure for failure in index.failures() if failure["kind"] != "empty"]  # Cranfield has two that say nothing
            if failed:
                raise RuntimeError(f"{len(failed)} of {documents} documents were not indexed: {failed[:3]}")
            # A document that a set judges and does not hold counts as not found.
            variants = [Variant(name="configured")]
            evaluation = evaluate(index, judged, principal=index.principal(), variants=variants, allow_missing=True)
    (found,) = evaluation.measured
    return Quality(
        name=name,
        documents=documents,
        queries=evaluation.queries,
        chunks=report.chunks,
        ndcg=round(found.ndcg.value, 4),
        recall=round(found.recall.value, 4),
        target=TARGETS.get(name),
        index_seconds=round(seconds, 1),
        query_milliseconds=round(found.p50.value, 1),
    )


def _table(results: Sequence[Quality]) -> str:
    head = (
        f"{'set':<16}{'documents':>10}{'chunks':>8}{'queries':>8}{'nDCG@10':>9}{'target':>8}{'recall@10':>10}{'index s':>9}{'query ms':>9}"
    )
    rows = [
        f"{q.name:<16}{q.documents:>10}{q.chunks:>8}{q.queries:>8}{q.ndcg:>9.4f}{q.target or '':>8}{q.recall:>10.4f}"
        f"{q.index_seconds:>9.1f}{q.query_milliseconds:>9.1f}"
        for q in results
    ]
    return "\n".join([head, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the named sets, or those that have a target."""
    parser = argparse.ArgumentParser(description="Retrieval quality on sets in BEIR layout.")
    parser.add_argument("names", nargs="*", metavar="NAME", default=sorted(TARGETS))
    parser.add_argument("--store", default="lancedb")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    shared = os.environ.get("RAGSTORE_SHARED")
    if not shared:
        parser.error("RAGSTORE_SHARED does not name the folder of shared test data")
    results = []
    for name in options.names:
        result = measure(Path(shared) / "data" / "eval" / name, name=name, store=options.store, embedder=options.embedder)
        results.append(result)
        print(_table(results[-1:]).splitlines()[-1], flush=True)
    print(_table(results))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    made = {"store": options.store, "embedder": options.embedder, "sets": [asdict(result) for result in results]}
    options.output.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
