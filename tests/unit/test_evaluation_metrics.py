"""Rankings and judgements in; metrics as computed by hand, and what must hold of them whatever they are given, out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragstore.evaluation import metrics
from ragstore.evaluation.metrics import ndcg, rank_blobs, recall, reciprocal_rank
from ragstore.models import Hit

RANKINGS = st.lists(st.sampled_from([*"abcdefghijklmnop"]), unique=True, max_size=16)
GRADES = st.dictionaries(st.sampled_from([*"abcdefghijklmnop"]), st.integers(-2, 4), max_size=16)
FIGURES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def hit(blob: str, score: float) -> Hit:
    return Hit(
        blob=blob, chunk=f"{blob}{score}", score=score, text="", start=0, end=0, page=None, heading=None, title=None, version=None, etag=""
    )


def test_ndcg_is_one_for_the_ideal_order() -> None:
    assert ndcg(["a", "b", "c"], {"a": 2, "b": 1, "c": 0}) == 1.0


def test_ndcg_discounts_by_rank_and_weighs_by_grade() -> None:
    found = ndcg(["x", "b", "a"], {"a": 2, "b": 1})
    assert found == pytest.approx((1 / math.log2(3) + 2 / math.log2(4)) / (2 + 1 / math.log2(3)))


def test_ndcg_sees_ten_documents_only() -> None:
    assert ndcg([*"0123456789", "a"], {"a": 1}) == 0.0
    assert ndcg([f"r{rank}" for rank in range(10)], {f"r{rank}": 1 for rank in range(20)}) == 1.0


def test_a_negative_grade_counts_as_not_relevant_and_costs_nothing() -> None:
    assert ndcg(["spam", "a"], {"spam": -2, "a": 1}) == ndcg(["other", "a"], {"a": 1})


def test_recall_counts_the_relevant_documents_among_the_first_ten() -> None:
    assert recall(["a", "x", "b"], {"a": 1, "b": 2, "c": 1, "x": 0}) == pytest.approx(2 / 3)
    assert recall([*"0123456789", "a"], {"a": 1}) == 0.0
    assert recall([*"0123456789", "a"], {"a": 1}, 11) == 1.0


def test_the_reciprocal_rank_is_that_of_the_first_relevant_document() -> None:
    assert reciprocal_rank(["x", "y", "b", "a"], {"a": 2, "b": 1, "y": 0}) == pytest.approx(1 / 3)
    assert reciprocal_rank([*"0123456789", "a"], {"a": 1}) == 0.0


def test_a_question_without_relevant_documents_scores_zero() -> None:
    assert (ndcg(["a"], {"a": 0}), recall(["a"], {}), reciprocal_rank(["a"], {"a": 0})) == (0.0, 0.0, 0.0)


def test_a_blob_stands_where_its_first_hit_stands() -> None:
    assert rank_blobs([hit("a", 0.9), hit("b", 0.5), hit("a", 0.4), hit("c", 0.1)]) == ["a", "b", "c"]


@given(RANKINGS, GRADES)
def test_every_metric_lies_between_0_and_1_and_finds_something_or_nothing_together(ranking: list[str], grades: dict[str, int]) -> None:
    figures = [ndcg(ranking, grades), recall(ranking, grades), reciprocal_rank(ranking, grades)]
    assert all(0 <= figure <= 1 + 1e-12 for figure in figures)
    assert len({figure > 0 for figure in figures}) == 1


@given(RANKINGS, GRADES)
def test_a_ranking_by_grade_is_the_best_and_swapping_a_better_one_up_never_hurts(ranking: list[str], grades: dict[str, int]) -> None:
    ideal = sorted(grades, key=lambda document: -grades[document])
    assert ndcg(ranking, grades) <= ndcg(ideal, grades) + 1e-12
    for place in range(1, len(ranking)):
        upper, lower = ranking[place - 1 : place + 1]
        if grades.get(lower, 0) > grades.get(upper, 0):
            swapped = [*ranking[: place - 1], lower, upper, *ranking[place + 1 :]]
            assert ndcg(swapped, grades) >= ndcg(ranking, grades) - 1e-12
            assert reciprocal_rank(swapped, grades) >= reciprocal_rank(ranking, grades)


def test_the_interval_of_a_mean_is_about_as_wide_as_the_normal_distribution_says() -> None:
    found = metrics.mean([0.0, 1.0] * 200)
    half = 1.96 * 0.5 / math.sqrt(400)
    assert found.value == 0.5
    assert found.low == pytest.approx(0.5 - half, abs=0.008)
    assert found.high == pytest.approx(0.5 + half, abs=0.008)


def test_a_percentile_lies_between_two_values_and_its_interval_around_it() -> None:
    found = metrics.percentile([float(number) for number in range(1, 102)], 0.95)
    assert found.value == 96.0
    assert found.low < 96.0 < found.high <= 101.0
    assert metrics.percentile([1.0, 2.0], 0.5).value == 1.5


def test_a_difference_is_taken_question_by_question() -> None:
    easy_and_hard = [0.9, 0.1] * 50
    better = [figure + 0.05 for figure in easy_and_hard]
    assert metrics.mean(better).low < metrics.mean(easy_and_hard).high
    found = metrics.mean_difference(better, easy_and_hard)
    assert [found.low, found.high] == pytest.approx([0.05, 0.05])


def test_differences_of_other_questions_and_figures_of_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        metrics.mean([])
    with pytest.raises(ValueError, match="argument"):
        metrics.mean_difference([1.0], [1.0, 2.0])


def test_the_figures_of_one_question_have_an_interval_without_width() -> None:
    assert metrics.mean([0.25]).as_dict() == {"value": 0.25, "low": 0.25, "high": 0.25}


@settings(max_examples=10)
@given(FIGURES)
def test_the_same_figures_have_the_same_interval_which_lies_within_them(figures: list[float]) -> None:
    found = metrics.mean(figures)
    assert found == metrics.mean(figures)
    assert min(figures) - 1e-9 <= found.low <= found.high <= max(figures) + 1e-9
