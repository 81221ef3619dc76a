"""An HTML page in, its text out, with tables and lists as people read them and its headings marked."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.decode import Decoding
from ragstore.parsing.detect import Detected
from ragstore.parsing.normalize import normalize
from ragstore.parsing.text import read_text

if TYPE_CHECKING:
    import turbohtml

_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_BREAKS = re.compile(r"(?<![ \t])[ \t]+$|^\\$", re.MULTILINE)
"""How the renderer writes the line breaks of an address or a poem."""
_CELL_LARGEST = 600
_TABLE_PARTS = "thead, tbody, tfoot, tr, td, th"
_META_WITHIN = 4096
_ATX = re.compile(r"^(?P<hashes>#{1,6}) (?P<text>[^\n]+)$", re.MULTILINE)


def parse_html(file: Path, found: Detected, *, limit: int) -> Document:
    """The page's text. A charset in a `meta` element counts like a declared one: only where it decodes strictly."""
    with file.open("rb") as stream:
        meta = _META.search(stream.read(_META_WITHIN))
    markup, decoding = read_text(file, found.charset or (meta[1].decode("ascii") if meta else None), limit=limit)
    builder = TextBuilder(limit)
    title = add_page(builder, markup, decoding)
    return Document(
        media_type=found.media_type, title=title or builder.first_heading(), encoding=decoding.encoding, blocks=builder.blocks()
    )


def add_page(builder: TextBuilder, markup: str, decoding: Decoding | None = None) -> str | None:
    """Append the text of a page, which may be a part of something larger; its title, where it has one."""
    import turbohtml

    page = turbohtml.parse(markup, positions=False)
    _unfold_layout(page)
    text = _BREAKS.sub("", normalize(page.to_markdown(_style())))
    for warning in decoding.warnings if decoding else ():
        builder.warn(warning)
    offset = builder.length
    for start, level, words in _headings(page, text):
        builder.heading(level, words, offset + start)
    builder.add(text)
    title = page.find("title")
    return (" ".join(normalize(title.text).split()) or None) if title is not None else None


def _unfold_layout(page: turbohtml.Document) -> None:
    """Tables that only place things on the page become plain blocks: their cells hold whole articles, not values."""
    layout = {table for table in page.select("table") if _is_layout(table)}
    if layout:
        parts = [part for part in page.select(_TABLE_PARTS) if part.closest("table") in layout]
        for part in (*layout, *parts):
            part.tag = "div"


def _is_layout(table: turbohtml.Element) -> bool:
    if table.attrs.get("role") == "presentation" or table.select_one("table") is not None:
        return True
    return any(len(cell.text) > _CELL_LARGEST for cell in table.select("td"))


def _headings(page: turbohtml.Document, text: str) -> list[tuple[int, int, str]]:
    """Start, level and words of each heading: lines that the renderer wrote for an `h1` to `h6`, not text that merely looks so."""
    wanted = [(int(element.tag[1]), _letters(element.text)) for element in page.select("h1, h2, h3, h4, h5, h6")]
    found = []
    place = 0
    for line in _ATX.finditer(text):
        level, letters = len(line["hashes"]), _letters(line["text"])
        for index in range(place, min(place + 50, len(wanted))):
            if wanted[index] == (level, letters):
                found.append((line.start(), level, line["text"]))
                place = index + 1
                break
    return found


def _letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


@cache
def _style() -> turbohtml.Markdown:
    """Structure that helps a reader (headings, lists, tables, code) without marks that hinder a search (emphasis, targets, escapes)."""
    from turbohtml import Markdown

    return Markdown(
        inline=Markdown.Inline(ignore_emphasis=True),
        links=Markdown.Links(ignore=True),
        images=Markdown.Images(mode="alt"),
        tables=Markdown.Tables(cell_blocks="text"),
        escaping=Markdown.Escaping(mode="none", asterisks=False, underscores=False),
    )
