"""An Outlook message (MSG) in, its text out: subject, who and when, then the body; attachments are named.

Property numbers and the layout of the streams are those of [MS-OXMSG] and [MS-OXPROPS]; the compression is that of [MS-OXRTFCP].
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.decode import choose
from ragstore.parsing.detect import Detected
from ragstore.parsing.html import add_page
from ragstore.parsing.mail import add_envelope, decoded
from ragstore.parsing.rtf import rtf_text

if TYPE_CHECKING:
    import olefile

_SUBJECT, _BODY, _RTF, _HTML, _SENDER, _SENDER_MAIL, _TO, _CC = 0x0037, 0x1000, 0x1009, 0x1013, 0x0C1A, 0x5D01, 0x0E04, 0x0E03
_FILE_NAME, _SHORT_NAME = 0x3707, 0x3704
_SUBMITTED, _DELIVERED, _CODE_PAGE, _MESSAGE_CODE_PAGE = 0x0039, 0x0E06, 0x3FDE, 0x3FFD
_UTF8_PAGE, _UTF16_PAGE = 65001, 1200
_HEADER = 32
_ENTRY = struct.Struct("<HHIQ")
_FILETIME_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_STREAM_LARGEST = 64 * 2**20
_COMPRESSED = 0x75465A4C
_WINDOW = 4096
_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor MS Sans SerifSymbolArial"
    b"Times New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)


def parse_outlook(file: Path, found: Detected, *, limit: int) -> Document:
    """One message; of its bodies the plain one, else HTML, else RTF. Raises `PoisonError`."""
    import olefile

    with olefile.OleFileIO(file) as container:
        message = _Properties(container)
        builder = TextBuilder(limit)
        subject = message.line(_SUBJECT)
        sender, address = message.line(_SENDER), message.line(_SENDER_MAIL)
        sent = " ".join(part for part in (sender, f"<{address}>" if address and address != sender else "") if part)
        add_envelope(builder, subject, [("From", sent), ("To", message.line(_TO)), ("Cc", message.line(_CC)), ("Date", message.date())])
        _add_body(builder, message)
        for name in _attachments(container, message.charset):
            builder.add(f"Attachment: {name}\n")
        return Document(media_type=found.media_type, title=subject or None, blocks=builder.blocks())


def _add_body(builder: TextBuilder, message: _Properties) -> None:
    if body := message.text(_BODY):
        builder.add(body.rstrip() + "\n\n")
    elif html := message.binary(_HTML):
        add_page(builder, decoded(html, message.charset))
        builder.add("\n\n")
    elif rtf := message.binary(_RTF):
        builder.add(rtf_text(decompress(rtf)) + "\n\n")


class _Properties:
    """The properties of the message at the root of an OLE container."""

    def __init__(self, container: olefile.OleFileIO) -> None:
        self._container = container
        fixed = _stream(container, "__properties_version1.0")[_HEADER:]
        entries = [_ENTRY.unpack_from(fixed, at) for at in range(0, len(fixed) - _ENTRY.size + 1, _ENTRY.size)]
        self._fixed = {number: value for _kind, number, _flags, value in entries}
        page = self._fixed.get(_MESSAGE_CODE_PAGE) or self._fixed.get(_CODE_PAGE) or 0
        sample = b" ".join(_stream(container, f"__substg1.0_{number:04X}001E") for number in (_BODY, _SUBJECT, _SENDER, _TO))
        self.charset = _read_as(sample, _charset(page & 0xFFFFFFFF))

    def text(self, number: int) -> str:
        """A property of text, normalised; "" where there is none."""
        return _text(self._container, "", number, self.charset)

    def line(self, number: int) -> str:
        """As `text`, on one line."""
        return " ".join(self.text(number).split())

    def binary(self, number: int) -> bytes:
        """A property of bytes; none where there is none."""
        return _stream(self._container, f"__substg1.0_{number:04X}0102")

    def date(self) -> str:
        """When it was sent, or delivered; "" where neither is known."""
        ticks = self._fixed.get(_SUBMITTED) or self._fixed.get(_DELIVERED) or 0
        try:
            return (_FILETIME_EPOCH + timedelta(microseconds=ticks // 10)).isoformat(" ", "seconds") if ticks else ""
        except OverflowError:
            return ""


def _charset(page: int) -> str | None:
    if page in {0, _UTF16_PAGE}:
        return None
    return "utf-8" if page == _UTF8_PAGE else f"cp{page}"


def _read_as(sample: bytes, charset: str | None) -> str | None:
    """One codec for all text of the message: the code page is often that of another, and a name alone is too short to tell."""
    try:
        return choose(BytesIO(sample.replace(b"\0", b"")), charset).encoding
    except PoisonError:
        return charset


def _attachments(container: olefile.OleFileIO, charset: str | None) -> list[str]:
    folders = dict.fromkeys(entry[0] for entry in container.listdir() if entry[0].startswith("__attach_version1.0_"))
    names = (_text(container, f"{folder}/", number, charset) for folder in folders for number in (_FILE_NAME, _SHORT_NAME))
    return list(dict.fromkeys(" ".join(name.split())[:300] for name in names if name.strip()))


def _text(container: olefile.OleFileIO, folder: str, number: int, charset: str | None) -> str:
    if wide := _stream(container, f"{folder}__substg1.0_{number:04X}001F"):
        return decoded(b"\xff\xfe" + wide, None)
    return decoded(_stream(container, f"{folder}__substg1.0_{number:04X}001E").rstrip(b"\0"), charset)


def _stream(container: olefile.OleFileIO, name: str) -> bytes:
    if not container.exists(name) or container.get_size(name) > _STREAM_LARGEST:
        return b""
    with container.openstream(name) as stream:
        return bytes(stream.read(_STREAM_LARGEST))


def decompress(data: bytes) -> bytes:
    """RTF out of the compressed form in which Outlook keeps it ([MS-OXRTFCP] 2.2). Raises `struct.error` for less than a header."""
    _size, raw, kind, _checksum = struct.unpack_from("<IIII", data)
    if kind != _COMPRESSED:
        return data[16:][:raw]
    window = bytearray(_DICTIONARY.ljust(_WINDOW, b"\0"))
    write = len(_DICTIONARY)
    out = bytearray()
    place = 16
    while place < len(data) and len(out) < raw:
        control = data[place]
        place += 1
        for bit in range(8):
            if not control >> bit & 1:
                token = data[place : place + 1]
                place += 1
                write = _put(out, window, write, token)
                continue
            start, length = int.from_bytes(data[place : place + 2], "big") >> 4, (data[place + 1 : place + 2] or b"\0")[0] % 16 + 2
            place += 2
            if start == write:
                return bytes(out)
            for step in range(length):
                index = (start + step) % _WINDOW
                write = _put(out, window, write, window[index : index + 1])
    return bytes(out)


def _put(out: bytearray, window: bytearray, write: int, token: bytes | bytearray) -> int:
    """Append a byte (or nothing at the end of the data) to the output and to the window; where the window is written next."""
    if not token:
        return write
    out += token
    window[write] = token[0]
    return (write + 1) % _WINDOW
