"""A file, its name and its declared type in; what it holds out: the content decides first, then the declared type, then the extension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ragstore.errors import PoisonError
from ragstore.parsing import containers
from ragstore.parsing.media_types import BY_EXTENSION, BY_MEDIA_TYPE, GENERIC, KINDS, Kind
from ragstore.spool import File

_HEAD = 8192
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PDF_WITHIN = 1024
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF87a", "a GIF image"), (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"), (b"MM\x00*", "a TIFF image"), (b"\x00\x00\x01\x00", "an icon"), (b"8BPS", "a Photoshop image"),
    (b"\x1f\x8b", "a gzip archive"), (b"BZh", "a bzip2 archive"), (b"\xfd7zXZ\x00", "an xz archive"), (b"7z\xbc\xaf\x27\x1c",
    "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"), (b"\x28\xb5\x2f\xfd", "a zstd archive"), (b"\x7fELF", "a program"), (b"\xca\xfe\xba\xbe",
    "Java byte code"),
    (b"\xcf\xfa\xed\xfe", "a program"), (b"\x00asm", "WebAssembly"), (b"ID3", "an MP3 sound"), (b"OggS", "an Ogg sound"), (b"fLaC",
    "a FLAC sound"),
    (b"SQLite format 3\x00", "an SQLite database"), (b"PAR1", "a Parquet file"), (b"ARROW1", "an Arrow file"), (b"wOFF", "a font"),
    (b"wOF2", "a font"), (b"\x00\x01\x00\x00\x00", "a font"), (b"OTTO", "a font"), (b"\x1aE\xdf\xa3", "a Matroska video"), (b"%!PS",
    "PostScript"),
)  # fmt: skip
_HTML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL)
_XML = re.compile(rb"\s*<\?xml[\s]")
_MAIL = re.compile(
    rb"(?:(?:From|To|Cc|Date|Subject|Received|Return-Path|Message-ID|MIME-Version|Delivered-To|Reply-To|X-[\w-]+)"
    rb":[^\n]*\n(?:[ \t][^\n]*\n)*){3}", re.IGNORECASE,
)  # fmt: skip
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,127}/[\w.+-]{1,127}", re.ASCII)
_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE)
_MBOX = re.compile(rb"From \S+ +[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d ")


def is_plain(file: File) -> bool:
    """Whether the first bytes are of no container, so that to find out more takes no more than reading text."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    return not head.startswith((_ZIP, _EMPTY_ZIP, _OLE)) and b"%PDF-" not in head[:_PDF_WITHIN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What a file holds, and the charset that was declared for it."""

    kind: Kind
    media_type: str
    charset: str | None = None


def detect(file: File, *, name: str, declared: str | None) -> Detected:
    """What to parse this file as.

    Raises `PoisonError`: `empty` for no bytes, `unsupported` for content that no parser reads, `mislabelled` where the name or the
    declared type promised a kind that the content is not.
    """
    with file.open("rb") as stream:
        head = stream.read(_HEAD)
    if not head:
        raise PoisonError("empty", "the file has no bytes")
    media_type, charset = _declared(declared)
    promised = _promised(name, media_type)
    found = _by_magic(file, head, promised)
    if found is None:
        found = _text_kind(head, promised)
    return Detected(kind=found[0], media_type=found[1], charset=charset)


def _declared(declared: str | None) -> tuple[str, str | None]:
    """Media type, lower-cased, and charset of a Content-Type header; neither where there is none."""
    media_type = (declared or "").partition(";")[0].strip().lower()
    charset = _CHARSET.search(declared or "")
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else "", charset[1].lower() if charset else None


def _promised(name: str, media_type: str) -> tuple[Kind, str] | None:
    """What the declared type says, unless it is one that says nothing; then what the extension says."""
    known = BY_MEDIA_TYPE.get(media_type)
    by_name = by_extension(name)
    if media_type in GENERIC or not known:
        return by_name or ((known, media_type) if known else None)
    return known, media_type


def by_extension(name: str) -> tuple[Kind, str] | None:
    """What the extension says, or a file name such as `Makefile`."""
    path = PurePosixPath(name.lower())
    return BY_EXTENSION.get(path.suffix) or BY_EXTENSION.get(path.name)


def _by_magic(file: File, head: bytes, promised: tuple[Kind, str] | None) -> tuple[Kind, str] | None:
    if b"%PDF-" in head[:_PDF_WITHIN] and (head.startswith(b"%PDF-") or not _reads_as_text(promised)):
        return "pdf", "application/pdf"
    if head.startswith((_ZIP, _EMPTY_ZIP)):
        return containers.in_zip(_path(file))
    if head.startswith(_OLE):
        return containers.in_ole(_path(file))
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{\\rtf"):
        return "rtf", "application/rtf"
    foreign = next((what for magic, what in _FOREIGN if head.startswith(magic) and _is_foreign(magic, head)), None) or _riff(head)
    if foreign:
        _refuse(foreign, promised)
    return None


def _path(file: File) -> Path:
    """Containers are looked at in place, by whoever has them in a file."""
    if not isinstance(file, Path):
        raise TypeError("a container was not written to a file before it was parsed")
    return file


def _is_foreign(magic: bytes, head: bytes) -> bool:
    """Magics that are also plain words count only where the bytes after them are no text."""
    return not magic.isalnum() or not head[:64].isascii() or b"\0" in head[:64]


def _riff(head: bytes) -> str | None:
    if head.startswith(b"RIFF") and head[8:12] in {b"WEBP", b"WAVE", b"AVI "}:
        return "an image, sound or video"
    return "an image, sound or video" if head[4:8] == b"ftyp" else None


def _refuse(what: str, promised: tuple[Kind, str] | None) -> None:
    if promised:
        raise PoisonError("mislabelled", f"the content is {what}, but its name or type says {promised[1]}")
    raise PoisonError("unsupported", f"the content is {what}; there is no parser for it")


def _reads_as_text(promised: tuple[Kind, str] | None) -> bool:
    return promised is not None and promised[0] in KINDS.text


def _text_kind(head: bytes, promised: tuple[Kind, str] | None) -> tuple[Kind, str]:
    """Content that no magic claims: text, refined by what name and type say where that is a kind of text."""
    plain = head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    says = promised[0] if promised else None
    if says not in {"markdown", "source", "mail", "mbox"} and _HTML.match(plain):
        return "html", "text/html"
    if says in KINDS.binary:
        _not_what_was_said(plain, promised)
    if promised and (says != "text" or promised[1] != "text/plain"):
        return promised
    if _XML.match(plain):
        return "xml", "application/xml"
    if _MBOX.match(plain):
        return "mbox", "application/mbox"
    if _MAIL.match(plain):
        return "mail", "message/rfc822"
    return promised or ("text", "text/plain")


def _not_what_was_said(head: bytes, promised: tuple[Kind, str] | None) -> None:
    media_type = promised[1] if promised else ""
    raise PoisonError("corrupt", f"the content does not begin as {media_type} does; it begins with {head[:16]!r}")
