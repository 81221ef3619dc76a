"""A few words in, rows for tests out: unit vectors, documents, access columns."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ragstore.models import AccessColumns, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")

DIMENSIONS = 8


def vector(*values: float, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """The values, filled up with zeros and L2-normalised; shape (dimensions,)."""
    filled = np.zeros(dimensions, np.float32)
    filled[: len(values)] = values
    unit: NDArray[np.float32] = (filled / np.linalg.norm(filled)).astype(np.float32)
    return unit


def vector_of(text: str, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """A unit vector derived from the text, different for different texts."""
    seed = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    drawn = np.random.default_rng(seed).normal(size=dimensions)
    unit: NDArray[np.float32] = (drawn / np.linalg.norm(drawn)).astype(np.float32)
    return unit


def access(
    path: str = "a.md", *, allowed: tuple[str, ...] = (), labels: tuple[str, ...] = (), label_keys: tuple[str, ...] = ()
) -> AccessColumns:
    """Access columns in account `acc`, container `docs`."""
    return AccessColumns(
        account="acc", container="docs", path=path, media_type="text/markdown", allowed=allowed, labels=labels, label_keys=label_keys
    )


def row(
    document: str,
    number: int = 0,
    *,
    text: str | None = None,
    generation: int = 1,
    vector: NDArray[np.float32] | None = None,
    columns: AccessColumns | None = None,
) -> Row:
    """Chunk `number` of a document; text, vector and columns are derived from the names where they are not given."""
    words = f"chunk {number} of {document}" if text is None else text
    return Row(
        chunk_id=chunk(document, number),
        document_id=document_id(document),
        generation=generation,
        text=words,
        vector=vector_of(words) if vector is None else vector,
        access=access(f"{document}.md") if columns is None else columns,
    )


def document_id(document: str) -> str:
    """32 hex digits, as real document ids are."""
    return hashlib.blake2b(document.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def chunk(document: str, number: int = 0) -> str:
    """The chunk id of `row(document, number)`."""
    return document_id(f"{document}\0{number}")


async def listed(items: AsyncIterator[T]) -> list[T]:
    """All items of an asynchronous iterator."""
    return [item async for item in items]


def chunks(document: str, numbers: Sequence[int]) -> frozenset[str]:
    """The chunk ids of several rows of one document."""
    return frozenset(chunk(document, number) for number in numbers)
