"""Batches by token budget: each index once, no batch above its limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragstore.embedding.batches import packed_batches, padded_batches

LENGTHS = st.lists(st.integers(0, 300), max_size=60)
BUDGETS = st.integers(1, 1200)


@given(LENGTHS, BUDGETS)
def test_padded_batches_keep_the_budget_and_lose_nothing(lengths: list[int], budget: int) -> None:
    batches = padded_batches(lengths, budget=budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


@given(LENGTHS, BUDGETS)
def test_padded_batches_go_from_long_to_short(lengths: list[int], budget: int) -> None:
    order = [lengths[index] for batch in padded_batches(lengths, budget=budget) for index in batch]
    assert order == sorted(lengths, reverse=True)


@given(LENGTHS, BUDGETS, st.integers(1, 10))
def test_packed_batches_keep_order_and_both_limits(lengths: list[int], budget: int, limit: int) -> None:
    batches = packed_batches(lengths, budget=budget, limit=limit)
    assert [index for batch in batches for index in batch] == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= limit
        assert len(batch) == 1 or sum(lengths[index] for index in batch) <= budget


def test_no_texts_make_no_batch() -> None:
    assert padded_batches([], budget=10) == packed_batches([], budget=10, limit=2) == []
