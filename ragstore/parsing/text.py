"""A text, Markdown or source file of any size in, a document out whose blocks are read as they are consumed."""

from __future__ import annotations

from collections.abc import Iterator

from ragstore.errors import PoisonError
from ragstore.models import Block, Document
from ragstore.parsing.blocks import cut, peek
from ragstore.parsing.decode import Decoding, choose, pieces
from ragstore.parsing.detect import Detected
from ragstore.parsing.headings import HeadingScanner, markdown_title
from ragstore.parsing.normalize import normalize, normalize_pieces
from ragstore.spool import File


def parse_text(file: File, found: Detected) -> Document:
    """Text as it stands, normalised; in Markdown, headings are marked.

    Raises `PoisonError`: `unsupported` for binary data, `empty` for white space.
    """
    decoding = decoding_of(file, found.charset)
    markdown = found.kind == "markdown"
    first, texts = peek(cut(visible(normalized(file, decoding))))
    blocks = _blocks(texts, HeadingScanner() if markdown else None, decoding.warnings)
    title = markdown_title(first) if markdown else None
    return Document(media_type=found.media_type, title=title, encoding=decoding.encoding, blocks=blocks)


def decoding_of(file: File, charset: str | None) -> Decoding:
    """How the file's bytes are read as text."""
    with file.open("rb") as stream:
        return choose(stream, charset)


def normalized(file: File, decoding: Decoding) -> Iterator[str]:
    """The file's normalised text, piece by piece."""
    with file.open("rb") as stream:
        yield from normalize_pieces(pieces(stream, decoding))


def read_text(file: File, charset: str | None, *, limit: int) -> tuple[str, Decoding]:
    """The whole normalised text. Raises `PoisonError("too_large", ...)` for a file of more bytes than `limit`."""
    size = file.stat().st_size
    if size > limit:
        raise PoisonError("too_large", f"{size} bytes in a format that cannot be read in pieces; the limit is {limit}")
    decoding = decoding_of(file, charset)
    with file.open("rb") as stream:
        return normalize("".join(pieces(stream, decoding))), decoding


def visible(texts: Iterator[str]) -> Iterator[str]:
    """The same texts. Raises `PoisonError("empty", ...)` before the first where there is nothing but white space in all of them."""
    held: list[str] = []
    for text in texts:
        held.append(text)
        if not text.isspace():
            break
    else:
        raise PoisonError("empty", "there is nothing but white space in the file")
    yield from held
    yield from texts


def _blocks(texts: Iterator[str], scanner: HeadingScanner | None, warnings: tuple[str, ...]) -> Iterator[Block]:
    start = 0
    for text in texts:
        headings = scanner.scan(text, start) if scanner else ()
        yield Block(text=text, start=start, headings=headings, warnings=warnings if start == 0 else ())
        start += len(text)
