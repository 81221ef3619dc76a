"""Every file of the shared collection through a whole pass: found by a search on its page, or in quarantine with its kind of error."""

from __future__ import annotations

import csv
from pathlib import Path

import ragstore
from ragstore import config
from ragstore.blocking import Index
from ragstore.models import Hit


def _plain(text: str) -> str:
    return " ".join(text.split())


def _hits(index: Index, words: str, path: str) -> list[Hit]:
    quoted = path.replace("'", "''")
    return index.search(words, principal=index.principal(), limit=1000, filter=f"path = '{quoted}'")


def _expected(row: dict[str, str]) -> tuple[str | None, set[str]]:
    """The sentence that must be found, and the kinds of error that may stand in its place."""
    text = row["must_contain_or_error_kind"]
    if row["expect"] in {"error", "empty"}:
        return None, set(text.split("|"))
    sentence, _, kinds = text.partition(" || ")
    return sentence, set(kinds.split("|")) if kinds else set()


def _problem(index: Index, row: dict[str, str], kind: str | None) -> str | None:
    sentence, kinds = _expected(row)
    if kind is not None or sentence is None:
        return None if kind in kinds else f"is {kind}, not {kinds or sentence!r}"
    pages = [hit.page for hit in _hits(index, sentence, row["file"]) if _plain(sentence) in _plain(hit.text)]
    if not pages:
        return f"lacks {sentence!r}"
    return None if not row["page"] or int(row["page"]) in pages else f"has it on {pages}, not on {row['page']}"


def test_each_file_gives_its_sentence_on_its_page_or_its_kind_of_error(shared: Path, tmp_path: Path) -> None:
    files = shared / "data" / "files"
    sections = {
        "source": {"type": "folder", "path": str(files), "include": ["ordinary/*", "nasty/*"], "exclude": ["**/*.py"]},
        "embedder": {"type": "hash"},
        "access": {"mode": "open"},
    }
    with ragstore.open(config.from_mapping(sections, base=tmp_path, environ={})) as index:
        report = index.sync()
        kinds = {failure["blob"].removeprefix("files/"): failure["kind"] for failure in index.failures()}
        with (files / "INDEX.tsv").open(encoding="utf-8", newline="") as table:
            rows = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
        problems = {row["file"]: _problem(index, row, kinds.get(row["file"])) for row in rows}
    assert {file: problem for file, problem in problems.items() if problem} == {}
    assert report.added + report.quarantined == len(rows)
