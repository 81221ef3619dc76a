"""Texts in, vectors from an OpenAI-compatible `/v1/embeddings` out: batched, throttled with patience, with refused texts named."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import openai
from typing_extensions import override

from ragstore import tracing
from ragstore.contracts import Embedder
from ragstore.embedding.batches import packed_batches
from ragstore.embedding.retry import RetryBudget, with_retries
from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore_openai.errors import InputRefusedError, translate

if TYPE_CHECKING:
    from numpy.typing import NDArray

# https://platform.openai.com/docs/api-reference/embeddings/create: 2,048 inputs and 300,000 tokens per request. No tokenizer of these
# models makes more tokens than there are bytes, so that counting bytes keeps the second limit whatever the language.
_REQUEST_BYTES: Final = 300_000
_REQUEST_INPUTS: Final = 2048
_NATIVE: Final = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
_PROBE: Final = "A plain sentence."


class OpenAIEmbedder(Embedder):
    """Embeddings from OpenAI, from Azure OpenAI (`base_url = "https://NAME.openai.azure.com/openai/v1/"`), or from a compatible server.

    - `api_key_env`: the environment variable that holds the key; empty where the server wants none.
    - `dimensions`: length of the vectors; needed for models other than OpenAI's own. It is sent with the request where it shortens a
      `text-embedding-3` model, or where `send_dimensions` says so.
    - `max_batch`: inputs per request; `concurrency`: requests at a time; `max_tokens`: the model's limit per input.
    - `document_prefix`, `query_prefix`: put before each text, for models that want an instruction. Part of the fingerprint.
    - `unrelated_cosine`: about that of a question and a text that have nothing to do with each other; see `Embedder`.
    - `attempts`, `retry_seconds`: how long throttling and outages are waited out before `TransientError`; `Retry-After` is honoured.

    A text that the service refuses raises `PoisonError` with its index. It is found by halving the batch; where the service refuses
    even a plain sentence, the configuration is wrong and `ConfigError` says so, as it does for a refused key.
    """

    def __init__(
        self,
        *,
        model: str = "text-embedding-3-small",
        base_url: str = "https://api.openai.com/v1",
        api_key_env: str = "OPENAI_API_KEY",
        dimensions: int | None = None,
        send_dimensions: bool | None = None,
        max_batch: int = 256,
        max_tokens: int = 8191,
        concurrency: int = 4,
        document_prefix: str = "",
        query_prefix: str = "",
        encoding_format: Literal["float", "base64"] = "float",
        price_per_million_tokens: float | None = None,
        unrelated_cosine: float | None = None,
        timeout: float = 60.0,
        attempts: int = 6,
        retry_seconds: float = 120.0,
    ) -> None:
        _check(max_batch=max_batch, max_tokens=max_tokens, concurrency=concurrency, attempts=attempts)
        if unrelated_cosine is not None and not -1 <= unrelated_cosine < 1:
            raise ConfigError(f"unrelated_cosine must be at least -1 and below 1, not {unrelated_cosine}")
        native = _NATIVE.get(model)
        if dimensions is None and native is None:
            raise ConfigError(f"say how long the vectors of {model!r} are: dimensions = ...")
        self.dimensions: int = dimensions or native or 0
        self.max_tokens = max_tokens
        self.price_per_million_tokens = price_per_million_tokens
        self.scripts: frozenset[str] | None = None
        self.unrelated_cosine = unrelated_cosine
        self.fingerprint = f"openai:{model}:{self.dimensions}:{document_prefix!r}:{query_prefix!r}"
        self._prefixes = {"document": document_prefix, "query": query_prefix}
        shortened = native is not None and self.dimensions < native
        self._sent_dimensions = self.dimensions if (shortened if send_dimensions is None else send_dimensions) else openai.omit
        self._model = model
        self._encoding = encoding_format
        self._max_batch = min(max_batch, _REQUEST_INPUTS)
        self._concurrency = concurrency
        self._budget = RetryBudget(attempts=attempts, seconds=retry_seconds)
        self._key, self._where = f"the environment variable {api_key_env!r}", f"{model!r} at {base_url}"
        self._client = openai.AsyncOpenAI(api_key=_key(api_key_env), base_url=base_url, timeout=timeout, max_retries=0)

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        """As the contract says. A text beyond `max_tokens` is the service's to refuse."""
        inputs = [_valid(self._prefixes[purpose] + text) for text in texts]
        batches = packed_batches([len(text.encode()) for text in inputs], budget=_REQUEST_BYTES, limit=self._max_batch)
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        slots = asyncio.Semaphore(self._concurrency)

        async def fill(batch: list[int]) -> None:
            async with slots:
                vectors[batch] = await self._batch(inputs, batch)

        tasks = [asyncio.ensure_future(fill(batch)) for batch in batches]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return vectors

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """An estimate on the safe side: a quarter of the bytes of ASCII text, a third of the bytes of any other.

        English has about 4.5 bytes per token in OpenAI's vocabularies, Chinese has 3 to 4; the exact vocabularies would be a download.
        """
        return [-(-len(text) // 4) if text.isascii() else -(-len(_valid(text).encode()) // 3) for text in texts]

    @override
    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _batch(self, inputs: Sequence[str], batch: list[int]) -> NDArray[np.float32]:
        """The vectors of these inputs; where the request is refused, each half on its own, down to the one text that is refused."""
        try:
            return await with_retries(lambda: self._request([inputs[index] for index in batch]), budget=self._budget)
        except InputRefusedError as error:
            if len(batch) == 1:
                await self._probe()
                raise PoisonError("embedding_refused", f"text {batch[0]} is refused: {error}", batch[0]) from error
        middle = len(batch) // 2
        return np.concatenate([await self._batch(inputs, batch[:middle]), await self._batch(inputs, batch[middle:])])

    async def _probe(self) -> None:
        """Tell a bad text from a bad request: were both taken for the text's fault, a wrong option would quarantine every blob."""
        try:
            await with_retries(lambda: self._request([_PROBE]), budget=self._budget)
        except InputRefusedError as error:
            raise ConfigError(f"every text is refused: {error}. Check model, dimensions and encoding_format") from error

    async def _request(self, inputs: list[str]) -> NDArray[np.float32]:
        """One call of the API; vectors in the order of the inputs, normalised."""
        try:
            answer = await self._client.embeddings.create(
                model=self._model,
                input=inputs,
                dimensions=self._sent_dimensions,
                encoding_format=self._encoding,
                extra_headers=tracing.carried(),
            )
        except openai.OpenAIError as error:
            raise translate(error, key=self._key, where=self._where) from error
        except ValueError as error:  # the SDK's word for an answer without data, or cut short
            raise TransientError(f"{self._where} answered something incomplete: {error}") from error
        items = getattr(answer, "data", None)
        if not isinstance(items, list):
            raise ConfigError(f"{self._where} does not answer like an embeddings API; check base_url")
        if all(isinstance(getattr(item, "index", None), int) for item in items):  # some servers leave it out
            items.sort(key=lambda item: item.index)
        return self._checked([_decoded(item.embedding) for item in items], len(inputs))

    def _checked(self, rows: Sequence[NDArray[np.float32]], expected: int) -> NDArray[np.float32]:
        if len(rows) != expected:
            raise TransientError(f"{self._where} answered {len(rows)} vectors for {expected} texts")
        for row in rows:
            if len(row) != self.dimensions:
                raise ConfigError(f"{self._where} answers with {len(row)} dimensions, not {self.dimensions}: set dimensions = {len(row)}")
        vectors = np.stack(rows)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise InputRefusedError(f"{self._where} answers with a vector that has no direction")
        normalised: NDArray[np.float32] = vectors / norms
        return normalised


def _check(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")


def _key(variable: str) -> str:
    if not variable:
        return "none"  # the client insists on one
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"the environment variable {variable!r} must hold the API key (api_key_env; empty for a server without keys)")
    return key


def _decoded(embedding: Sequence[float] | str) -> NDArray[np.float32]:
    """A list of numbers, or base64 of little-endian float32; the SDK decodes the latter only where nobody asked for a format."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4").astype(np.float32)
    return np.array(embedding, np.float32)


def _valid(text: str) -> str:
    """The text with a question mark for each lone surrogate, which JSON in UTF-8 cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
