"""A text in, a cheap guess at its tokens out, so that a slow tokenizer is asked only about finished chunks."""

from __future__ import annotations

import string
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNIT: Final = 100
"""The guess is an integer in hundredths of a token: sums of pieces are exact."""

# Least squares over Markdown, Python and abstracts against BERT's WordPiece (of the ratio real/guess: mean 1.0, deviation 0.07,
# where characters / 4 has 0.24). Outside ASCII a character counts one token, which holds for Chinese and is the most for others.
_PER_LETTER: Final = 22
_PER_MARK: Final = 115
_PER_DIGIT: Final = 50
_PER_SPACE: Final = 5
_ASCII: Final = 128


def running_estimate(text: str) -> NDArray[np.int64]:
    """About how many tokens stand before each offset, in hundredths; shape (len(text) + 1,), strictly increasing from 0."""
    import numpy as np

    if text.isascii():
        weights = _weights()[np.frombuffer(text.encode(), dtype=np.uint8)]
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        weights = _weights()[np.minimum(codes, _ASCII)]
    sums = np.zeros(len(text) + 1, dtype=np.int64)
    np.cumsum(weights, out=sums[1:])
    return sums


@cache
def _weights() -> NDArray[np.int32]:
    """The guess for each ASCII character, and for all others in the last place."""
    import numpy as np

    weights = np.full(_ASCII + 1, _PER_MARK, dtype=np.int32)
    for characters, weight in ((string.ascii_letters, _PER_LETTER), (string.digits, _PER_DIGIT), (string.whitespace, _PER_SPACE)):
        weights[[ord(character) for character in characters]] = weight
    weights[_ASCII] = UNIT
    return weights
