"""The bytes of an Avro object container file, as far as they are there, in; the rows of its whole blocks, with their positions, out.

The format: https://avro.apache.org/docs/current/specification/#object-container-files.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

from ragstore.errors import ConfigError
from ragstore_azure.changefeed.decoder import DamagedError, Decode, Row, compile_decoder, read_long

BLOCK_BYTES: Final = 128 * 2**20
"""The largest block that is believed, as stored and inflated; one append to a blob can be of 100 MiB."""
HEADER_BYTES: Final = 2**20
_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The begin of a file."""

    decode: Decode = field(repr=False)
    deflated: bool
    sync: bytes
    """Stands after each block. The service uses the same in all files: it tells nothing of which file this is."""
    size: int


def parse_header(data: bytes) -> Header | None:
    """The header of the file that begins with these bytes; None where it is not all there.

    Raises `DamagedError` for what is no Avro file, and `ConfigError` for a codec that this version cannot read.
    """
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
        raise DamagedError("it does not begin as an Avro file does")
    try:
        metadata, at = _metadata(data, len(_MAGIC))
    except IndexError:
        if len(data) >= HEADER_BYTES:
            raise DamagedError(f"its header has more than {HEADER_BYTES} bytes") from None
        return None
    if len(data) < at + _SYNC:
        return None
    codec = metadata.get(b"avro.codec", b"null")
    if codec not in {b"null", b"deflate"}:
        name = codec.decode("utf-8", "replace")
        raise ConfigError(f"the change feed is compressed with {name!r}, which this version cannot read: update ragstore, or list instead")
    return Header(
        decode=compile_decoder(metadata.get(b"avro.schema", b"")),
        deflated=codec == b"deflate",
        sync=data[at : at + _SYNC],
        size=at + _SYNC,
    )


def _metadata(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    found: dict[bytes, bytes] = {}
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return found, at
        if count < 0:
            _size, at = read_long(data, at)
        for _entry in range(min(abs(count), HEADER_BYTES)):
            key, at = _bytes(data, at)
            found[key], at = _bytes(data, at)


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    if not 0 <= length <= HEADER_BYTES:
        raise DamagedError(f"a field of {length} bytes in its header")
    if at + length > len(data):
        raise IndexError
    return data[at : at + length], at + length


class ChunkReader:
    """Reads one file from a position on, while its bytes come in pieces.

    `offset` is the begin of the next block that is not read to its end, or 0 before the header; `index` is the number of its records that
    are read. Together they are a position that stays right for ever, because files are only appended to. Blocks that end at or before the
    byte `passed` are passed over unread.
    """

    def __init__(self, *, offset: int, index: int, passed: int = 0, header: Header | None = None) -> None:
        self.offset = max(offset, header.size) if header is not None else offset
        self.index = index
        self.header = header
        self._passed = passed
        self._data = b""
        self._base = 0
        self._block = b""
        self._at = 0
        self._end = 0
        self._left = 0
        self._after = 0

    def add(self, begin: int, data: bytes) -> None:
        """The next piece of the file, which begins at that byte. All rows of the piece before have been taken."""
        if not self._data or begin != self._base + len(self._data):
            self._base, self._data = begin, data
        else:
            # The header is needed as well, wherever the reader goes on.
            kept = self._data[max(0, self.offset - self._base) :] if self.header is not None else self._data
            self._base, self._data = begin - len(kept), kept + data

    def rows(self, limit: int) -> list[Row]:
        """Up to so many rows; none where the next block is not all there. Raises `DamagedError`, and as `parse_header` does."""
        if self.header is None and not self._open():
            return []
        try:
            while not self._left:
                if not self._next_block():
                    return []
            return self._decode(limit)
        except IndexError:
            raise DamagedError("a record goes on beyond its block") from None

    def _open(self) -> bool:
        if self._base or not self._data:
            return False
        self.header = parse_header(self._data)
        if self.header is None:
            return False
        self.offset = max(self.offset, self.header.size)
        return True

    def _next_block(self) -> bool:
        """Make the next block that holds records to be read the current one; False where it is not all there."""
        assert self.header is not None  # noqa: S101 - opened before
        data, begin = self._data, self.offset - self._base
        if not 0 <= begin < len(data):
            return False
        try:
            count, at = read_long(data, begin)
            size, at = read_long(data, at)
        except IndexError:
            return False
        if count < 0 or not 0 <= size <= BLOCK_BYTES:
            raise DamagedError(f"a block of {count} records in {size} bytes, where {BLOCK_BYTES} is the limit")
        end = at + size
        if end + _SYNC > len(data):
            return False
        if data[end : end + _SYNC] != self.header.sync:
            raise DamagedError("a block does not end with the mark of its file")
        self._after = self._base + end + _SYNC
        if self._after <= self._passed or not count:
            self._leave()
            return True
        if self.header.deflated:
            self._block, self._at = _inflate(data[at:end]), 0
            self._end = len(self._block)
        else:
            self._block, self._at, self._end = data, at, end
        if count > self._end - self._at:
            raise DamagedError(f"a block of {count} records in {self._end - self._at} bytes")
        self._left = count
        if self.index:
            done, self.index = self.index, 0
            if done > count:
                raise DamagedError(f"a block of {count} records, of which {done} were read before")
            self._decode(done)
        return True

    def _decode(self, limit: int) -> list[Row]:
        assert self.header is not None  # noqa: S101 - opened before
        count = min(limit, self._left)
        rows, self._at = self.header.decode(self._block, self._at, count)
        self._left -= count
        if self._at > self._end or (not self._left and self._at != self._end):
            raise DamagedError("the records of a block are longer or shorter than the block")
        self.index += count
        if not self._left:
            self._leave()
        return rows

    def _leave(self) -> None:
        self.offset, self.index = self._after, 0
        self._block = b""


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        block = inflater.decompress(data, BLOCK_BYTES)
    except zlib.error as error:
        raise DamagedError(f"a block cannot be inflated ({error})") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise DamagedError(f"a block inflates to more than {BLOCK_BYTES} bytes, or has no end")
    return block
