"""Texts of one document are told apart by which time they came."""

from __future__ import annotations

import random
from collections import Counter

from ragstore.ingest.occurrences import Occurrences


def test_a_text_is_numbered_by_how_often_it_came_before() -> None:
    occurrences = Occurrences()
    assert [occurrences.next(text_hash) for text_hash in ("a" * 32, "b" * 32, "a" * 32, "a" * 32, "b" * 32)] == [0, 0, 1, 2, 1]


def test_many_texts_are_counted_as_a_dictionary_counts_them() -> None:
    dice = random.Random(0)
    texts = [f"{dice.getrandbits(128):032x}" for _ in range(3000)]
    occurrences, before = Occurrences(), Counter[str]()
    for text_hash in dice.choices(texts, k=10_000):
        assert occurrences.next(text_hash) == before[text_hash]
        before[text_hash] += 1


def test_hashes_that_share_their_slot_or_are_zero_are_other_texts() -> None:
    occurrences = Occurrences()
    hashes = [f"{number << 40:016x}{0:016x}" for number in range(2000)]
    assert [occurrences.next(text_hash) for text_hash in hashes] == [0] * 2000
    assert [occurrences.next(text_hash) for text_hash in hashes] == [1] * 2000


def test_two_hashes_with_equal_first_halves_still_name_different_chunks() -> None:
    occurrences = Occurrences()
    came = ["1" * 16 + "2" * 16, "1" * 16 + "3" * 16] * 50
    named = [(text_hash, occurrences.next(text_hash)) for text_hash in came]
    assert len(set(named)) == len(named)
