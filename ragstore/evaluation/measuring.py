"""An index, a principal, a judged set and the variants to compare in; their quality and their speed, side by side, out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragstore.blocking import Index
from ragstore.errors import ConfigError
from ragstore.evaluation import metrics
from ragstore.evaluation.judged import JudgedSet, Judgements, locate
from ragstore.evaluation.metrics import Interval
from ragstore.evaluation.variants import Variant
from ragstore.models import Principal

_SHOWN: Final = 3
Progress = Callable[[int, int], None]
"""Told how many of how many queries were asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one variant gave."""

    variant: Variant
    ndcg: Interval
    """Of the first ten documents."""
    recall: Interval
    """Of the first `k`."""
    mrr: Interval
    """Of the first ten documents."""
    p50: Interval
    """Median of the milliseconds of a search, the embedding of the query included."""
    p95: Interval
    """Milliseconds that 95 of 100 searches keep to."""
    better: Interval | None
    """By how much its nDCG is above that of the first variant, question by question; None for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Variants side by side, over the same questions."""

    name: str
    queries: int
    left_out: int
    """Queries of the set without a relevant document."""
    judged: int
    """Documents that are named relevant."""
    missing: int
    """Those of them that are not in the index, or that the principal may not read: no variant can find them."""
    k: int
    measured: tuple[Measured, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values: each figure with its interval."""
        return {
            "set": self.name,
            "queries": self.queries,
            "queries_left_out": self.left_out,
            "documents_judged": self.judged,
            "documents_missing": self.missing,
            "confidence": metrics.CONFIDENCE,
            "configurations": [
                {
                    "name": one.variant.name,
                    f"ndcg@{metrics.DEPTH}": one.ndcg.as_dict(),
                    f"recall@{self.k}": one.recall.as_dict(),
                    f"mrr@{metrics.DEPTH}": one.mrr.as_dict(),
                    "p50_ms": one.p50.as_dict(),
                    "p95_ms": one.p95.as_dict(),
                    "ndcg_above_first": one.better.as_dict() if one.better else None,
                }
                for one in self.measured
            ],
        }


@dataclass(slots=True)
class _Figures:
    """Of one variant, a figure for each question."""

    ndcg: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    mrr: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


def evaluate(
    index: Index,
    judged: JudgedSet,
    *,
    principal: Principal,
    variants: Sequence[Variant],
    k: int = metrics.DEPTH,
    allow_missing: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> Evaluation:
    """Ask every question in every variant, as this principal, and compare the first blobs with the judgements.

    A blob stands where its first hit stands. Variants take turns, question by question, so that whatever else the machine does meets them
    all; what is asked once before the clock runs loads the model. Raises `ConfigError` where relevant documents are not there to be found,
    unless `allow_missing`: then they count as not found.
    """
    if not variants:
        raise ConfigError("there is no configuration to measure")
    judgements, named, missing = _of_blobs(index, judged, principal)
    if missing and (not allow_missing or len(missing) == named):
        raise ConfigError(_missing(missing, named, principal))
    figures = [_Figures() for _ in variants]
    first = next(iter(judged.queries.values()))
    for variant in variants:
        _ask(index, first, variant, principal, k)
    for number, (query, text) in enumerate(judged.queries.items()):
        for turn in range(len(variants)):
            place = (number + turn) % len(variants)
            _note(figures[place], judgements[query], k, *_ask(index, text, variants[place], principal, k))
        progress(number + 1, len(judged.queries))
    return Evaluation(
        name=judged.name,
        queries=len(judged.queries),
        left_out=judged.left_out,
        judged=named,
        missing=len(missing),
        k=k,
        measured=tuple(_summed(variant, one, figures[0]) for variant, one in zip(variants, figures, strict=True)),
    )


def _of_blobs(index: Index, judged: JudgedSet, principal: Principal) -> tuple[Judgements, int, list[str]]:
    """The judgements by the names of blobs; how many documents are relevant for something, and which of them are not there.

    A document that is not there keeps its id, which is no name of a blob: it counts, and is never found.
    """
    relevant = {document: None for grades in judged.judgements.values() for document, grade in grades.items() if grade > 0}
    others = {document: None for grades in judged.judgements.values() for document in grades}
    blobs, missing = locate(others | relevant, index.contents(principal=principal))
    lost = [document for document in missing if document in relevant]
    renamed: dict[str, Mapping[str, int]] = {}
    for query, grades in judged.judgements.items():
        renamed[query] = {blobs.get(document, f"\0{document}"): grade for document, grade in grades.items()}
        if len(renamed[query]) < len(grades):
            raise ConfigError(f"two documents that are judged for query {query!r} are the same blob; name each blob once")
    return renamed, len(relevant), lost


def _missing(missing: Sequence[str], named: int, principal: Principal) -> str:
    shown = ", ".join(repr(document) for document in missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    what = f"{len(missing):,} of {named:,} relevant documents are not in the index, or {principal.name!r} may not read them: {shown}"
    if len(missing) == named:
        return f"{what}; a document is named by CONTAINER/PATH, by PATH, or by the id that `eval unpack` made a file of"
    return f"{what}; index them, ask as somebody else, or count them as not found: --allow-missing"


def _ask(index: Index, text: str, variant: Variant, principal: Principal, k: int) -> tuple[list[str], float]:
    """Blobs, best first, and milliseconds."""
    begin = time.perf_counter()
    limit = max(k, metrics.DEPTH)
    hits = index.search(text, principal=principal, limit=limit, legs=variant.legs, per_blob=variant.per_blob, **variant.switches)
    return metrics.rank_blobs(hits), 1000 * (time.perf_counter() - begin)


def _note(figures: _Figures, grades: Mapping[str, int], k: int, ranking: Sequence[str], milliseconds: float) -> None:
    figures.ndcg.append(metrics.ndcg(ranking, grades))
    figures.recall.append(metrics.recall(ranking, grades, k))
    figures.mrr.append(metrics.reciprocal_rank(ranking, grades))
    figures.milliseconds.append(milliseconds)


def _summed(variant: Variant, figures: _Figures, first: _Figures) -> Measured:
    return Measured(
        variant=variant,
        ndcg=metrics.mean(figures.ndcg),
        recall=metrics.mean(figures.recall),
        mrr=metrics.mean(figures.mrr),
        p50=metrics.percentile(figures.milliseconds, 0.5),
        p95=metrics.percentile(figures.milliseconds, 0.95),
        better=None if figures is first else metrics.mean_difference(figures.ndcg, first.ndcg),
    )
