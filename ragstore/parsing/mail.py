"""Mail messages (EML and MBOX) in, their text out: subject, who and when, then the body; attachments are named."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from io import BytesIO
from pathlib import Path

from ragstore.errors import PoisonError
from ragstore.models import Document
from ragstore.parsing.blocks import TextBuilder
from ragstore.parsing.decode import choose, pieces
from ragstore.parsing.detect import Detected
from ragstore.parsing.html import add_page
from ragstore.parsing.normalize import normalize

_HEADERS = ("From", "To", "Cc", "Date")
_HEADER_LARGEST = 2000
_PARTS_LARGEST = 1000
_SEPARATOR = re.compile(rb"^From \S+ .*\d{4}.*\r?\n", re.MULTILINE)


def parse_mail(file: Path, found: Detected, *, limit: int) -> Document:
    """One message. Raises `PoisonError`: `too_deep` for parts nested beyond what can be read, `too_large`."""
    builder = TextBuilder(limit)
    subject = _add_message(builder, message_from_bytes(_read(file, limit)))
    return Document(media_type=found.media_type, title=subject, blocks=builder.blocks())


def parse_mbox(file: Path, found: Detected, *, limit: int) -> Document:
    """Every message of a mailbox, each under a heading with its subject."""
    data = _read(file, limit)
    builder = TextBuilder(limit)
    starts = [(match.start(), match.end()) for match in _SEPARATOR.finditer(data)]
    ends = [start for start, _ in starts[1:]] + [len(data)]
    for (_, start), end in zip(starts, ends, strict=True):
        try:
            _add_message(builder, message_from_bytes(data[start:end]))
        except RecursionError:
            builder.warn(f"the message at byte {start} is nested too deeply and was left out")
        builder.add("\n\n")
    return Document(media_type=found.media_type, blocks=builder.blocks())


def _read(file: Path, limit: int) -> bytes:
    size = file.stat().st_size
    if size > 2 * limit:  # attachments are encoded in base64 and are not read
        raise PoisonError("too_large", f"{size} bytes of mail; the limit is {2 * limit}")
    return file.read_bytes()


def _add_message(builder: TextBuilder, message: Message) -> str | None:
    """Append a message; its subject."""
    subject = header_text(message, "Subject")
    add_envelope(builder, subject, [(name, header_text(message, name)) for name in _HEADERS])
    for number, part in enumerate(_bodies(message)):
        if number >= _PARTS_LARGEST:
            builder.warn(f"more than {_PARTS_LARGEST} parts; the rest was left out")
            break
        _add_part(builder, part)
    return subject or None


def add_envelope(builder: TextBuilder, subject: str, fields: list[tuple[str, str]]) -> None:
    """Subject, as a heading, and the fields that have a value, a line each."""
    if subject:
        builder.heading(1, subject)
        builder.add(f"Subject: {subject}\n")
    for name, value in fields:
        if value:
            builder.add(f"{name}: {value}\n")
    if builder.length:
        builder.add("\n")


def header_text(message: Message, name: str) -> str:
    """A header with its encoded words decoded, on one line; a charset that nobody knows is guessed."""
    value = message.get(name)
    if value is None:
        return ""
    raw = str(value)[: 4 * _HEADER_LARGEST]
    try:
        words = [_word(word, charset) for word, charset in decode_header(raw)]
    except (ValueError, LookupError, binascii.Error, MessageError):  # a broken encoded word stands as it is written
        words = [raw]
    return " ".join(normalize("".join(words)).split())[:_HEADER_LARGEST]


def _word(word: bytes | str, charset: str | None) -> str:
    if isinstance(word, str):
        return word.encode("ascii", "surrogateescape").decode("utf-8", "replace") if not word.isascii() else word
    return decoded(word, charset)


def decoded(data: bytes, charset: str | None) -> str:
    """Text of these bytes, normalised; "" where they are no text."""
    stream = BytesIO(data)
    try:
        return normalize("".join(pieces(stream, choose(stream, charset))))
    except PoisonError:
        return ""


def _bodies(message: Message) -> Iterator[Message]:
    """The parts to show, in order: of alternatives the plain one, else the last; without recursion, however deep they are nested."""
    stack = [message]
    while stack:
        part = stack.pop()
        children = part.get_payload() if part.is_multipart() else None
        if not isinstance(children, list):
            yield part
            continue
        inner = [child for child in children if isinstance(child, Message)]
        if part.get_content_type() == "multipart/alternative" and inner:
            plain = [child for child in inner if child.get_content_type() == "text/plain" and child.get_payload()]
            inner = plain[:1] or inner[-1:]
        stack.extend(reversed(inner))


def _add_part(builder: TextBuilder, part: Message) -> None:
    kind = part.get_content_type()
    name = part.get_filename()
    if name or not kind.startswith("text/"):
        if name:
            builder.add(f"Attachment: {' '.join(normalize(str(name)).split())[:300]}\n")
        return
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text = decoded(data, part.get_content_charset())
    if kind == "text/html":
        add_page(builder, text)
    else:
        builder.add(text.rstrip())
    builder.add("\n\n")
