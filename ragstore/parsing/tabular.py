"""CSV, TSV and JSONL files of any size in, documents out whose rows keep their meaning: the header stands over each group of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from zlib import crc32

from ragstore.models import Block, Document
from ragstore.parsing.blocks import assemble, cut
from ragstore.parsing.decode import Decoding
from ragstore.parsing.detect import Detected
from ragstore.parsing.json_text import flatten, loads
from ragstore.parsing.normalize import normalize
from ragstore.parsing.text import decoding_of, normalized, visible
from ragstore.spool import File

_GROUP_SMALLEST = 400
_GROUP_LARGEST = 1600
"""Characters of rows under one header: about what a chunk holds."""
_HEADER_LARGEST = 300
"""A longer header is not repeated: it would drown the rows."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_LINE_LARGEST = 2**20


def parse_csv(file: File, found: Detected) -> Document:
    """The rows as they stand in the file; the first is repeated over every group of rows where it reads like a header."""
    decoding = decoding_of(file, found.charset)
    rows = lines(visible(normalized(file, decoding)))
    texts = cut(grouped(rows))
    return _document(found, decoding, assemble(texts, warnings=decoding.warnings))


def parse_jsonl(file: File, found: Detected) -> Document:
    """Each line's values as `key: value`, a blank line between records; a line that is no JSON stands as it is, with a warning."""
    decoding = decoding_of(file, found.charset)
    warnings = list(decoding.warnings)
    texts = cut(_records(lines(visible(normalized(file, decoding))), warnings))
    return _document(found, decoding, _warned(texts, warnings))


def _document(found: Detected, decoding: Decoding, blocks: Iterator[Block]) -> Document:
    return Document(media_type=found.media_type, encoding=decoding.encoding, blocks=blocks)


def lines(pieces: Iterable[str]) -> Iterator[str]:
    """Lines with their LF; one of more than 1 MB comes in parts, so that memory stays bounded."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        end = text.rfind("\n") + 1
        yield from text[:end].splitlines(keepends=True) if _only_lf(text) else _split(text[:end])
        rest = text[end:]
        if len(rest) > _LINE_LARGEST:
            yield rest
            rest = ""
    if rest:
        yield rest


def _only_lf(text: str) -> bool:
    """Whether `splitlines`, which knows eight more line ends than a CSV file, would cut at LF alone."""
    return text.isascii()


def _split(text: str) -> Iterator[str]:
    start = 0
    while end := text.find("\n", start) + 1:
        yield text[start:end]
        start = end


def grouped(rows: Iterator[str], *, quotes: bool = True) -> Iterator[str]:
    """Groups of rows, each under the header. Where one ends is decided by its rows' content, so that an insertion moves few groups.

    With `quotes`, a row may go on over several lines while a double quote is open.
    """
    header = next(rows, "")
    if not _is_header(header):
        yield header
        yield from rows
        return
    group = [header]
    size, quoted = 0, False
    for row in rows:
        group.append(row)
        size += len(row)
        quoted ^= quotes and row.count('"') % 2 == 1
        ripe = size >= _GROUP_SMALLEST and not quoted and crc32(row.encode()) % 4 == 0
        if ripe or (size >= _GROUP_LARGEST and (not quoted or size >= 4 * _GROUP_LARGEST)):
            yield "".join(group)
            group, size, quoted = ["\n", header], 0, False
    if size or len(group) == 1:
        yield "".join(group)


def _is_header(row: str) -> bool:
    """Words in every cell (the first may be empty, as over an index), no numbers but years, no two alike, short enough to be repeated."""
    if not row.endswith("\n") or len(row) > _HEADER_LARGEST:
        return False
    delimiter = max("\t,;|", key=row.count)
    cells = [cell.strip(" \"'\n").lower() for cell in row.split(delimiter)]
    return len(cells) > 1 and len(set(cells)) == len(cells) and all(cell and not _is_number(cell) for cell in cells[0 if cells[0] else 1 :])


def _is_number(cell: str) -> bool:
    return not any(char.isalpha() for char in cell) and not _YEAR.fullmatch(cell)


def _records(rows: Iterator[str], warnings: list[str]) -> Iterator[str]:
    for number, row in enumerate(rows, 1):
        if row.isspace():
            continue
        try:
            yield normalize("\n".join(flatten(loads(row)))) + "\n\n"
        except (json.JSONDecodeError, RecursionError):
            if len(warnings) < 100:  # noqa: PLR2004 - a file must not flood its report
                warnings.append(f"line {number} is not valid JSON and was kept as it is")
            yield row + ("\n" if row.endswith("\n") else "\n\n")


def _warned(texts: Iterator[str], warnings: list[str]) -> Iterator[Block]:
    """Blocks that carry the warnings which came up while they were read."""
    start = told = 0
    for text in texts:
        yield Block(text=text, start=start, warnings=tuple(warnings[told:]))
        told = len(warnings)
        start += len(text)
