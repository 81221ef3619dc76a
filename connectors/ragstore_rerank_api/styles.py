"""A query and texts in, the body of a request as each vendor wants it out; the vendor's answer in, a score for each text out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ragstore.errors import TransientError

StyleName = Literal["cohere", "jina", "voyage", "tei"]


class NoScoresError(Exception):
    """The answer is not one of this kind of service; never leaves this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one vendor's `/rerank` is asked, and what it takes at once."""

    base_url: str | None
    """None where everybody runs a server of their own."""
    key_env: str
    """The variable that the vendor's own SDK reads the key from; empty where a server wants none by default."""
    texts: str = "documents"
    more: Mapping[str, Any] = field(default_factory=dict)
    """What is said besides: to cut what is too long instead of refusing it, and not to send the texts back."""
    names_model: bool = True
    results: str | None = "results"
    """Where the scores are; None where they are the whole answer."""
    score: str = "relevance_score"
    most_texts: int = 1000
    """In one request."""
    most_bytes: int = 1_000_000
    """In one request, the query counted with each text."""
    query_bytes: int = 8_000
    """No tokenizer makes more tokens than there are bytes, so a limit in tokens is kept whatever the language."""

    def body(self, query: str, texts: Sequence[str], *, model: str | None) -> dict[str, Any]:
        """The request. Nothing says how many scores to give: all of them."""
        named = {"model": model} if self.names_model else {}
        return {**named, "query": query, self.texts: list(texts), **self.more}

    def scores(self, answer: object, number: int) -> list[float]:
        """So many scores, in the order of the texts: they come best first, each with the index of its text.

        Raises `TransientError` for a score that is missing, twice there, of no text, or no number, and `NoScoresError` for something else.
        """
        items = answer if self.results is None else answer.get(self.results) if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise NoScoresError
        found: dict[int, float] = {}
        for item in items:
            index, score = self._read(item)
            if not 0 <= index < number:
                raise TransientError(f"it gave a score to text {index} of {number}")
            if index in found:
                raise TransientError(f"it gave text {index} two scores")
            found[index] = score
        if len(found) != number:
            raise TransientError(f"it gave {len(found)} scores for {number} texts")
        return [found[index] for index in range(number)]

    def _read(self, item: object) -> tuple[int, float]:
        index, score = (item.get("index"), item.get(self.score)) if isinstance(item, dict) else (None, None)
        if not isinstance(index, int) or isinstance(index, bool) or not isinstance(score, int | float) or isinstance(score, bool):
            raise TransientError("it gave something that is no score of a text")
        try:
            number = float(score)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise TransientError(f"it gave text {index} a score that is no number")
        return index, number


STYLES: Final[Mapping[StyleName, Style]] = {
    # https://docs.cohere.com/reference/rerank, https://docs.cohere.com/docs/reranking-best-practices: 2,048 tokens of a query; texts are
    # cut after max_tokens_per_doc, 4,096 unless it is said. More than 1,000 texts are advised against.
    "cohere": Style(base_url="https://api.cohere.com/v2", key_env="CO_API_KEY", query_bytes=2_048),
    # https://jina.ai/reranker/. Also what vLLM, LiteLLM and others offer. The texts come back unless that is declined.
    "jina": Style(base_url="https://api.jina.ai/v1", key_env="JINA_API_KEY", more={"return_documents": False}),
    # https://docs.voyageai.com/reference/reranker-api: 1,000 texts; tokens of the query times texts, and those of all texts, 600,000.
    "voyage": Style(
        base_url="https://api.voyageai.com/v1",
        key_env="VOYAGE_API_KEY",
        more={"truncation": True, "return_documents": False},
        results="data",
        most_bytes=600_000,
    ),
    # https://huggingface.github.io/text-embeddings-inference/: one model, and by default 32 texts (--max-client-batch-size).
    "tei": Style(
        base_url=None,
        key_env="",
        texts="texts",
        more={"truncate": True, "raw_scores": False, "return_text": False},
        names_model=False,
        results=None,
        score="score",
        most_texts=32,
    ),
}
