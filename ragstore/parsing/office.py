"""A Word, PowerPoint or Excel file in, old or new; its text out, with headings, slides and sheets marked and tables row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.containers import TOTAL_LIMIT, guarded_zip
from ragstore.parsing.detect import Detected
from ragstore.parsing.media_types import DOCX, PPTX, XLSX
from ragstore.parsing.normalize import normalize
from ragstore.parsing.tabular import grouped

if TYPE_CHECKING:
    import office_oxide

Format = Literal["docx", "xlsx", "pptx", "doc", "xls", "ppt"]
_FORMATS: dict[str, Format] = {
    DOCX: "docx",
    PPTX: "pptx",
    XLSX: "xlsx",
    "application/msword": "doc",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.ms-excel": "xls",
}
_WITHOUT_PAGES = {"docx", "doc"}
_NO_TITLE = re.compile(r"(?:slide|sheet) ?\d+|powerpoint presentation|microsoft word - .*|untitled|", re.IGNORECASE)


def parse_office(file: Path, found: Detected, *, limit: int) -> Document:
    """The text of all paragraphs, tables, text boxes, notes, headers and footers; a page mark per slide or sheet.

    Raises `PoisonError`: `encrypted`, `corrupt`, `too_large`, `no_text`.
    """
    form = _FORMATS[found.media_type]
    if form in {"docx", "pptx", "xlsx"}:
        with guarded_zip(file):
            pass
    content = _read(file, form)
    builder = TextBuilder(limit)
    sections = _list(content.get("sections"))
    for number, section in enumerate(sections, 1):
        if form not in _WITHOUT_PAGES:
            builder.page(number)
        _add_section(builder, _dict(section), titled=form not in _WITHOUT_PAGES)
    title = _title(_dict(content.get("metadata")), sections, form)
    return Document(media_type=found.media_type, title=title or builder.first_heading(), blocks=builder.blocks())


def _read(file: Path, form: Format) -> dict[str, Any]:
    """The document as `office_oxide` describes it: sections of elements."""
    import office_oxide

    if file.stat().st_size > TOTAL_LIMIT:
        raise PoisonError("too_large", f"an Office file of more than {TOTAL_LIMIT} bytes")
    try:
        document: office_oxide.Document = office_oxide.Document.from_bytes(file.read_bytes(), form)
        return document.to_ir()
    except office_oxide.OfficeOxideError as error:
        words = str(error)
        if "password" in words or "encrypted" in words:
            raise PoisonError("encrypted", "an Office file that needs a password") from error
        raise PoisonError("corrupt", f"the Office file cannot be read: {words[:200]}") from error


def _title(metadata: dict[str, Any], sections: list[Any], form: Format) -> str | None:
    """The title in the file's properties, unless it is one that the program made up."""
    title = " ".join(normalize(str(metadata.get("title") or "")).split())
    first = str(_dict(sections[0]).get("title") or "") if sections else ""
    if _NO_TITLE.fullmatch(title) or (form in {"xlsx", "xls"} and title == first):
        return None
    return title


def _add_section(builder: TextBuilder, section: dict[str, Any], *, titled: bool) -> None:
    elements = _list(section.get("elements"))
    title = normalize(str(section.get("title") or ""))
    if titled and title.strip() and not _begins_with(elements, title):
        _add_heading(builder, 2, title)
    for part in ("header", "first_header", "even_header"):
        _add_elements(builder, _list(_dict(section.get(part)).get("content")))
    _add_elements(builder, elements)
    for part in ("notes", "footer", "first_footer", "even_footer"):
        _add_elements(builder, _list(_dict(section.get(part)).get("content")))


def _begins_with(elements: list[Any], title: str) -> bool:
    first = _dict(elements[0]) if elements else {}
    return first.get("type") == "heading" and _words(first) == " ".join(title.split())


def _add_elements(builder: TextBuilder, elements: list[Any]) -> None:
    for element in elements:
        node = _dict(element)
        match node.get("type"):
            case "heading":
                level = node.get("level")
                _add_heading(builder, level if isinstance(level, int) else 1, _words(node))
            case "table":
                _add_table(builder, node)
            case "text_box" | "footnote" | "endnote" | "comment":
                _add_elements(builder, _list(node.get("content")))
            case _:
                if text := normalize(_text(node)).strip("\n"):
                    builder.add(text + ("\n\n" if text.strip() else ""))


def _add_heading(builder: TextBuilder, level: int, words: str) -> None:
    line = " ".join(normalize(words).split())
    if line:
        level = min(max(level, 1), 6)
        builder.heading(level, line)
        builder.add(f"{'#' * level} {line}\n\n")


def _add_table(builder: TextBuilder, table: dict[str, Any]) -> None:
    written = False
    for group in grouped(_rows(table), quotes=False):
        builder.add(group)
        written = written or bool(group)
    if written:
        builder.add("\n")


def _rows(table: dict[str, Any]) -> Iterator[str]:
    """Each row as its cells with ` | ` between them; empty cells at its end and empty rows are left out."""
    for row in _list(table.get("rows")):
        cells = [_words(_dict(cell)) for cell in _list(_dict(row).get("cells"))]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield normalize(" | ".join(cells)) + "\n"


def _words(node: dict[str, Any]) -> str:
    """All text below a node on one line."""
    return " ".join(normalize(_text(node)).split())


_BREAKS = {"paragraph": "\n", "heading": "\n", "list": "\n", "table": "\n"}


def _text(node: dict[str, Any]) -> str:
    """All text below a node: paragraphs and rows on lines of their own, list items with a dash."""
    kind = node.get("type")
    if kind in {"line_break", "page_break", "column_break"}:
        return "\n"
    if kind == "tab":
        return "\t"
    if kind == "table":
        return "".join(_rows(node))
    if kind == "image":
        return str(node.get("alt_text") or "")
    if isinstance(node.get("text"), str):
        return str(node["text"])
    parts = [_text(_dict(child)) for child in _list(node.get("content"))]
    parts += [f"- {_text(_dict(item)).strip()}\n" for item in _list(node.get("items"))]
    parts += [_text(_dict(child)) for child in _list(node.get("nested")) + _list(node.get("children"))]
    return "".join(parts) + _BREAKS.get(str(kind), "")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
