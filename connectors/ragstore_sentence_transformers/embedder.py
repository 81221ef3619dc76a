"""Texts in, vectors of any sentence-transformers model out, computed by torch."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from ragstore.contracts import Embedder
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SentenceTransformersEmbedder(Embedder):
    """A model by its name on the Hugging Face Hub or by its folder, on the CPU or whatever `device` names (`cuda`, `mps`).

    - `model`: a folder, relative to `base`, where there is one of this name; else a name on the hub, at `revision`.
    - `query_prompt`, `document_prompt`: put before each text; without them the model's own prompts are used where it has any.
    - `dimensions`: cuts the vectors, for models that were trained for that.
    - `scripts`: what the model can read, e.g. `["LATIN", "CYRILLIC"]`; without it nobody can tell.
    - `unrelated_cosine`: about that of a question and a text that have nothing to do with each other; see `Embedder`.
    - A text above `max_tokens` is cut. Code that comes with a model is never run.

    Loading takes seconds and happens here. Raises `ConfigError` where the package or the model cannot be had.
    """

    def __init__(
        self,
        *,
        model: str,
        base: Path | None = None,
        revision: str | None = None,
        device: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        dimensions: int | None = None,
        batch_size: int = 32,
        scripts: list[str] | None = None,
        unrelated_cosine: float | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, not {batch_size}")
        if unrelated_cosine is not None and not -1 <= unrelated_cosine < 1:
            raise ConfigError(f"unrelated_cosine must be at least -1 and below 1, not {unrelated_cosine}")
        self._model = _load(model, base=base, revision=revision, device=device, dimensions=dimensions)
        self._tokenizer = copy.deepcopy(self._model.tokenizer)  # its settings change while a text is encoded; threads must not share it
        self._batch_size = batch_size
        own = self._model.prompts or {}
        self._prompts = {
            "query": own.get("query") or "" if query_prompt is None else query_prompt,
            "document": own.get("document") or "" if document_prompt is None else document_prompt,
        }
        self.dimensions = len(self._model.encode("x", show_progress_bar=False))
        self.max_tokens = int(min(self._model.max_seq_length or 512, 1 << 20))
        self.price_per_million_tokens: float | None = None
        self.scripts: frozenset[str] | None = frozenset(script.upper() for script in scripts) if scripts else None
        self.unrelated_cosine = unrelated_cosine
        prompts = f"{self._prompts['document']!r}:{self._prompts['query']!r}"
        self.fingerprint = f"sentence-transformers:{_digest(self._model)}:{self.dimensions}:{prompts}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embed")

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        """As the contract says. One batch at a time, so that a query waits for one batch of an indexing run and not for all."""
        import numpy as np

        loop = asyncio.get_running_loop()
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            inputs = [texts[index] for index in batch]
            vectors[batch] = await loop.run_in_executor(self._thread, self._encode, inputs, self._prompts[purpose])
        return vectors

    def _encode(self, texts: list[str], prompt: str) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._model.encode(
            [_valid(text) for text in texts],
            prompt=prompt,
            batch_size=self._batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return vectors

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Exact, with the model's own tokenizer."""
        if not texts:
            return []
        valid = [_valid(text) for text in texts]
        coded = self._tokenizer(valid, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in coded["input_ids"]]

    @override
    async def close(self) -> None:
        """Wait for the batch that runs and end the thread."""
        self._thread.shutdown(cancel_futures=True)


def _load(model: str, *, base: Path | None, revision: str | None, device: str | None, dimensions: int | None) -> Any:  # noqa: ANN401 - an optional package
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError as error:
        raise ConfigError("the embedder 'sentence-transformers' needs torch: pip install 'ragstore[sentence-transformers]'") from error
    folder = (base or Path()) / model
    try:
        return SentenceTransformer(str(folder) if folder.is_dir() else model, revision=revision, device=device, truncate_dim=dimensions)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the model {model!r} cannot be loaded: {error}. Give a folder, or a name on the Hugging Face Hub") from error


def _digest(model: Any) -> str:  # noqa: ANN401 - an optional package
    """16 hex digits over the loaded weights in their precision: the same model has the same digest wherever it came from."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)  # as bytes, because numpy knows no bfloat16
    return digest.hexdigest()[:16]


def _valid(text: str) -> str:
    """The text with a question mark for each lone surrogate, which has no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
