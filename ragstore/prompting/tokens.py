"""The file of a model's tokenizer in, a function that counts tokens as that model does out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ragstore.errors import ConfigError

CountTokens = Callable[[Sequence[str]], list[int]]


def count_by(file: Path) -> CountTokens:
    """Counts with a `tokenizer.json` of Hugging Face. Raises `ConfigError` where it cannot be read.

    Special tokens are left out: those that part messages are the chat template's, a few for each message.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing more special
        raise ConfigError(f"[prompt] tokenizer = {str(file)!r} cannot be read as a tokenizer.json: {error}") from error
    tokenizer.no_truncation()  # what the file says of an embedder's limit would count every long text as short
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoded) for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    return count
