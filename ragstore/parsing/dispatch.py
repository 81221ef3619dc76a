"""A file, its name and declared type in, a document out: the one place that knows which parser reads what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ragstore.errors import PoisonError, RagstoreError
from ragstore.models import Block, Document
from ragstore.parsing.blocks import TEXT_LIMIT
from ragstore.parsing.detect import Detected, detect, is_plain
from ragstore.parsing.media_types import KINDS
from ragstore.parsing.normalize import one_line
from ragstore.parsing.text import parse_text
from ragstore.spool import File

_CHEAP_SIZE = 2**20


def parse(file: File, *, name: str, declared: str | None, text_limit: int = TEXT_LIMIT) -> Document:
    """The document in this file; `name` is the blob's path and `declared` its content type, either of which may be wrong.

    Blocks of text, CSV and JSONL are read as they are consumed, so the file must stay where it is until then. `text_limit` is the
    number of characters that any other format may hold. Raises `PoisonError`, and `OSError` where the file cannot be read.
    """
    with _tidy():
        found = detect(file, name=name, declared=declared)
        document = _parse(file, found, text_limit)
    title = one_line(document.title or "") or None
    return replace(document, title=title, blocks=document.blocks if isinstance(document.blocks, tuple) else _tidily(document.blocks))


def is_trusted(file: File, *, name: str, declared: str | None) -> bool:
    """Whether the file may be parsed in the caller's process: below 1 MB, and of a kind that takes time in proportion to its size."""
    if file.stat().st_size > _CHEAP_SIZE or not is_plain(file):
        return False
    try:
        return detect(file, name=name, declared=declared).kind in KINDS.cheap
    except PoisonError:
        return True  # `parse` fails the same way, before it reads anything


def _parse(file: File, found: Detected, limit: int) -> Document:
    if found.kind in KINDS.cheap:
        return _parse_text(file, found, limit)
    if not isinstance(file, Path):
        raise TypeError(f"{found.media_type} is read from a path only")
    return _parse_in_place(file, found, limit)


def _parse_text(file: File, found: Detected, limit: int) -> Document:
    match found.kind:
        case "text" | "markdown" | "source":
            return parse_text(file, found)
        case "csv" | "jsonl":
            from ragstore.parsing.tabular import parse_csv, parse_jsonl

            return parse_csv(file, found) if found.kind == "csv" else parse_jsonl(file, found)
        case _:
            from ragstore.parsing.json_text import parse_json, parse_notebook

            return (parse_json if found.kind == "json" else parse_notebook)(file, found, limit=limit)


def _parse_in_place(file: Path, found: Detected, limit: int) -> Document:
    match found.kind:
        case "pdf":
            from ragstore.parsing.pdf import parse_pdf

            return parse_pdf(file, found, limit=limit)
        case "office":
            from ragstore.parsing.office import parse_office

            return parse_office(file, found, limit=limit)
        case "epub" | "opendocument":
            from ragstore.parsing.packages import parse_epub, parse_opendocument

            return (parse_epub if found.kind == "epub" else parse_opendocument)(file, found, limit=limit)
        case "rtf":
            from ragstore.parsing.rtf import parse_rtf

            return parse_rtf(file, found, limit=limit)
        case "xml":
            from ragstore.parsing.xml_text import parse_xml

            return parse_xml(file, found, limit=limit)
        case "mail" | "mbox":
            from ragstore.parsing.mail import parse_mail, parse_mbox

            return (parse_mail if found.kind == "mail" else parse_mbox)(file, found, limit=limit)
        case "outlook":
            from ragstore.parsing.outlook import parse_outlook

            return parse_outlook(file, found, limit=limit)
        case "html":
            from ragstore.parsing.html import parse_html

            return parse_html(file, found, limit=limit)
        case _:
            raise PoisonError("unsupported", f"there is no parser for {found.media_type}")


def _tidily(blocks: Iterable[Block]) -> Iterator[Block]:
    with _tidy():
        yield from blocks


@contextmanager
def _tidy() -> Iterator[None]:
    """Whatever a parser raises over hostile bytes becomes a `PoisonError`; an unreadable spool file stays an `OSError`."""
    try:
        yield
    except (RagstoreError, OSError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except RecursionError as error:
        raise PoisonError("too_deep", "nested too deeply to be read") from error
    except MemoryError as error:
        raise PoisonError("too_large", "reading it takes more memory than is allowed") from error
    except Exception as error:
        raise PoisonError("corrupt", f"the parser failed: {type(error).__name__}: {str(error)[:200]}") from error
    except BaseException as error:  # a Rust panic is no Exception
        raise PoisonError("crashed", f"the parser gave up: {type(error).__name__}: {str(error)[:200]}") from error
