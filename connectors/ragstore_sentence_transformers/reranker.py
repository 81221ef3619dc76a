"""A query and texts in, scores of a cross-encoder out, computed by torch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from ragstore.contracts import Reranker
from ragstore.errors import ConfigError, TransientError

_TRAINED: Final = ("ForSequenceClassification", "ForCausalLM")
"""What a model is called that was trained to judge pairs; of any other the library would make one whose judgement is random."""
_PER_TOKEN: Final = 64
"""Characters of a text per token that the model reads: nothing that counts is lost, and no megabyte is tokenized."""


class CrossEncoderReranker(Reranker):
    """A cross-encoder by its name on the Hugging Face Hub or by its folder, on the CPU or whatever `device` names (`cuda`, `mps`).

    - `model`: a folder, relative to `base`, where there is one of this name; else a name on the hub, at `revision`.
    - `max_length`: tokens of query and text together, by default as the model says; of a longer pair the longer part is cut.
    - `batch_size`: pairs at a time. Code that comes with a model is never run.

    Scores are between 0 and 1. Loading takes seconds and happens here. Raises `ConfigError` where the package or the model cannot be had,
    and for a model that does not give one score for a pair.
    """

    def __init__(
        self,
        *,
        model: str,
        base: Path | None = None,
        revision: str | None = None,
        device: str | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> None:
        for name, value, least in (("batch_size", batch_size, 1), ("max_length", max_length, 8)):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, not {value}")
        self._model = _load(model, base=base, revision=revision, device=device, max_length=max_length)
        self._batch_size = batch_size
        self._most = _PER_TOKEN * min(max_length or self._model.max_seq_length or 512, 1 << 16)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank")

    @override
    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """As the contract says. One batch at a time, so that a query waits for one batch of another and not for all."""
        loop = asyncio.get_running_loop()
        asked = _valid(query[: self._most])
        inputs = [_valid(text[: self._most]) for text in texts]
        scores = [0.0] * len(inputs)
        order = sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            found = await loop.run_in_executor(self._thread, self._judge, [(asked, inputs[index]) for index in batch])
            for index, score in zip(batch, found, strict=True):
                if not math.isfinite(score):
                    raise TransientError(f"the model gave text {index} a score that is no number")
                scores[index] = score
        return scores

    def _judge(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [float(score) for score in self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False)]

    @override
    async def close(self) -> None:
        """Wait for the batch that runs and end the thread."""
        self._thread.shutdown(cancel_futures=True)


def _load(model: str, *, base: Path | None, revision: str | None, device: str | None, max_length: int | None) -> Any:  # noqa: ANN401 - an optional package
    try:
        from sentence_transformers import CrossEncoder
        from torch.nn import Sigmoid
    except ModuleNotFoundError as error:
        raise ConfigError("the reranker 'cross-encoder' needs torch: pip install 'ragstore[sentence-transformers]'") from error
    folder = (base or Path()) / model
    place = str(folder) if folder.is_dir() else model
    try:
        loaded = CrossEncoder(place, revision=revision, device=device, max_length=max_length, activation_fn=Sigmoid())
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the model {model!r} cannot be loaded: {error}. Give a folder, or a name on the Hugging Face Hub") from error
    kinds = loaded.config.architectures or [""]
    if not kinds[0].endswith(_TRAINED) or loaded.num_labels != 1:
        raise ConfigError(
            f"the model {model!r} is no cross-encoder that gives one score for a pair ({kinds[0]}, {loaded.num_labels} labels); name one, "
            "such as 'cross-encoder/ms-marco-MiniLM-L6-v2'"
        )
    return loaded


def _valid(text: str) -> str:
    """The text with a question mark for each lone surrogate, which has no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
