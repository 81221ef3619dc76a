"""Files of many formats, made here byte by byte, and a parser that reads them from a spool file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from ragstore.errors import PoisonError
from ragstore.models import Block, Document
from ragstore.parsing import parse

OFFICE = "urn:oasis:names:tc:opendocument:xmlns"


class Parser:
    """Writes bytes to a spool file and parses them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "spooled"

    def document(self, data: bytes, name: str, declared: str | None = None) -> Document:
        self._file.write_bytes(data)
        return parse(self._file, name=name, declared=declared)

    def block(self, data: bytes, name: str, declared: str | None = None) -> Block:
        (block,) = self.document(data, name, declared).blocks
        return block

    def text(self, data: bytes, name: str, declared: str | None = None) -> str:
        return self.block(data, name, declared).text

    def kind(self, data: bytes, name: str, declared: str | None = None) -> str:
        with pytest.raises(PoisonError) as caught:
            list(self.document(data, name, declared).blocks)
        return caught.value.kind


def marked(block: Block) -> list[tuple[int, str, str]]:
    """Level and words of each heading, and the text that stands where it points."""
    return [(mark.level, mark.text, block.text[mark.start :].partition("\n")[0]) for mark in block.headings]


def pdf(*pages: str, title: str = "", outline: str = "") -> bytes:
    """A PDF with a line of text on each page, and one entry in its outline that leads to the last page."""
    count = len(pages)
    last = 3 + 2 * (count - 1)
    bodies = {
        1: f"<</Type/Catalog/Pages 2 0 R{'/Outlines 90 0 R' if outline else ''}>>",
        2: f"<</Type/Pages/Count {count}/Kids[{' '.join(f'{3 + 2 * n} 0 R' for n in range(count))}]>>",
        80: "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        81: f"<</Title({title})>>",
        90: "<</Type/Outlines/First 91 0 R/Last 91 0 R/Count 1>>",
        91: f"<</Title({outline})/Parent 90 0 R/Dest[{last} 0 R/Fit]>>",
    }
    for number, text in enumerate(pages):
        content = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET"
        page = 3 + 2 * number
        bodies[page] = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {page + 1} 0 R/Resources<</Font<</F1 80 0 R>>>>>>"
        bodies[page + 1] = f"<</Length {len(content)}>>stream\n{content}\nendstream"
    out = bytearray(b"%PDF-1.4\n")
    table = [b"0000000000 65535 f \n"] + [b"0000000000 00000 f \n"] * 91
    for number, body in sorted(bodies.items()):
        table[number] = b"%010d 00000 n \n" % len(out)
        out += f"{number} 0 obj{body}endobj\n".encode("latin-1")
    start = len(out)
    out += b"xref\n0 92\n" + b"".join(table) + b"trailer<</Size 92/Root 1 0 R/Info 81 0 R>>\nstartxref\n%d\n%%%%EOF" % start
    return bytes(out)


def package(**members: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def opendocument(content: str, kind: str = "text") -> bytes:
    names = " ".join(f'xmlns:{name}="{OFFICE}:{name}:1.0"' for name in ("office", "text", "table", "draw"))
    return package(
        mimetype=f"application/vnd.oasis.opendocument.{kind}",
        **{"content.xml": f"<?xml version='1.0'?><office:document-content {names}>{content}</office:document-content>"},
    )
