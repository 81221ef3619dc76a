"""Rows in, what `COPY` sends out, and rows again from what a query gives."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragstore.models import AccessColumns, Row, RowKey
from ragstore.terms import row_terms
from ragstore_pgvector.names import Precision
from ragstore_pgvector.strings import LONGEST_KEY, is_shortened, key, original, storable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALARS: Final = ("account", "container", "path", "media_type")
LISTS: Final = ("allowed", "labels", "label_keys")
ACCESS: Final = (*SCALARS, *LISTS, "long_values")
"""`long_values` are those elements of the three lists that are in them as digests."""
GIVEN: Final = ("chunk_id", "document_id", "digest", "generation", "text", "terms", "words", "vector", *ACCESS)
"""What is copied for each row; of rows that share their document and access columns only the first has these."""
KEY_SELECT: Final = ", ".join(("chunk_id", "document_id", "generation", *ACCESS))
ROW_SELECT: Final = f"{KEY_SELECT}, text, {{sent}}(vector)"

_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TAIL: Final = struct.pack(">h", -1)
_LENGTH: Final = struct.Struct(">i")
_NUMBER: Final = struct.Struct(">iq")
_SMALL: Final = struct.Struct(">ii")
_TEXT_OID: Final = 25
_NO_ACCESS: Final = struct.pack(">i", -1) * len(ACCESS)
_BLOCK: Final = 1024 * 1024
_MOST_COUNTED: Final = 200
"""A word is counted up to here; a `tsvector` has at most 255 positions for one, and BM25 hardly rises any more."""
_MOST_BYTES: Final = 700_000
"""A `tsvector` is at most 1 MB; what a longer text says after that is not found by its words."""
_SHORT_TEXT: Final = 40_000
"""Characters; what they come to is well below that."""
_UNQUOTED: Final = re.compile(r"['\\]")
_ODD: Final = re.compile("['\\\\\0\x1a\ud800-\udfff]")


def copied(rows: Iterable[Row], precision: Precision) -> Iterator[bytes]:
    """Rows for `COPY ... FROM STDIN (FORMAT BINARY)` of the columns `GIVEN`, in blocks of a megabyte."""
    access: dict[int, tuple[AccessColumns, bytes, bytes]] = {}
    seen: set[tuple[str, bytes]] = set()
    buffer = bytearray(_HEAD)
    fields = struct.pack(">h", len(GIVEN))
    for row in rows:
        terms, words = text_vector(row.text)
        # The rows of one document share one object, which is worth converting once; it is kept, so that its identity is not used again.
        if id(row.access) not in access:
            columns = b"".join(map(_field, access_values(row.access)))
            access[id(row.access)] = (row.access, columns, _digest(columns))
        _, columns, digest = access[id(row.access)]
        buffer += fields
        buffer += _field(storable(row.chunk_id)) + _field(storable(row.document_id)) + _sized(digest) + _NUMBER.pack(8, row.generation)
        buffer += _field(storable(row.text)) + _field(terms) + _SMALL.pack(4, words) + _sized(vector_bytes(row.vector, precision))
        buffer += _NO_ACCESS if (row.document_id, digest) in seen else columns
        seen.add((row.document_id, digest))
        if len(buffer) >= _BLOCK:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer) + _TAIL


def access_values(access: AccessColumns) -> list[str | list[str]]:
    """The values of `ACCESS`."""
    lists = [[key(value) for value in getattr(access, column)] for column in LISTS]
    given = [value for column in LISTS for value in getattr(access, column)]
    longer = sorted({storable(value) for value in given if is_shortened(key(value))})
    return [*(storable(getattr(access, column)) for column in SCALARS), *lists, longer]


def access_digest(values: Sequence[str | list[str]]) -> bytes:
    """What tells one record of a document's access columns from another: equal exactly where the values of `ACCESS` are."""
    return _digest(b"".join(map(_field, values)))


def text_vector(text: str) -> tuple[str, int]:
    """A `tsvector` as it is written, and the number of terms. Not `to_tsvector`, which would analyse our terms once more."""
    counts = Counter(row_terms(text))
    if len(text) <= _SHORT_TEXT and len(max(counts, key=len, default="")) * 4 <= LONGEST_KEY and _ODD.search("".join(counts)) is None:
        # As nearly all are, so that each word need not be looked at.
        written = [f"'{term}':1" if count == 1 else f"'{term}':{_positions(count)}" for term, count in counts.items()]
        return " ".join(written), counts.total()
    written, size = [], 0
    for term, count in counts.items():
        size += len(term) * 4 + 2 * min(count, _MOST_COUNTED) + 8
        if size > _MOST_BYTES:
            break
        written.append(f"{lexeme(key(term))}:{_positions(count)}")
    return " ".join(written), counts.total()


def lexeme(word: str) -> str:
    """The `key` of a term as a quoted word of a `tsvector` or `tsquery`."""
    return "'" + _UNQUOTED.sub(r"\g<0>\g<0>", word) + "'"


def to_keys(found: Iterable[Sequence[Any]]) -> Iterator[RowKey]:
    """Row keys from what `KEY_SELECT` gives."""
    for chunk_id, document_id, generation, *access in found:
        columns = _original_access(access[: len(ACCESS)])
        yield RowKey(chunk_id=original(chunk_id), document_id=original(document_id), generation=generation, access=columns)


def to_rows(found: Iterable[Sequence[Any]], precision: Precision) -> Iterator[Row]:
    """Rows from what `ROW_SELECT` gives."""
    for values in found:
        (named,) = to_keys([values])
        yield Row(
            chunk_id=named.chunk_id,
            document_id=named.document_id,
            generation=named.generation,
            text=original(values[-2]),
            vector=np.frombuffer(values[-1], ">f4" if precision == "f32" else ">f2", offset=4).astype(np.float32),
            access=named.access,
        )


class VectorParameter(bytes):
    """A vector as a parameter, made by `vector_bytes`. As a literal it would be written and read for longer than some searches take."""


def vector_bytes(vector: NDArray[np.float32], precision: Precision) -> bytes:
    """As `vector_recv` and `halfvec_recv` read them: the number of dimensions, two unused bytes, the values."""
    return struct.pack(">hh", len(vector), 0) + vector.astype(">f4" if precision == "f32" else ">f2").tobytes()


def _original_access(values: Sequence[Any]) -> AccessColumns:
    account, container, path, media_type, *lists, longer = values
    texts = {key(text): text for text in map(original, longer)}
    allowed, labels, label_keys = (tuple(texts.get(value) or original(value) for value in column) for column in lists)
    return AccessColumns(
        account=original(account),
        container=original(container),
        path=original(path),
        media_type=original(media_type),
        allowed=allowed,
        labels=labels,
        label_keys=label_keys,
    )


def _digest(columns: bytes) -> bytes:
    return hashlib.blake2b(columns, digest_size=16).digest()


def _positions(count: int) -> str:
    return _POSITIONS[min(count, _MOST_COUNTED)]


_POSITIONS: Final = [",".join(map(str, range(1, count + 1))) for count in range(_MOST_COUNTED + 1)]


def _field(value: str | list[str]) -> bytes:
    if isinstance(value, str):
        return _sized(value.encode())
    head = struct.pack(">iiI", min(len(value), 1), 0, _TEXT_OID)
    elements = b"".join(_sized(element.encode()) for element in value)
    return _sized(head + struct.pack(">ii", len(value), 1) + elements if value else head)


def _sized(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value
