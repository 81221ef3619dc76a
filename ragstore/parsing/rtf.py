"""An RTF file in, its text out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.detect import Detected
from ragstore.parsing.normalize import normalize

_BLANK_RUNS = re.compile(r"\n{3,}")
_PAIRS = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LARGEST = 16 * 2**20
"""Bytes of markup without its pictures: the parser takes about 2 s of CPU time per megabyte."""
_PICTURE = re.compile(rb"(?:[0-9a-fA-F]{64,}+[\r\n]++){4,}+|[0-9a-fA-F]{512,}+")


def parse_rtf(file: Path, found: Detected, *, limit: int) -> Document:
    """Paragraphs, and table rows with ` | ` between the cells. Raises `PoisonError("too_large", ...)`."""
    builder = TextBuilder(limit)
    builder.add(rtf_text(file.read_bytes()))
    return Document(media_type=found.media_type, blocks=builder.blocks())


def rtf_text(markup: bytes) -> str:
    """The normalised text of RTF markup. Raises `PoisonError("too_large", ...)`."""
    from striprtf.striprtf import rtf_to_text

    data = _PICTURE.sub(b"", markup)
    if len(data) > _LARGEST:
        raise PoisonError("too_large", f"{len(data)} bytes of RTF without its pictures; the limit is {_LARGEST}")
    convert: Callable[..., object] = rtf_to_text  # it has no annotations
    text = str(convert(data.decode("latin-1"), errors="replace"))
    text = _PAIRS.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)
    return _BLANK_RUNS.sub("\n\n", normalize(text)).strip("\n")
