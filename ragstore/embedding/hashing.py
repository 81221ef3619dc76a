"""Texts in, hashed bags of words out: deterministic vectors that cost microseconds, for tests, benchmarks and first steps."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from typing_extensions import override

from ragstore.contracts import Embedder
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# ASCII letters are lower-cased and ASCII that is neither letter nor digit becomes a space; bytes of other scripts stay.
_WORD_BYTES: Final = bytes(32 if chr(code).isascii() and not chr(code).isalnum() else code for code in bytes(range(256)).lower())
# Scripts such as Chinese have no spaces: outside ASCII every character counts as a word of its own.
_CHARACTER: Final = re.compile(r"[^\x00-\x7f]")
_BLOCK: Final = 1 << 15  # bytes that are hashed at once: the working arrays stay in the processor's cache
_BASE: Final = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64


class HashEmbedder(Embedder):
    """Vectors in which texts that share words are near, and nothing more: it knows no meaning. Same vectors on every machine.

    `model` seeds the hash and names the embedder: another name is another embedder with other vectors.
    Raises `ConfigError` where `dimensions` is not positive.
    """

    def __init__(self, *, dimensions: int = 64, model: str = "hash") -> None:
        if dimensions < 1:
            raise ConfigError(f"the hash embedder needs at least 1 dimension, not {dimensions}")
        self.dimensions = dimensions
        self.fingerprint = f"{model}:words:{dimensions}"
        self.max_tokens = 8192
        self.price_per_million_tokens: float | None = None
        self.scripts: frozenset[str] | None = None
        self.unrelated_cosine: float | None = None
        self._seed = zlib.crc32(_utf8(model))

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        """As the contract says; documents and queries get the same vectors, and no text is too long."""
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        row = 0
        for block in _blocks(texts):
            vectors[row : row + len(block)] = self._vectors(block)
            row += len(block)
        return vectors

    def _vectors(self, block: list[bytes]) -> NDArray[np.float64]:
        """How often the words of each text hit each bucket, with a sign per word so that unrelated texts are orthogonal on average."""
        import numpy as np

        hashes, counts = _word_hashes(block)
        mixed = (hashes ^ np.uint64(self._seed)) * np.uint64(_BASE) >> np.uint64(32)
        buckets = (mixed >> np.uint64(1)).astype(np.int64) % self.dimensions
        cells = np.repeat(np.arange(len(block)) * self.dimensions, counts) + buckets
        signs = 1.0 - 2.0 * (mixed & np.uint64(1))
        sums = np.bincount(cells, signs, len(block) * self.dimensions).astype(np.float64).reshape(len(block), self.dimensions)
        for row in np.flatnonzero(~sums.any(axis=1)).tolist():  # no word at all, or words that cancel out
            sums[row, zlib.crc32(block[row], self._seed) % self.dimensions] = 1.0
        vectors: NDArray[np.float64] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """A quarter of the UTF-8 bytes, rounded up, at least 1: cheap, and near what subword tokenizers say of English."""
        return [max(1, (len(text if text.isascii() else _utf8(text)) + 3) // 4) for text in texts]

    @override
    async def close(self) -> None:
        """There is nothing to give back."""


def _blocks(texts: Sequence[str]) -> Iterator[list[bytes]]:
    """Encoded texts in groups of about `_BLOCK` bytes; a longer text is a group of its own."""
    block: list[bytes] = []
    size = 0
    for text in texts:
        encoded = text.encode() if text.isascii() else _utf8(_CHARACTER.sub(r" \g<0> ", text.lower()))
        if block and size + len(encoded) > _BLOCK:
            yield block
            block, size = [], 0
        block.append(encoded)
        size += len(encoded)
    if block:
        yield block


def _word_hashes(block: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """A polynomial hash of each word of all texts, and the number of words per text.

    The hash of a word is the difference of two running sums over the whole block, shifted back to the word's own start.
    """
    import numpy as np

    letters = np.frombuffer((b" " + b" ".join(block) + b" ").translate(_WORD_BYTES), np.uint8)
    is_letter = letters != ord(" ")
    edges = np.flatnonzero(is_letter[1:] != is_letter[:-1])
    starts, ends = edges[0::2], edges[1::2]
    powers, inverses = _powers(-(-len(letters) // _BLOCK) * _BLOCK)
    sums = np.cumsum(letters * powers[: len(letters)])
    text_ends = np.cumsum([len(text) + 1 for text in block])
    counts = np.diff(np.searchsorted(starts, text_ends), prepend=0)
    return (sums[ends] - sums[starts]) * inverses[starts], counts


@lru_cache(maxsize=2)
def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The first powers of `_BASE` and of its inverse, modulo 2**64."""
    import numpy as np

    powers: NDArray[np.uint64] = np.cumprod(np.full(count, _BASE, np.uint64), dtype=np.uint64)
    inverses: NDArray[np.uint64] = np.cumprod(np.full(count, pow(_BASE, -1, 1 << 64), np.uint64), dtype=np.uint64)
    return powers, inverses


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
