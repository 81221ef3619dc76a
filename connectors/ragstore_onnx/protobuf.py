"""Field numbers and values in, protobuf wire bytes out: the few encodings that an ONNX model needs, so that `onnx` need not be installed.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct

_VARINT, _LENGTH_DELIMITED, _FIXED32 = 0, 2, 5


def integer(field: int, value: int) -> bytes:
    """A field of type int32, int64 or enum; `value` is not negative, except as two's complement in 64 bits."""
    return _varint(field << 3 | _VARINT) + _varint(value & (1 << 64) - 1)


def float32(field: int, value: float) -> bytes:
    """A field of type float."""
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return message(field, value.encode())


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds another message, whose encoded fields are `parts`."""
    body = b"".join(parts)
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Seven bits per byte, least significant first; all but the last byte have the high bit set."""
    encoded = bytearray()
    while value >> 7:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
