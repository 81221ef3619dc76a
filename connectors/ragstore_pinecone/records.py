"""Rows in, records of Pinecone out, and back: what metadata holds, and what is kept beside it because metadata holds 40 KB.

A record's id is `DOCUMENT_ID#CHUNK_ID`, so that a document is listed and deleted by a prefix. A text that is long, or that the access
columns leave no room for, is split over records `DOCUMENT_ID#CHUNK_ID#NUMBER` of a second namespace, which no search looks into.
Access columns are never left out: a row whose own do not fit is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragstore.errors import PoisonError
from ragstore.models import AccessColumns, Row, RowKey
from ragstore_pinecone.directories import directories
from ragstore_pinecone.strings import NOTHING, original, storable

if TYPE_CHECKING:
    from pinecone import Vector

LARGEST: Final = 40_960
"""Bytes of metadata in a record: https://docs.pinecone.io/reference/api/database-limits."""
LONGEST_TEXT: Final = 20_480
"""Bytes. A longer text is kept beside, so that a retag whose columns leave that much room need not read the text first."""
_OWN: Final = 128
"""Bytes that a record's metadata takes besides its access columns and its text, at most."""
_PART: Final = 6_000
"""Characters. As JSON one takes at most six bytes."""
_SCALARS: Final = ("account", "container", "path", "media_type")
_LISTS: Final = ("allowed", "labels", "label_keys")
_ID: Final = re.compile(r"[0-9a-zA-Z_-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to be put: a row, or a part of a text."""

    id: str
    values: Sequence[float]
    metadata: Mapping[str, Any]
    bytes: int
    """An upper bound of what it takes in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The access columns of a document as metadata."""

    metadata: Mapping[str, Any]
    bytes: int

    @classmethod
    def of(cls, access: AccessColumns) -> Columns:
        """Raises `PoisonError` where a record cannot hold them."""
        metadata: dict[str, Any] = {column: storable(getattr(access, column)) for column in _SCALARS}
        metadata |= {column: _stored(getattr(access, column)) for column in _LISTS}
        metadata["prefixes"] = _stored(directories(access.path))
        size = _size(metadata)
        if size + _OWN > LARGEST:
            raise PoisonError(
                "too_large",
                f"the access columns of {access.container}/{access.path[:200]} take {size:,} bytes, and a record of Pinecone holds "
                f"{LARGEST:,} of metadata; shorten its list of readers or its labels, or use another store",
            )
        return cls(metadata=metadata, bytes=size)

    def parts(self, text: str) -> list[str]:
        """The text in parts to be kept beside; none where it fits into the metadata. `text` is storable."""
        size = len(json.dumps(text, ensure_ascii=False).encode())
        if size <= LONGEST_TEXT and self.bytes + size + _OWN <= LARGEST:
            return []
        return [text[start : start + _PART] for start in range(0, len(text), _PART)]

    @property
    def leave_room(self) -> bool:
        """Whether any text that stands in metadata fits beside these columns."""
        return self.bytes + LONGEST_TEXT + _OWN <= LARGEST


def record_id(document_id: str, chunk_id: str) -> str:
    """Raises `ValueError` for ids that ragstore did not derive: `#` and what is not ASCII have no place in one."""
    if not (named(document_id) and named(chunk_id)):
        raise ValueError(f"{document_id!r} and {chunk_id!r} are no ids of a document and a chunk")
    return f"{document_id}#{chunk_id}"


def named(document_id: str) -> bool:
    """Whether rows can be stored under this id."""
    return _ID.fullmatch(document_id) is not None


def document_of(record: str) -> str:
    """The document's id in a record's."""
    return record.partition("#")[0]


def row_record(row: Row, columns: Columns) -> tuple[Record, list[Record]]:
    """The row's record, and the records of its text where that is kept beside."""
    identity = record_id(row.document_id, row.chunk_id)
    text = storable(row.text)
    parts = columns.parts(text)
    metadata = {**columns.metadata, "generation": row.generation, **text_metadata(text, parts)}
    values = np.asarray(row.vector, np.float32).tolist()
    return _record(identity, values, metadata), text_records(identity, parts, len(values))


def text_metadata(text: str, parts: Sequence[str]) -> dict[str, Any]:
    """What a row's own record says of its text: all of it, or in how many parts it is kept beside, and which text that is."""
    return {"text": "" if parts else text, "parts": len(parts), "stamp": _stamp(parts)}


def text_records(identity: str, parts: Sequence[str], dimensions: int) -> list[Record]:
    """The records that hold a text. Each has a vector, as it must: the same for all, and it means nothing."""
    vector = [1.0] + [0.0] * (dimensions - 1)
    stamp = _stamp(parts)
    return [_record(part_id(identity, number), vector, {"text": part, "stamp": stamp}) for number, part in enumerate(parts)]


def part_id(identity: str, number: int) -> str:
    """The id of a part of a text."""
    return f"{identity}#{number}"


def part_ids(identity: str, first: int, end: int) -> Iterator[str]:
    """The ids of the parts from `first` to before `end`."""
    return (part_id(identity, number) for number in range(first, end))


def generation_of(record: Vector) -> int:
    """Numbers are floats in Pinecone."""
    return int((record.metadata or {}).get("generation", 0))


def parts_of(metadata: Mapping[str, Any] | None) -> int:
    """How many parts the row's text has in the other namespace; 0 where it stands in the metadata."""
    return int((metadata or {}).get("parts", 0))


def text_of(identity: str, metadata: Mapping[str, Any] | None, beside: Mapping[str, Vector]) -> str | None:
    """The row's text, with the parts that were found `beside`; None where one of them is missing, or is of another text."""
    count = parts_of(metadata)
    if not count:
        return original(str((metadata or {}).get("text", "")))
    found = [beside.get(part) for part in part_ids(identity, 0, count)]
    parts = [str((part.metadata or {}).get("text", "")) for part in found if part is not None]
    return original("".join(parts)) if _stamp(parts) == (metadata or {}).get("stamp") else None


def key_of(record: Vector) -> RowKey:
    """What `verify` wants to know of a record."""
    document_id, _, chunk_id = record.id.partition("#")
    metadata = record.metadata or {}
    access = AccessColumns(
        account=_text(metadata, "account"),
        container=_text(metadata, "container"),
        path=_text(metadata, "path"),
        media_type=_text(metadata, "media_type"),
        allowed=_texts(metadata, "allowed"),
        labels=_texts(metadata, "labels"),
        label_keys=_texts(metadata, "label_keys"),
    )
    return RowKey(chunk_id=chunk_id, document_id=document_id, generation=generation_of(record), access=access)


def _stamp(parts: Sequence[str]) -> str:
    """Tells one text from another, of which parts may be left or not be there yet; empty for a text that is not kept beside."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest() if parts else ""


def _text(metadata: Mapping[str, Any], column: str) -> str:
    return original(str(metadata.get(column, "")))


def _texts(metadata: Mapping[str, Any], column: str) -> tuple[str, ...]:
    return tuple(original(value) for value in metadata.get(column, ()) if value != NOTHING)


def _stored(values: Sequence[str]) -> list[str]:
    return [storable(value) for value in values] or [NOTHING]


def _record(identity: str, values: Sequence[float], metadata: Mapping[str, Any]) -> Record:
    # A float takes at most 24 characters and a comma; the names of the fields take less than 64.
    return Record(id=identity, values=values, metadata=metadata, bytes=_size(metadata) + 25 * len(values) + len(identity) + 64)


def _size(metadata: Mapping[str, Any]) -> int:
    return len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
