"""Retrieval sets in BEIR layout in, nDCG@10 and recall@10 of the whole path out: files in a folder, indexed and asked as users do it.

    RAGSTORE_SHARED=FOLDER python tests/benchmarks/quality.py [NAME ...] [--store lancedb] [--embedder minilm]

Reads `$RAGSTORE_SHARED/data/eval/NAME` (`corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`), prints a table and writes
`tests/benchmarks/results/quality.json`. Ends with 1 where a set falls short of its target.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import ragstore
from ragstore.config import Settings
from ragstore.models import Hit

DEPTH = 10
TARGETS = {"scifact": 0.72, "cmrc2018-zh": 0.95, "limit-small": 0.97}
"""The nDCG@10 that the default configuration must reach."""
RESULTS = Path(__file__).parent / "results" / "quality.json"

Judgements = Mapping[str, Mapping[str, int]]
"""Query id → document id → grade; 0 is judged and not relevant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSet:
    """Documents, questions, and which documents answer which question."""

    name: str
    documents: Mapping[str, str]
    """Document id → title, newline, text."""
    queries: Mapping[str, str]
    """Only those with a relevant document."""
    judgements: Judgements


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


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval computes `ndcg_cut`; from 0 to 1."""
    gained = sum(grades.get(document, 0) / math.log2(rank + 2) for rank, document in enumerate(ranking[:depth]))
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:depth]
    ideal = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(best))
    return gained / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """The share of the relevant documents that are among the first `depth`; from 0 to 1."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranking[:depth])) / len(relevant) if relevant else 0.0


def rank_blobs(hits: Iterable[Hit]) -> list[str]:
    """Blobs in the order of their best hit."""
    best: dict[str, float] = {}
    for hit in hits:
        best[hit.blob] = max(hit.score, best.get(hit.blob, -math.inf))
    return sorted(best, key=lambda blob: -best[blob])


def load(folder: Path) -> RetrievalSet:
    """The set in this folder."""
    documents = {str(line["_id"]): f"{line.get('title') or ''}\n{line['text']}".lstrip("\n") for line in _lines(folder / "corpus.jsonl")}
    judgements: dict[str, dict[str, int]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            judgements.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    queries = {str(line["_id"]): str(line["text"]) for line in _lines(folder / "queries.jsonl")}
    answered = {query: text for query, text in queries.items() if any(grade > 0 for grade in judgements.get(query, {}).values())}
    return RetrievalSet(name=folder.name, documents=documents, queries=answered, judgements=judgements)


def write_documents(documents: Mapping[str, str], folder: Path) -> dict[str, str]:
    """One text file for each document; returns file name → document id, because an id need not be a file name."""
    folder.mkdir(parents=True)
    names = {f"{number:06}.txt": document for number, document in enumerate(documents)}
    for name, document in names.items():
        (folder / name).write_text(documents[document], encoding="utf-8", newline="")
    return names


def measure(retrieval_set: RetrievalSet, *, store: str, embedder: str) -> Quality:
    """Index the documents in a temporary folder, ask every question, compare with the judgements."""
    with tempfile.TemporaryDirectory(prefix="ragstore-quality-") as temporary:
        base = Path(temporary)
        names = write_documents(retrieval_set.documents, base / "docs")
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
            if report.added != len(names):
                raise RuntimeError(f"{report.added} of {len(names)} documents were indexed: {index.failures()[:3]}")
            rankings, times = _ask(index, retrieval_set.queries, names)
    grades = retrieval_set.judgements
    return Quality(
        name=retrieval_set.name,
        documents=len(names),
        queries=len(rankings),
        chunks=report.chunks,
        ndcg=round(statistics.fmean(ndcg(ranking, grades[query]) for query, ranking in rankings.items()), 4),
        recall=round(statistics.fmean(recall(ranking, grades[query]) for query, ranking in rankings.items()), 4),
        target=TARGETS.get(retrieval_set.name),
        index_seconds=round(seconds, 1),
        query_milliseconds=round(1000 * statistics.median(times), 1),
    )


def _ask(index: ragstore.Index, queries: Mapping[str, str], names: Mapping[str, str]) -> tuple[dict[str, list[str]], list[float]]:
    """Query id → document ids, best first; and the seconds that each query took."""
    principal = index.principal()
    rankings: dict[str, list[str]] = {}
    times = []
    for query, text in queries.items():
        begin = time.perf_counter()
        hits = index.search(text, principal=principal, limit=DEPTH, per_blob=1)
        times.append(time.perf_counter() - begin)
        rankings[query] = [names[blob.rpartition("/")[2]] for blob in rank_blobs(hits)]
    return rankings, times


def _lines(file: Path) -> list[dict[str, object]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


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
        result = measure(load(Path(shared) / "data" / "eval" / name), store=options.store, embedder=options.embedder)
        results.append(result)
        print(_table(results[-1:]).splitlines()[-1], flush=True)
    print(_table(results))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    made = {"store": options.store, "embedder": options.embedder, "sets": [asdict(result) for result in results]}
    options.output.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
