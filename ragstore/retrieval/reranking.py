"""Permitted hits and a reranker in; the hits in its order, or in the order that they had where it fails, out."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from ragstore import tracing
from ragstore.contracts import Reranker
from ragstore.errors import ConfigError, TransientError
from ragstore.models import Hit

_log = logging.getLogger("ragstore.retrieval")


async def reranked(reranker: Reranker, query: str, pool: list[Hit]) -> list[Hit]:
    """The pool with the scores of the reranker, best first. It is shown the texts of the pool and nothing else.

    - A hit whose score is no number goes last, with the lowest score there is.
    - Where the reranker fails, the pool is returned as it is: an answer in a worse order is worth more than none. The log has the event
      `retrieval.reranker_failed` with the type of the error; its text may quote what was sent.
    - Raises `ConfigError` as the reranker does: no search would ever be reranked, and nobody would see it.
    """
    if not pool:
        return pool
    try:
        with tracing.step("rerank", texts=len(pool)):
            scores = await _scores(reranker, query, [hit.text for hit in pool])
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a model or a network can raise
        _log.warning("retrieval.reranker_failed", extra={"error": type(error).__name__})
        return pool
    least = min(score for score in scores if score is not None)
    scored = [(score is None, replace(hit, score=least if score is None else score)) for hit, score in zip(pool, scores, strict=True)]
    return [hit for _, hit in sorted(scored, key=lambda each: (each[0], -each[1].score))]


async def _scores(reranker: Reranker, query: str, texts: list[str]) -> list[float | None]:
    """A score for each text, at least one of them; None for what is no number. Raises what the reranker raises."""
    scores = [float(score) if math.isfinite(score) else None for score in await reranker.rerank(query, texts)]
    if len(scores) != len(texts) or not any(score is not None for score in scores):
        raise TransientError(f"the reranker gave {len(scores)} scores for {len(texts)} texts")
    return scores
