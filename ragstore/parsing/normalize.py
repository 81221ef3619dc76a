"""Decoded text in, normalised text out: the text whose characters every offset counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_DROP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LINE_LARGEST = 300
_NEWLINES = re.compile("\r\n?")
_PDF_HYPHEN = re.compile("\x02[ \t]*(?:\r\n|\r|\n)?")
_LIGATURES = str.maketrans({0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"})


def normalize(text: str) -> str:
    """CR and CRLF become LF; BOMs, NUL and other C0 controls but tab and LF go; a lone surrogate becomes U+FFFD.

    Form feeds become LF, because printed text uses them for page ends. Unicode normalisation forms are left alone: people
    compare spans with what they see in the file.
    """
    if text.isascii():
        if text.isprintable():
            return text
    elif _SURROGATES.search(text):
        text = _SURROGATES.sub("\ufffd", text)
    if "\r" in text:
        text = _NEWLINES.sub("\n", text)
    if "\f" in text:
        text = text.replace("\f", "\n")
    return _DROP.sub("", text)


def normalize_pieces(pieces: Iterable[str]) -> Iterator[str]:
    """`normalize` over a stream: a CRLF that is cut between two pieces is still one line end."""
    carry = ""
    for piece in pieces:
        text = carry + piece
        carry = "\r" if text.endswith("\r") else ""
        text = normalize(text[: len(text) - len(carry)])
        if text:
            yield text
    if carry:
        yield "\n"


def normalize_pdf(text: str) -> str:
    """As `normalize`, and words that PDFium marks as hyphenated over a line end (U+0002) are joined, ligatures are folded."""
    return normalize(_PDF_HYPHEN.sub("", text).translate(_LIGATURES))


def one_line(text: str) -> str:
    """Words of a title or a heading, with single blanks between them and no more than 300 characters, however long a file makes it."""
    words = " ".join(text[: 4 * _LINE_LARGEST].split())
    return words if len(words) <= _LINE_LARGEST else words[: _LINE_LARGEST - 1].rstrip() + "…"
