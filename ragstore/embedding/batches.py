"""Token counts in, batches of indices out: padded batches for local models, packed requests for remote ones."""

from __future__ import annotations

from collections.abc import Sequence


def padded_batches(lengths: Sequence[int], *, budget: int) -> list[list[int]]:
    """Indices in batches of at most `budget` tokens once each text is padded to the longest of its batch.

    - Sorted by length, longest first: little padding, and the last batches to be handed to workers are the cheap ones.
    - A text longer than the budget is a batch of its own. Every index comes once.
    """
    batches: list[list[int]] = []
    width = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not batches or (len(batches[-1]) + 1) * width > budget:
            batches.append([])
            width = lengths[index]
        batches[-1].append(index)
    return batches


def packed_batches(lengths: Sequence[int], *, budget: int, limit: int) -> list[list[int]]:
    """Indices in their order, in batches of at most `limit` texts whose lengths add up to at most `budget`.

    A text longer than the budget is a batch of its own. Every index comes once.
    """
    batches: list[list[int]] = []
    total = 0
    for index, length in enumerate(lengths):
        if not batches or len(batches[-1]) == limit or total + length > budget:
            batches.append([])
            total = 0
        batches[-1].append(index)
        total += length
    return batches
