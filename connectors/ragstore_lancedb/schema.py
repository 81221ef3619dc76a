"""Rows in, Arrow tables out, and back: the columns of a LanceDB collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ragstore.models import AccessColumns, Row, RowKey
from ragstore.terms import row_text
from ragstore_lancedb.strings import original, storable

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALARS: Final = ("account", "container", "path", "media_type")
LISTS: Final = ("allowed", "labels", "label_keys")
KEY_COLUMNS: Final = ("chunk_id", "document_id", "generation", *SCALARS, *LISTS)
ROW_COLUMNS: Final = (*KEY_COLUMNS, "text", "vector")


def schema(dimensions: int) -> pa.Schema:
    """The columns; nothing is ever null, because SQL's third truth value would make negation inexact."""
    strings = pa.list_(pa.field("item", pa.string(), nullable=False))
    return pa.schema(
        [
            pa.field("chunk_id", pa.string(), nullable=False),
            pa.field("document_id", pa.string(), nullable=False),
            pa.field("generation", pa.int64(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            # What full text searches: the words of `text` after our own analysis, because Lance's tokenizers know no CJK.
            pa.field("terms", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dimensions), nullable=False),
            *(pa.field(column, pa.string(), nullable=False) for column in SCALARS),
            *(pa.field(column, strings, nullable=False) for column in LISTS),
        ]
    )


def to_arrow(rows: Sequence[Row], dimensions: int) -> pa.Table:
    """The rows as one table. Vectors must have been checked to have these dimensions."""
    columns = schema(dimensions)
    vectors = np.concatenate([row.vector for row in rows], dtype=np.float32) if rows else np.empty(0, np.float32)
    values: dict[str, object] = {
        "chunk_id": [storable(row.chunk_id) for row in rows],
        "document_id": [storable(row.document_id) for row in rows],
        "generation": [row.generation for row in rows],
        "text": [storable(row.text) for row in rows],
        "terms": [row_text(row.text) for row in rows],
    }
    # The rows of one document share one object, which is worth converting once.
    distinct = {id(row.access): row.access for row in rows}
    converted = {identity: _stored_access(access) for identity, access in distinct.items()}
    access = [converted[id(row.access)] for row in rows]
    arrays = [
        pa.FixedSizeListArray.from_arrays(pa.array(vectors), dimensions)
        if field.name == "vector"
        else pa.array(values[field.name] if field.name in values else [row[field.name] for row in access], type=field.type)
        for field in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def with_access(table: pa.Table, access: dict[str, AccessColumns]) -> pa.Table:
    """Stored rows, all their columns, with the access columns that `access` names by document id."""
    stored = {document_id: _stored_access(columns) for document_id, columns in access.items()}
    documents = [stored[original(document_id)] for document_id in table.column("document_id").to_pylist()]
    for column in (*SCALARS, *LISTS):
        field = table.schema.field(column)
        values = pa.array([document[column] for document in documents], type=field.type)
        table = table.set_column(table.schema.get_field_index(column), field, values)
    return table


def to_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Rows from a batch with `ROW_COLUMNS`."""
    texts = batch.column("text").to_pylist()
    for position, (key, vector) in enumerate(zip(to_keys(batch), vectors_of(batch), strict=True)):
        yield Row(
            chunk_id=key.chunk_id,
            document_id=key.document_id,
            generation=key.generation,
            text=original(texts[position]),
            vector=vector,
            access=key.access,
        )


def to_keys(batch: pa.RecordBatch) -> Iterator[RowKey]:
    """Row keys from a batch with `KEY_COLUMNS`."""
    columns = [batch.column(name).to_pylist() for name in KEY_COLUMNS]
    for chunk_id, document_id, generation, account, container, path, media_type, allowed, labels, label_keys in zip(*columns, strict=True):
        yield RowKey(
            chunk_id=original(chunk_id),
            document_id=original(document_id),
            generation=generation,
            access=AccessColumns(
                account=original(account),
                container=original(container),
                path=original(path),
                media_type=original(media_type),
                allowed=tuple(map(original, allowed)),
                labels=tuple(map(original, labels)),
                label_keys=tuple(map(original, label_keys)),
            ),
        )


def vectors_of(batch: pa.RecordBatch) -> NDArray[np.float32]:
    """The vectors of a batch, shape (rows, dimensions)."""
    column = batch.column("vector")
    flat: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), -1)


def _stored_access(access: AccessColumns) -> dict[str, object]:
    scalars: dict[str, object] = {column: storable(getattr(access, column)) for column in SCALARS}
    return scalars | {column: [storable(value) for value in getattr(access, column)] for column in LISTS}
