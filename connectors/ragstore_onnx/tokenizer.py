"""Texts in, token ids and token counts out, with the model's own WordPiece vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragstore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

SPECIAL_TOKENS: Final = 2  # [CLS] before and [SEP] after
_SEPARATOR: Final = 102
# Lower-casing, accents, CJK characters, punctuation, word pieces and an unknown character: another vocabulary gives other ids.
_PROBE: Final = "Électro-encéphalographs, 中 \U0001f511!"
_PROBE_IDS: Final = (101, 16175, 1011, 4372, 3401, 21890, 21197, 24342, 2015, 1010, 1746, 100, 999, 102)


class WordPieceTokenizer:
    """The uncased WordPiece tokenizer in `file` (tokenizer.json). Threads may share it.

    Raises `ConfigError` where the file cannot be read or does not hold the vocabulary of all-MiniLM-L6-v2.
    """

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises Exception itself
            raise ConfigError(f"{file} is not a tokenizer: {error}") from error
        # As shipped it cuts at 128 tokens and pads everything to 128.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if tuple(self._tokenizer.encode(_PROBE).ids) != _PROBE_IDS:
            raise ConfigError(f"{file} is not the tokenizer of all-MiniLM-L6-v2")
        self._counts = _WordCounts(self._tokenizer)

    def ids(self, text: str, *, limit: int) -> NDArray[np.int32]:
        """Ids with special tokens; from a longer text the first `limit` - 1 and the separator."""
        import numpy as np

        # One at a time: `encode_batch` starts threads of its own, which do not survive a fork.
        ids = self._tokenizer.encode(_valid(text)).ids
        return np.array(ids if len(ids) <= limit else [*ids[: limit - 1], _SEPARATOR], np.int32)

    def count(self, text: str) -> int:
        """Tokens without special tokens, however long the text."""
        # WordPiece never looks across white space: the sum over the words is exact, and most words were seen before.
        return sum(map(self._counts.__getitem__, _valid(text).replace("\n", " ").split(" ")))


class _WordCounts(dict[str, int]):
    """Tokens per word. Once full it only looks up: frequent words came early."""

    _LONGEST: Final = 32
    _MOST: Final = 1 << 16

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__({"": 0})
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> int:
        count = len(self._tokenizer.encode(word, add_special_tokens=False))
        if len(word) <= self._LONGEST and len(self) < self._MOST:
            self[word] = count
        return count


def _valid(text: str) -> str:
    """The text with a question mark for each lone surrogate, which has no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
