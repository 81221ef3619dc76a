"""An EPUB or OpenDocument file in, its text out: zip packages of web pages and of XML, read in memory behind the guard."""

from __future__ import annotations

import posixpath
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.containers import guarded_zip, member
from ragstore.parsing.decode import choose, pieces
from ragstore.parsing.detect import Detected
from ragstore.parsing.html import add_page
from ragstore.parsing.normalize import normalize
from ragstore.parsing.tabular import grouped
from ragstore.parsing.xml_text import walk

if TYPE_CHECKING:
    import zipfile

_LARGEST_REPEAT = 100
_HTML_SUFFIXES = (".xhtml", ".html", ".htm")


def parse_epub(file: Path, found: Detected, *, limit: int) -> Document:
    """The pages of the book in reading order."""
    with guarded_zip(file) as archive:
        title, pages = _spine(archive)
        builder = TextBuilder(limit)
        for page in pages:
            try:
                add_page(builder, _decoded(member(archive, page)))
            except PoisonError as error:
                if error.kind != "corrupt":
                    raise
                builder.warn(error.reason)
            builder.add("\n\n")
    return Document(media_type=found.media_type, title=title or builder.first_heading(), blocks=builder.blocks())


def _spine(archive: zipfile.ZipFile) -> tuple[str | None, list[str]]:
    """Title, and names of the pages in reading order; where the book does not say, all pages by name."""
    package = _Package()
    try:
        container = _Package()
        walk(_decoded(member(archive, "META-INF/container.xml")), start=container.start, end=container.end, data=container.data)
        root = container.rootfile or ""
        walk(_decoded(member(archive, root)), start=package.start, end=package.end, data=package.data)
    except PoisonError as error:
        if error.kind != "corrupt":
            raise
        root = ""
    names = set(archive.namelist())
    folder = posixpath.dirname(root)
    pages = [posixpath.normpath(posixpath.join(folder, unquote(package.items.get(item, "")))) for item in package.order]
    pages = [page for page in pages if page in names]
    title = " ".join(normalize(package.title).split()) or None
    return title, pages or sorted(name for name in names if name.lower().endswith(_HTML_SUFFIXES))


class _Package:
    """What an EPUB's package file (and its container file) says."""

    def __init__(self) -> None:
        self.rootfile: str | None = None
        self.items: dict[str, str] = {}
        self.order: list[str] = []
        self.title = ""
        self._in_title = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "rootfile" and self.rootfile is None:
            self.rootfile = attributes.get("full-path")
        elif name == "item":
            self.items[attributes.get("id", "")] = attributes.get("href", "")
        elif name == "itemref":
            self.order.append(attributes.get("idref", ""))
        elif name == "title":
            self._in_title = not self.title

    def data(self, text: str) -> None:
        if self._in_title:
            self.title += text

    def end(self, name: str) -> None:
        self._in_title = self._in_title and name != "title"


def parse_opendocument(file: Path, found: Detected, *, limit: int) -> Document:
    """Paragraphs, headings and tables of a text, sheet or presentation; a page mark per sheet or slide."""
    with guarded_zip(file) as archive:
        if any(entry.flag_bits & 1 for entry in archive.infolist()) or _is_encrypted(archive):
            raise PoisonError("encrypted", "an OpenDocument file that needs a password")
        content = _Content(TextBuilder(limit), paged=not found.media_type.endswith(".text"))
        walk(_decoded(member(archive, "content.xml")), start=content.start, end=content.end, data=content.data)
        title = _Package()
        if "meta.xml" in archive.namelist():
            walk(_decoded(member(archive, "meta.xml")), start=title.start, end=title.end, data=title.data)
    words = " ".join(normalize(title.title).split())
    return Document(media_type=found.media_type, title=words or content.builder.first_heading(), blocks=content.builder.blocks())


def _is_encrypted(archive: zipfile.ZipFile) -> bool:
    return "META-INF/manifest.xml" in archive.namelist() and b"encryption-data" in member(archive, "META-INF/manifest.xml")


class _Content:
    """Turns the elements of `content.xml` into text."""

    def __init__(self, builder: TextBuilder, *, paged: bool) -> None:
        self.builder = builder
        self._paged = paged
        self._page = 0
        self._parts: list[str] = []
        self._depth = 0  # of paragraphs: one in a note or frame stands inside another
        self._level = 0
        self._cells: list[str] = []
        self._repeat = 1
        self._rows: list[str] = []
        self._tables = 0
        self._cell_parts: list[str] = []
        self._skip = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match name:
            case "tracked-changes" | "forms":
                self._skip += 1
            case "p" | "h":
                self._depth += 1
                self._level = int(attributes.get("outline-level", "1")[:2]) if name == "h" else 0
            case "s":
                self._parts.append(" " * min(int(attributes.get("c", "1")[:4]), _LARGEST_REPEAT))
            case "tab":
                self._parts.append("\t")
            case "line-break":
                self._parts.append("\n")
            case "table":
                self._tables += 1
                if self._paged and self._tables == 1:
                    self._turn_page(attributes.get("name", ""))
            case "table-cell" | "covered-table-cell":
                self._repeat = int(attributes.get("number-columns-repeated", "1")[:6])
            case "page" if self._paged:
                self._turn_page(attributes.get("name", ""))

    def data(self, text: str) -> None:
        if self._depth and not self._skip:
            self._parts.append(text)

    def end(self, name: str) -> None:
        match name:
            case "tracked-changes" | "forms":
                self._skip -= 1
            case "p" | "h":
                self._depth -= 1
                self._paragraph()
            case "table-cell" | "covered-table-cell" if self._tables == 1:
                cell = " ".join(" ".join(self._cell_parts).split())
                self._cell_parts.clear()
                self._cells += [cell] * (min(self._repeat, _LARGEST_REPEAT) if cell else 1)
            case "table-row" if self._tables == 1:
                self._row()
            case "table":
                self._tables -= 1
                if not self._tables and self._rows:
                    for group in grouped(iter(self._rows), quotes=False):
                        self.builder.add(group)
                    self.builder.add("\n")
                    self._rows.clear()

    def _turn_page(self, name: str) -> None:
        self._page += 1
        self.builder.page(self._page)
        if name.strip():
            self._heading(2, name)

    def _paragraph(self) -> None:
        text = normalize("".join(self._parts))
        self._parts.clear()
        if self._tables:
            self._cell_parts.append(text)
        elif self._level:
            self._heading(self._level, text)
        elif text.strip():
            self.builder.add(text + "\n\n")

    def _row(self) -> None:
        while self._cells and not self._cells[-1]:
            self._cells.pop()
        if self._cells:
            self._rows.append(" | ".join(self._cells) + "\n")
        self._cells = []

    def _heading(self, level: int, text: str) -> None:
        words = " ".join(normalize(text).split())
        if words:
            level = min(max(level, 1), 6)
            self.builder.heading(level, words)
            self.builder.add(f"{'#' * level} {words}\n\n")


def _decoded(data: bytes) -> str:
    stream = BytesIO(data)
    return normalize("".join(pieces(stream, choose(stream))))
