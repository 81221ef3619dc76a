from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.models import Hit, Match
from ragstore.retrieval.diversity import Selection
from ragstore.retrieval.fusion import Fusion, fuse


def leg(**scores: float) -> list[Match]:
    return [Match(chunk_id=name, document_id=name, text=name, score=score) for name, score in scores.items()]


def test_max_norm_divides_each_leg_by_its_top() -> None:
    fused = fuse(leg(a=0.8, b=0.4), leg(b=12.0, a=3.0), fusion="max-norm", vector_complete=True)
    assert dict(fused) == pytest.approx({"b": 0.75, "a": 0.625})
    assert [chunk for chunk, _ in fused] == ["b", "a"]


def test_a_chunk_without_a_word_of_the_query_gets_nothing_from_the_text_leg() -> None:
    assert dict(fuse(leg(a=0.8), leg(), fusion="max-norm", vector_complete=True)) == {"a": 0.5}


@pytest.mark.parametrize(("complete", "expected"), [(False, 0.75), (True, 0.5)])
def test_a_chunk_cut_from_the_vector_list_counts_as_its_last(*, complete: bool, expected: float) -> None:
    fused = dict(fuse(leg(a=0.8, b=0.4), leg(c=9.0), fusion="max-norm", vector_complete=complete))
    assert fused["c"] == pytest.approx(expected)


def test_a_blind_vector_leg_does_not_drown_the_words() -> None:
    vector = leg(**{f"x{n}": 0.50 - n / 1000 for n in range(100)})
    words = leg(**{f"x{n}": float(n - 89) for n in range(90, 100)})
    assert fuse(vector, words, fusion="max-norm", vector_complete=False)[0][0] == "x99"


def test_a_leg_whose_top_is_not_positive_praises_nothing() -> None:
    fused = dict(fuse(leg(a=-0.1, b=-0.4), leg(b=2.0), fusion="max-norm", vector_complete=True))
    assert fused == pytest.approx({"a": -0.05, "b": 0.3})


def test_reciprocal_ranks_count_from_sixty() -> None:
    fused = dict(fuse(leg(a=0.8, b=0.4), leg(b=12.0), fusion="rrf", vector_complete=True))
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61})


def test_a_single_leg_keeps_its_scores() -> None:
    assert fuse(None, leg(a=7.0), fusion="max-norm", vector_complete=False) == [("a", 7.0)]
    assert fuse(leg(a=0.7), None, fusion="rrf", vector_complete=True) == [("a", 0.7)]


SCORES = st.dictionaries(st.sampled_from("abcdef"), st.floats(), max_size=6)


@given(vector=SCORES, text=SCORES, fusion=st.sampled_from(["max-norm", "rrf"]))
def test_every_found_chunk_is_there_once_in_order_with_a_finite_score(
    vector: dict[str, float], text: dict[str, float], fusion: Fusion
) -> None:
    fused = fuse(leg(**vector), leg(**text) * 2, fusion=fusion, vector_complete=False)
    assert {chunk for chunk, _ in fused} == {chunk for scores in (vector, text) for chunk in scores if math.isfinite(scores[chunk])}
    assert len(fused) == len(dict(fused))
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))


def hit(blob: str, text: str, *, stale: bool = False) -> Hit:
    return Hit(
        blob=blob,
        chunk=f"{blob}-{text}",
        score=0,
        text=text,
        start=0,
        end=1,
        page=None,
        heading=None,
        title=None,
        version=None,
        etag="",
        stale=stale,
    )


def test_a_fresh_copy_takes_the_place_of_a_stale_one_even_when_full() -> None:
    selection = Selection(limit=1, per_blob=1)
    for one in (hit("a", "x", stale=True), hit("b", "x"), hit("c", "x"), hit("d", "y")):
        selection.add(one)
    assert [kept.blob for kept in selection.hits] == ["b"]


def test_a_fresh_copy_does_not_break_the_limit_of_its_blob() -> None:
    selection = Selection(limit=9, per_blob=1)
    for one in (hit("b", "y"), hit("a", "x", stale=True), hit("b", "x"), hit("a", "z")):
        selection.add(one)
    assert [kept.chunk for kept in selection.hits] == ["b-y", "a-x"]
