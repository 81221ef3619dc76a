"""A query and texts in, scores of a `/rerank` API out: batched, cut to what the vendor takes, with short patience, all of them or none."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, Final

import httpx
from typing_extensions import override

from ragstore import tracing
from ragstore.contracts import Reranker
from ragstore.embedding.batches import packed_batches
from ragstore.embedding.retry import RetryBudget, with_retries
from ragstore.errors import ConfigError, TransientError
from ragstore_rerank_api.errors import RequestRefusedError, TooMuchAtOnceError, translate
from ragstore_rerank_api.styles import STYLES, NoScoresError, StyleName

_LONGEST_ANSWER: Final = 10_000_000
"""Bytes. A thousand scores are less than a hundredth of that, also of a server that sends the texts back."""
_PROBE: Final = ("What is this?", "A plain sentence.")


class RerankAPI(Reranker):
    """`POST BASE_URL/rerank` of Cohere, Jina, Voyage, or a text-embeddings-inference (TEI) server; the texts of hits are sent there.

    - `style`: `cohere` (its v2), `jina` (also what vLLM, LiteLLM and others offer), `voyage` or `tei`: how requests and answers look.
    - `model`: its name there; a `tei` server has one and is not told.
    - `base_url`: what stands before `/rerank`; needed for `tei`, for the others by default the vendor's own.
    - `api_key_env`: the environment variable that holds the key; by default `CO_API_KEY`, `JINA_API_KEY` or `VOYAGE_API_KEY`, for `tei`
      none; empty where the server wants none.
    - `max_batch`: texts per request, by default 1000, for `tei` 32 as its servers have it; `concurrency`: requests at a time. A model that
      looks at all texts together, such as jina-reranker-v3, compares those of one request only.
    - `max_bytes`: so much of a text is sent; of that the service reads what its model can.
    - `timeout`: seconds for all of it, as somebody waits: requests, and attempts at what is throttled or down (`attempts`; `Retry-After` is
      honoured as far as there is time).

    Raises `ConfigError` for a refused key, an unknown model or an address of something else, and where the service refuses even a plain
    sentence; `RequestRefusedError` where it refuses these texts alone; else `TransientError`.
    """

    def __init__(
        self,
        *,
        style: StyleName,
        model: str | None = None,
        base_url: str | None = None,
        api_key_env: str | None = None,
        max_batch: int | None = None,
        max_bytes: int = 32_000,
        concurrency: int = 4,
        timeout: float = 10.0,
        attempts: int = 3,
    ) -> None:
        self._style = STYLES[style]
        self._max_batch = self._style.most_texts if max_batch is None else max_batch
        _check(max_batch=self._max_batch, max_bytes=max_bytes, concurrency=concurrency, attempts=attempts)
        if not timeout > 0:
            raise ConfigError(f"timeout must be above 0 seconds, not {timeout}")
        if self._style.names_model and not model:
            raise ConfigError(f"name the model that orders the hits: model = ... ([reranker] style = {style!r})")
        address = base_url or self._style.base_url
        if address is None:
            raise ConfigError(f"say where the server is: base_url = ... ([reranker] style = {style!r})")
        self._url = f"{_checked(address)}/rerank"
        self._model, self._max_bytes, self._concurrency, self._timeout = model, max_bytes, concurrency, timeout
        self._budget = RetryBudget(attempts=attempts, seconds=timeout)
        variable = self._style.key_env if api_key_env is None else api_key_env
        self._key, self._where = f"the environment variable {variable!r}", f"the reranker {model or style!r} at {address}"
        # Redirects are not followed: the texts and the key are for this address.
        self._client = httpx.AsyncClient(timeout=timeout, headers=_headers(variable))

    @override
    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """As the contract says."""
        asked = _cut(query, self._style.query_bytes)
        inputs = [_cut(text, self._max_bytes) for text in texts]
        every = len(asked.encode())
        lengths = [len(text.encode()) + every for text in inputs]
        batches = packed_batches(lengths, budget=self._style.most_bytes, limit=self._max_batch)
        scores = [0.0] * len(inputs)
        slots = asyncio.Semaphore(self._concurrency)

        async def fill(batch: list[int]) -> None:
            async with slots:
                found = await self._batch(asked, [inputs[index] for index in batch])
            for index, score in zip(batch, found, strict=True):
                scores[index] = score

        tasks = [asyncio.ensure_future(fill(batch)) for batch in batches]
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*tasks)
        except TimeoutError as error:
            raise TransientError(f"{self._where} did not answer within {self._timeout:g} seconds") from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return scores

    @override
    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _batch(self, query: str, texts: list[str]) -> list[float]:
        """The scores of these texts; where that is too much at once, of each half on its own."""
        try:
            return await with_retries(lambda: self._request(query, texts), budget=self._budget)
        except TooMuchAtOnceError:
            if len(texts) == 1:
                raise
        except RequestRefusedError:
            await self._probe()
            raise
        middle = len(texts) // 2
        return [*await self._batch(query, texts[:middle]), *await self._batch(query, texts[middle:])]

    async def _probe(self) -> None:
        """Tell a bad text from a bad request: were both taken for the text's fault, no search would ever be reranked and nobody told."""
        query, text = _PROBE
        try:
            await with_retries(lambda: self._request(query, [text]), budget=self._budget)
        except RequestRefusedError as error:
            raise ConfigError(f"every text is refused: {error}. Check model and style") from error

    async def _request(self, query: str, texts: list[str]) -> list[float]:
        """One call of the API."""
        body = self._style.body(query, texts, model=self._model)
        try:
            async with self._client.stream("POST", self._url, json=body, headers=tracing.carried()) as response:
                content = await self._read(response)
        except httpx.HTTPError as error:
            raise TransientError(f"{self._where} cannot be reached: {type(error).__name__}") from error
        if not response.is_success:
            raise translate(response.status_code, response.headers, content, key=self._key, where=self._where)
        try:
            return self._style.scores(_parsed(content), len(texts))
        except NoScoresError as error:
            raise ConfigError(f"{self._where} does not answer like a rerank API of this style; check base_url and style") from error
        except TransientError as error:
            raise TransientError(f"{self._where} answered wrongly: {error}") from error

    async def _read(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > _LONGEST_ANSWER:
                raise TransientError(f"the answer of {self._where} does not end; it was stopped after {_LONGEST_ANSWER} bytes")
        return bytes(content)


def _parsed(content: bytes) -> Any:  # noqa: ANN401 - what a server sends
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NoScoresError from error


def _check(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")


def _checked(address: str) -> str:
    try:
        good = httpx.URL(address).host and address.startswith(("http://", "https://"))
    except httpx.InvalidURL:
        good = False
    if not good:
        raise ConfigError(f"[reranker] base_url = {address!r} is no address: write it as https://HOST/v1")
    return address.rstrip("/")


def _headers(variable: str) -> dict[str, str]:
    if not variable:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"the environment variable {variable!r} must hold the API key (api_key_env; empty for a server without keys)")
    return {"Authorization": f"Bearer {key}"}


def _cut(text: str, most: int) -> str:
    """The beginning of the text, in so many bytes of UTF-8; with a question mark for each lone surrogate, which has none."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
