"""Paragraphs in; the bytes of a PDF, a Word document, a mail or a web page out, written with the standard library alone."""

from __future__ import annotations

import io
import textwrap
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from html import escape
from typing import Final

_LINE: Final = 84
"""Characters of Helvetica 11 that fit between the margins of a page."""
_LAST_YEAR: Final = (2025, 11, 3, 9, 0, 0)


def pdf(pages: Sequence[str]) -> bytes:
    """A PDF with one page for each text (PDF 1.4, Helvetica; ISO 32000-1, annex H has the smallest example)."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids: list[str] = []
    for page in pages:
        content = _page(page)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        stream = len(objects)
        parts = f"/Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents {stream} 0 R"
        objects.append(f"<< /Type /Page {parts} >>".encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    return _numbered(objects)


def docx(paragraphs: Sequence[str]) -> bytes:
    """A Word document; the first paragraph is its heading (ECMA-376, the parts that no reader does without)."""
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    style = '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>'
    body = "".join(
        f"<w:p>{style if number == 0 else ''}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for number, text in enumerate(paragraphs)
    )
    package = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        f'<Default Extension="rels" ContentType="{relations}"/><Override PartName="/word/document.xml" ContentType="{package}"/></Types>',
        "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{office}" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"<w:document {word}><w:body>{body}</w:body></w:document>",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=_LAST_YEAR), f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return buffer.getvalue()


def mail(*, sender: str, to: str, subject: str, body: str) -> bytes:
    """A mail as it is stored (RFC 5322)."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, to, subject
    message["Date"] = datetime(*_LAST_YEAR, tzinfo=UTC)
    message.set_content(body)
    return message.as_bytes()


def html(*, title: str, paragraphs: Sequence[str]) -> bytes:
    """A page with a heading, and navigation that a reader does not want to find."""
    body = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    navigation = '<nav><a href="/">Home</a> <a href="/imprint">Imprint</a></nav>'
    return f"<!doctype html><html><head>{head}</head><body>{navigation}<main><h1>{escape(title)}</h1>{body}</main></body></html>".encode()


def _page(text: str) -> bytes:
    lines = [line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, _LINE) or [""]]
    shown = "\n".join(f"({_literal(line)}) Tj T*" for line in lines)
    return f"BT /F1 11 Tf 14 TL 60 780 Td\n{shown}\nET".encode("latin-1")


def _literal(line: str) -> str:
    return line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _numbered(objects: Sequence[bytes]) -> bytes:
    """The objects with their numbers, and the table that says where each begins."""
    out = bytearray(b"%PDF-1.4\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)
