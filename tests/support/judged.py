"""Small sets of judged questions in BEIR layout, for the tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

DOCUMENTS = [
    {"_id": "a/b: 1", "title": "Keys", "text": "How to rotate a signing key."},
    {"_id": "2", "title": "", "text": "Bread is baked in an oven."},
    {"_id": ".3", "title": "Sea", "text": "The tide follows the moon."},
]
QUERIES = [
    {"_id": "q1", "text": "rotate signing key"},
    {"_id": "q2", "text": "bread in the oven"},
    {"_id": "q3", "text": "nothing about this"},
]
JUDGEMENTS = "q1\ta/b: 1\t1\nq2\t2\t2\nq3\t.3\t0\n"
HEADER = "query-id\tcorpus-id\tscore\n"


def write_lines(file: Path, entries: Sequence[Mapping[str, object]]) -> None:
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")


def make_set(folder: Path) -> Path:
    """Three documents and three questions, one of which nothing answers."""
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", DOCUMENTS)
    write_lines(folder / "queries.jsonl", QUERIES)
    (folder / "qrels" / "test.tsv").write_text(HEADER + JUDGEMENTS, encoding="utf-8")
    return folder
