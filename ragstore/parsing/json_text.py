"""JSON and notebook files in, documents out that people can read: values with the keys that lead to them, the cells of a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.detect import Detected
from ragstore.parsing.headings import HeadingScanner
from ragstore.parsing.normalize import normalize
from ragstore.parsing.text import read_text
from ragstore.spool import File

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_PATH_LARGEST = 120
"""Characters of keys before a value; without a limit a file of 1 MB could become gigabytes of text."""
_OUTPUT_LARGEST = 20_000
"""Characters of a notebook output, which may be a log of any length."""


def loads(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value, with numbers as they are written: no limit on digits, no rounding. Raises `JSONDecodeError` or `RecursionError`."""
    return _DECODER.decode(text)


def flatten(value: object) -> list[str]:
    """A line `path.to.key: value` for each scalar, one for a list of scalars, a blank line between the objects of a list at the top.

    Nulls and empty strings are left out. Raises `RecursionError` for a value nested some hundred levels deep.
    """
    found: list[str] = []
    _collect("", value, found)
    return found


def _collect(path: str, node: object, found: list[str]) -> None:
    if isinstance(node, dict):
        for key, child in node.items():
            inner = _join(path, key)
            if isinstance(child, str):
                if child:
                    found.append(f"{inner}: {child}")
            else:
                _collect(inner, child, found)
    elif isinstance(node, list) and any(isinstance(child, dict | list) for child in node):
        for child in node:
            if found and not path:
                found.append("")
            _collect(path, child, found)
    else:
        words = ", ".join([_scalar(child) for child in node if child is not None]) if isinstance(node, list) else _scalar(node)
        if words:
            found.append(f"{path}: {words}" if path else words)


def _scalar(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _join(path: str, key: str) -> str:
    joined = f"{path}.{key}" if path else key
    return joined if len(joined) <= _PATH_LARGEST else "…" + joined[1 - _PATH_LARGEST :]


def parse_json(file: File, found: Detected, *, limit: int) -> Document:
    """The values of a JSON file. One that is not valid JSON (comments, a log of objects) is read as the text that it is.

    Raises `PoisonError("too_deep", ...)` where it is nested beyond what can be read.
    """
    text, decoding = read_text(file, found.charset, limit=limit)
    builder = TextBuilder(limit)
    for warning in decoding.warnings:
        builder.warn(warning)
    if text.isspace() or not text:
        raise PoisonError("empty", "there is nothing but white space in the file")
    try:
        for line in flatten(loads(text)):
            builder.add(normalize(line) + "\n")
    except json.JSONDecodeError as error:
        builder.warn(f"not valid JSON ({error.msg}, line {error.lineno}); read as plain text")
        builder.add(text)
    return Document(media_type=found.media_type, encoding=decoding.encoding, blocks=builder.blocks())


def parse_notebook(file: File, found: Detected, *, limit: int) -> Document:
    """The cells of a Jupyter notebook: Markdown as it is, code in fences, and what it printed."""
    text, decoding = read_text(file, found.charset, limit=limit)
    try:
        notebook = loads(text)
    except json.JSONDecodeError as error:
        raise PoisonError("corrupt", f"not valid JSON: {error.msg}, line {error.lineno}") from error
    if not isinstance(notebook, dict):
        raise PoisonError("corrupt", "a notebook is a JSON object")
    builder = TextBuilder(limit)
    scanner = HeadingScanner()
    language = _text(_dict(_dict(notebook.get("metadata")).get("kernelspec")).get("language"))
    for cell in _cells(notebook):
        words = normalize(_cell_text(cell, language))
        for mark in scanner.scan(words, builder.length):
            builder.heading(mark.level, mark.text, mark.start)
        builder.add(words)
    return Document(media_type=found.media_type, title=builder.first_heading(), encoding=decoding.encoding, blocks=builder.blocks())


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Version 4 has cells, version 3 has them in worksheets."""
    sheets = [notebook, *(_list(notebook.get("worksheets")))]
    for sheet in sheets:
        yield from (cell for cell in _list(_dict(sheet).get("cells")) if isinstance(cell, dict))


def _cell_text(cell: dict[str, Any], language: str) -> str:
    source = _text(cell.get("source", cell.get("input")))
    if cell.get("cell_type") != "code":
        return source.rstrip("\n") + "\n\n"
    parts = [f"```{language}\n{source.rstrip()}\n```\n\n"] if source.strip() else []
    for output in _list(cell.get("outputs")):
        data = _dict(_dict(output).get("data"))
        printed = _text(_dict(output).get("text")) or _text(data.get("text/markdown")) or _text(data.get("text/plain"))
        if printed.strip():
            parts.append(printed[:_OUTPUT_LARGEST].rstrip("\n") + "\n\n")
    return "".join(parts)


def _text(value: object) -> str:
    """Notebooks keep text as a string or as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
