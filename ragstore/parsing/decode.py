"""Bytes and a declared charset in, text and the codec that gave it out: BOM, NUL pattern, strict UTF-8, then what reads best."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ragstore.errors import PoisonError
from ragstore.parsing.charsets import canonical, ranked

_PIECE = 2**18
_SAMPLE = 2**16
_TELLING = 2**12
"""Bytes that are weighed to tell one legacy charset from another."""
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x09, 0x0A, 0x0C, 0x0D, 0x1A, 0x1B})
_CESU_PAIR = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_CESU_LENGTH = 6
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_READABLE = 0.8
_DOUBTFUL = 0.3
"""Scores of `ranked`."""
_JIS_ESCAPE = re.compile(rb"\x1b\$[@B]|\x1b\(J")
_GUESSED = "the charset was not declared; {} was guessed and may be wrong"
_REPLACED = "bytes that are not valid {} were replaced by U+FFFD"


def _replace(error: UnicodeError) -> tuple[str, int]:
    """CESU-8 pairs (as Java and Oracle write characters beyond U+FFFF) are read; any other bad byte becomes U+FFFD."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    pair = error.object[error.start : error.start + _CESU_LENGTH]
    if _CESU_PAIR.fullmatch(pair):
        units = pair.decode("utf-8", "surrogatepass")
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le"), error.start + _CESU_LENGTH
    return "\ufffd", max(error.end, error.start + 1)


codecs.register_error("ragstore-replace", _replace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How to read a stream of bytes as text."""

    encoding: str
    skip: int = 0
    """Bytes of BOM."""
    strict: bool = True
    """Whether every byte is valid; else bad ones are replaced."""
    doubtful: bool = False
    """Whether the text reads like no language that is known here."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader should know."""
        if not self.strict:
            return (_REPLACED.format(self.encoding),)
        return (_GUESSED.format(self.encoding),) if self.doubtful else ()


def choose(stream: BinaryIO, declared: str | None = None) -> Decoding:
    """How this seekable stream is best read; a declared charset counts only where it decodes strictly and reads no worse.

    Raises `PoisonError("unsupported", ...)` where the bytes are no text in any encoding.
    """
    stream.seek(0)
    head = stream.read(_SAMPLE)
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return Decoding(encoding=encoding, skip=len(bom), strict=_decodes(stream, encoding, len(bom)))
    wide = _wide(head)
    if wide and _decodes(stream, wide, 0):
        return Decoding(encoding=wide)
    if is_binary(head):
        raise PoisonError("unsupported", "the content is binary data of no kind that can be read")
    if _JIS_ESCAPE.search(head) and _decodes(stream, "iso2022_jp_2", 0):
        return Decoding(encoding="iso2022_jp_2")
    if _decodes(stream, "utf-8", 0):
        return Decoding(encoding="utf-8")
    return _legacy(stream, canonical(declared))


def _legacy(stream: BinaryIO, declared: str | None) -> Decoding:
    """What reads best of all charsets that are not Unicode, or damaged UTF-8 where that explains the bytes better."""
    sample = _telling(stream)
    order = ranked(sample, declared)
    good, bad = _utf8_bytes(sample)
    readable = order[0][1] > _READABLE if order else False
    if good > (4 if readable else 1) * bad:
        return Decoding(encoding="utf-8", strict=False)
    for encoding, score in order:
        if _decodes(stream, encoding, 0):
            return Decoding(encoding=encoding, doubtful=score < _DOUBTFUL)
    return Decoding(encoding=order[0][0] if order else "cp1252", strict=False)


def pieces(stream: BinaryIO, decoding: Decoding) -> Iterator[str]:
    """The text of the stream, piece by piece, not normalised."""
    decoder = codecs.getincrementaldecoder(decoding.encoding)(errors="ragstore-replace")
    stream.seek(decoding.skip)
    while data := stream.read(_PIECE):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def is_binary(head: bytes) -> bool:
    """Whether more than one byte in 25 (and more than two) is a control character that text has no use for."""
    bad = len(head) - len(head.translate(None, _CONTROLS))
    return bad > 2 and bad * 25 > len(head)  # noqa: PLR2004 - the rule of the docstring


def _decodes(stream: BinaryIO, encoding: str, skip: int) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    stream.seek(skip)
    try:
        while data := stream.read(_PIECE):
            decoder.decode(data)
        decoder.decode(b"", final=True)
    except (UnicodeError, ValueError):
        return False
    return True


def _wide(head: bytes) -> str | None:
    """UTF-32 or UTF-16 without a BOM: NUL bytes stand on one side of the units only, and on at least one unit in five."""
    if len(head) < 2 or b"\0" not in head:  # noqa: PLR2004 - one unit
        return None
    lanes = [head[lane::4].count(0) * 4 / len(head) for lane in range(4)]
    most, least = 0.9, 0.2
    if min(lanes[2], lanes[3]) > most and lanes[0] < least:
        return "utf-32-le"
    if min(lanes[0], lanes[1]) > most and lanes[3] < least:
        return "utf-32-be"
    even, odd = (lanes[0] + lanes[2]) / 2, (lanes[1] + lanes[3]) / 2
    if odd > least and even * 20 < odd:
        return "utf-16-le"
    if even > least and odd * 20 < even:
        return "utf-16-be"
    return _wide_by_letters(head, least)


def _wide_by_letters(head: bytes, least: float) -> str | None:
    """UTF-16 whose NUL bytes stand on both sides, as in U+0100: letters below make units in one byte order only, and none is U+0000."""
    first, second = head[0::2], head[1::2]
    units = list(zip(first, second, strict=False))
    if (0, 0) in units:
        return None
    little = sum(high == 0 and chr(low).isprintable() for low, high in units) / len(units)
    big = sum(high == 0 and chr(low).isprintable() for high, low in units) / len(units)
    if little > least and big * 20 < little:
        return "utf-16-le"
    if big > least and little * 20 < big:
        return "utf-16-be"
    return None


def _telling(stream: BinaryIO) -> bytes:
    """The lines that hold bytes beyond ASCII, from wherever they stand in the stream, up to `_TELLING` bytes."""
    found = bytearray()
    stream.seek(0)
    rest = b""
    while len(found) < _TELLING and (data := stream.read(_PIECE)):
        data = rest + data
        end = data.rfind(b"\n") + 1 or len(data)
        data, rest = data[:end], data[end:]
        if not data.isascii():
            found += b"".join(line[:_TELLING] for line in data.splitlines(keepends=True) if not line.isascii())
    if len(found) < _TELLING and not rest.isascii():
        found += rest[:_TELLING]
    return bytes(found[:_TELLING])


def _utf8_bytes(sample: bytes) -> tuple[int, int]:
    """How many bytes beyond ASCII stand in valid UTF-8 sequences (CESU-8 pairs too), and how many do not."""
    paired = _CESU_PAIR.sub("\U0001f600".encode(), sample)
    valid = paired.decode("utf-8", "ignore").encode()
    return len(valid) - len(valid.translate(None, _BEYOND_ASCII)), len(paired) - len(valid)
