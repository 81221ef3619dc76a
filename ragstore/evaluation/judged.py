"""A folder in BEIR layout in; questions, and which documents answer them, out; and its documents as files that can be indexed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ragstore.errors import ConfigError

_HEADER: Final = ("query-id", "corpus-id", "score")
_DEFAULT_SPLIT: Final = "test"
_LONGEST_NAME: Final = 250
"""Bytes of a file name, with room for what file systems add."""

Judgements = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; 0 and less is judged and not relevant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSet:
    """Questions, and which documents answer which."""

    name: str
    queries: Mapping[str, str]
    """Query id -> text; only those that some document answers."""
    judgements: Judgements
    """Of these queries."""
    left_out: int
    """Queries without a relevant document, which tell nothing."""


def load(folder: Path, *, split: str | None = None) -> JudgedSet:
    """The set in this folder: `queries.jsonl`, and `qrels/SPLIT.tsv` (default: `test`, or the only one there is).

    Raises `ConfigError`, with file and line, for whatever is missing, doubled or of another form: a figure from half of the judgements
    would look like any other.
    """
    queries = dict(_texts(folder / "queries.jsonl", _query))
    file = _qrels(folder, split)
    judgements = _judgements(file)
    unknown = [query for query in judgements if query not in queries]
    if unknown:
        raise ConfigError(f"{_name(file)} judges queries that are not in queries.jsonl: {_few(unknown)}; mend one of the two files")
    answered = {query: text for query, text in queries.items() if any(grade > 0 for grade in judgements.get(query, {}).values())}
    if not answered:
        raise ConfigError(f"{_name(file)} names no relevant document for any query: there is nothing to measure")
    return JudgedSet(
        name=folder.resolve().name,
        queries=answered,
        judgements={query: judgements[query] for query in answered},
        left_out=len(queries) - len(answered),
    )


def documents(folder: Path) -> Iterator[tuple[str, str]]:
    """Id and text (title, newline, text) of each document of `corpus.jsonl`. Raises `ConfigError` as `load` does."""
    return _texts(folder / "corpus.jsonl", _document)


def unpack(folder: Path, target: Path) -> int:
    """Write each document of `corpus.jsonl` into a file of its own, named by its id, in a new folder. Returns how many.

    Raises `ConfigError` where the target is there and not empty, for an id that no file can have, and as `load` does.
    """
    names = {file_name(identifier): text for identifier, text in documents(folder)}
    if long := [name for name in names if len(name) > _LONGEST_NAME]:
        raise ConfigError(f"the document id {long[0][:40]!r}... is too long for the name of a file")
    start_folder(target)
    for name, text in names.items():
        try:
            with (target / name).open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            why = "is that of another document in this file system" if isinstance(error, FileExistsError) else error.strerror
            raise ConfigError(f"{name!r} cannot be written: {why}") from error
    return len(names)


def start_folder(target: Path) -> None:
    """Make a folder for its owner alone. Raises `ConfigError` where it is there and not empty, or cannot be made."""
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        used = any(target.iterdir())
    except OSError as error:
        raise ConfigError(f"{str(target)!r} cannot be written: {error.strerror or error}") from error
    if used:
        raise ConfigError(f"{str(target)!r} is not empty, and nothing is overwritten; name another folder")


def file_name(identifier: str) -> str:
    """The file of the document with this id, which need not be a file name: two ids never have the same."""
    escaped = quote(identifier, safe=" ")
    return ("%2E" + escaped[1:] if escaped.startswith(".") else escaped) + ".txt"


def locate(identifiers: Iterable[str], blobs: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Which blob (`container/path`) each document of a set is, and which documents are none of them.

    A judgement names a blob by its whole name, by its path, or by the id from which `unpack` made its file. Raises `ConfigError` where it
    may mean several.
    """
    by_name: dict[str, list[str]] = {}
    for blob in blobs:
        path = blob.partition("/")[2]
        for name in {blob, path, f"/{path.rpartition('/')[2]}"}:  # no name and no path begins with a slash
            by_name.setdefault(name, []).append(blob)
    found: dict[str, str] = {}
    missing: list[str] = []
    for identifier in identifiers:
        meant = by_name.get(identifier) or by_name.get(f"/{file_name(identifier)}") or []
        if len(meant) > 1:
            raise ConfigError(f"the document {identifier!r} may be {_few(meant)}; name it CONTAINER/PATH in the judgements")
        if meant:
            found[identifier] = meant[0]
        else:
            missing.append(identifier)
    return found, missing


def _qrels(folder: Path, split: str | None) -> Path:
    found = sorted(file.stem for file in (folder / "qrels").glob("*.tsv"))
    wanted = split or (_DEFAULT_SPLIT if _DEFAULT_SPLIT in found or len(found) != 1 else found[0])
    if wanted not in found:
        there = f"there is {', '.join(found)}; choose with --split" if found else "there is none"
        raise ConfigError(f"{str(folder)!r} has no qrels/{wanted}.tsv; {there}")
    return folder / "qrels" / f"{wanted}.tsv"


def _judgements(file: Path) -> dict[str, dict[str, int]]:
    lines = _lines(file)
    first = next(lines, (1, ""))[1]
    if tuple(first.split("\t")) != _HEADER:
        raise ConfigError(f"the first line of {_name(file)} must be {' '.join(_HEADER)}, separated by tabs; not {first[:60]!r}")
    judgements: dict[str, dict[str, int]] = {}
    for number, line in lines:
        columns = line.split("\t")
        if len(columns) != len(_HEADER) or not all(columns):
            raise ConfigError(
                f"{_name(file)}, line {number}: {len(_HEADER)} columns are expected ({', '.join(_HEADER)}), got {line[:60]!r}"
            )
        query, document, score = columns
        grade = _grade(score)
        if grade is None:
            raise ConfigError(f"{_name(file)}, line {number}: the score must be a whole number, not {score[:20]!r}")
        grades = judgements.setdefault(query, {})
        if document in grades:
            raise ConfigError(f"{_name(file)}, line {number}: document {document!r} is judged twice for query {query!r}; keep one line")
        grades[document] = grade
    return judgements


def _grade(text: str) -> int | None:
    digits = text.strip().removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None  # noqa: PLR2004 - a grade is a small number


def _texts(file: Path, text_of: Callable[[Mapping[str, Any]], str | None]) -> Iterator[tuple[str, str]]:
    """Id and text of each line, every id once."""
    seen: dict[str, int] = {}
    for number, line in _lines(file):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{_name(file)}, line {number} is no JSON: {error}") from error
        identifier = entry.get("_id") if isinstance(entry, dict) else None
        text = text_of(entry) if isinstance(entry, dict) else None
        name = str(identifier) if isinstance(identifier, (str, int)) and not isinstance(identifier, bool) else ""
        if text is None or not name.strip() or not _is_unicode(name + text):
            raise ConfigError(
                f'{_name(file)}, line {number} must be {{"_id": "...", "text": "..."}}, with an id and a text that can be used'
            )
        if name in seen:
            raise ConfigError(f"{_name(file)}, line {number}: the id {name!r} is that of line {seen[name]} already")
        seen[name] = number
        yield name, text


def _query(entry: Mapping[str, Any]) -> str | None:
    text = entry.get("text")
    return text if isinstance(text, str) and text.strip() else None


def _document(entry: Mapping[str, Any]) -> str | None:
    title, text = entry.get("title") or "", entry.get("text")
    return f"{title}\n{text}".lstrip("\n") if isinstance(title, str) and isinstance(text, str) else None


def _is_unicode(text: str) -> bool:
    """JSON can say half of a character (`"\\ud800"`), which no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Number and content of each line that is not blank."""
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{str(file)!r} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(file)!r} is not UTF-8: {error.reason}") from error


def _name(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - enough to find the others
    return ", ".join(repr(name) for name in names[:3]) + more
