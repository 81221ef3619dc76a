"""A PDF file in, its text out page by page, with its outline as headings."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.detect import Detected
from ragstore.parsing.normalize import normalize, normalize_pdf

if TYPE_CHECKING:
    import pypdfium2

_PAGES_LARGEST = 50_000
_OUTLINE_LARGEST = 20_000
_SPACES = re.compile(r"\s+")


def parse_pdf(file: Path, found: Detected, *, limit: int) -> Document:
    """All pages that can be read, a blank line between them; one that cannot be read is left out, with a warning.

    Raises `PoisonError`: `encrypted` where a password is needed to open it, `corrupt`, `no_text` for a scan.
    """
    document = _open(file)
    try:
        builder = TextBuilder(limit)
        outline = _outline(document)
        pages = len(document)
        read = sum(_add_page(builder, document, index, outline.get(index, ())) for index in range(min(pages, _PAGES_LARGEST)))
        if pages > _PAGES_LARGEST:
            builder.warn(f"{pages} pages; only the first {_PAGES_LARGEST} were read")
        if not read:
            raise PoisonError("corrupt", f"none of the {pages} pages can be read")
        title = normalize(str(document.get_metadata_dict(skip_empty=True).get("Title", "")))
        return Document(media_type=found.media_type, title=" ".join(title.split()) or None, blocks=builder.blocks())
    finally:
        document.close()


def _open(file: Path) -> pypdfium2.PdfDocument:
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        return pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == FPDF_ERR_PASSWORD or "password" in str(error).lower():
            raise PoisonError("encrypted", "the PDF needs a password to be opened") from error
        raise PoisonError("corrupt", f"the PDF cannot be opened: {error}") from error


def _add_page(builder: TextBuilder, document: pypdfium2.PdfDocument, index: int, outline: list[tuple[int, str]] | tuple[()]) -> bool:
    """Append a page; whether it could be read."""
    import pypdfium2

    try:
        page = document[index]
        try:
            content = page.get_textpage()
            try:
                text = normalize_pdf(content.get_text_bounded())
            finally:
                content.close()
        finally:
            page.close()
    except pypdfium2.PdfiumError as error:
        builder.warn(f"page {index + 1} cannot be read: {error}")
        return False
    if builder.length:
        builder.add("\n\n")
    builder.page(index + 1)
    _mark(builder, text, outline)
    builder.add(text.rstrip())
    return True


def _mark(builder: TextBuilder, text: str, outline: list[tuple[int, str]] | tuple[()]) -> None:
    """Each entry of the outline becomes a heading where its words stand on the page, in order; else where the page begins."""
    place = 0
    for level, words in outline:
        pattern = r"\s+".join(re.escape(word) for word in words.split()[:12])
        match = re.compile(pattern, re.IGNORECASE).search(text, place) if pattern else None
        if match:
            place = match.end()
        builder.heading(level, words, builder.length + (match.start() if match else place))


def _outline(document: pypdfium2.PdfDocument) -> dict[int, list[tuple[int, str]]]:
    """Page index → level and words of the entries that lead to it."""
    import pypdfium2

    entries: dict[int, list[tuple[int, str]]] = defaultdict(list)
    try:
        for number, bookmark in enumerate(document.get_toc(max_depth=6)):
            if number >= _OUTLINE_LARGEST:
                break
            target = bookmark.get_dest()
            index = target.get_index() if target else None
            words = " ".join(normalize_pdf(bookmark.get_title()).split())
            if index is not None and words:
                entries[index].append((bookmark.level + 1, words[:300]))
    except (pypdfium2.PdfiumError, UnicodeError):  # an outline is a help, not the text
        return {}
    return entries
