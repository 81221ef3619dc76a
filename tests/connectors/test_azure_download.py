from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.spool import SpoolFile
from ragstore.testing.sources import files_in
from ragstore_azure.download import RANGE_BYTES, ByteBudget, download


async def settle() -> None:
    """Let every task run as far as it can."""
    for _turn in range(20):
        await asyncio.sleep(0)


async def test_a_download_holds_no_more_than_its_budget_and_writes_in_order(tmp_path: Path) -> None:
    content = os.urandom(6 * RANGE_BYTES + 5)
    held = most = 0

    async def read_range(offset: int, length: int) -> bytes:
        nonlocal held, most
        held += length
        most = max(most, held)
        await asyncio.sleep(0.01 if (offset // RANGE_BYTES) % 2 else 0.03)  # later ranges come before earlier ones
        held -= length
        return content[offset : offset + length]

    budget = ByteBudget(3 * RANGE_BYTES)
    files = [SpoolFile(tmp_path) for _number in range(2)]
    await asyncio.gather(*(download(read_range, len(content), file, budget=budget, parallel=4) for file in files))
    assert most <= 3 * RANGE_BYTES
    for file in files:
        assert file.finish()[0].read_bytes() == content


async def test_a_read_that_fails_ends_the_others(tmp_path: Path) -> None:
    running = 0

    async def read_range(offset: int, length: int) -> bytes:
        nonlocal running
        if offset == RANGE_BYTES:
            raise OSError("gone")
        running += 1
        try:
            await asyncio.sleep(0 if offset == 0 else 60)
        finally:
            running -= 1
        return bytes(length)

    budget = ByteBudget(8 * RANGE_BYTES)
    with SpoolFile(tmp_path) as spooled, pytest.raises(OSError, match="gone"):
        await download(read_range, 4 * RANGE_BYTES, spooled, budget=budget, parallel=4)
    assert running == 0
    async with asyncio.timeout(1), budget.hold(8 * RANGE_BYTES):
        pass  # all of it was given back
    assert files_in(tmp_path) == []


async def test_who_asks_first_is_served_first() -> None:
    budget = ByteBudget(10)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        async with budget.hold(size):
            order.append(name)

    async with budget.hold(6):
        large = asyncio.create_task(take("large", 8))
        await settle()
        small = asyncio.create_task(take("small", 1))
        await settle()
        assert order == [], "the small one would fit, but must not overtake for ever"
    await asyncio.gather(large, small)
    assert order == ["large", "small"]


async def test_more_than_the_whole_budget_is_held_alone() -> None:
    budget = ByteBudget(10)
    async with asyncio.timeout(1), budget.hold(11):
        pass


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=12))
def test_whoever_gives_up_loses_nothing(requests: list[tuple[int, int, bool]]) -> None:
    async def run() -> None:
        budget = ByteBudget(10)

        async def take(size: int, turns: int) -> None:
            async with budget.hold(size):
                for _turn in range(turns):
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(take(size, turns)) for size, turns, _cancel in requests]
        await asyncio.sleep(0)
        for task, (_size, _turns, cancel) in zip(tasks, requests, strict=True):
            if cancel:
                task.cancel()
                await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks, return_exceptions=True)
            async with budget.hold(10):
                pass

    asyncio.run(run())
