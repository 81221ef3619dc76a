"""Retries: they wait as asked, and end within their budget."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragstore.embedding.retry import RetryBudget, retry_after, with_retries
from ragstore.errors import ConfigError, TransientError


class Clock:
    """A clock that only a sleep moves, and a call that fails as told."""

    def __init__(self, *failures: Exception) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.failures = list(failures)
        self.calls = 0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def call(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    async def run(self, budget: RetryBudget) -> str:
        return await with_retries(self.call, budget=budget, sleep=self.sleep, clock=lambda: self.now)


def transient(retry_after: float | None = None) -> TransientError:
    return TransientError("busy", retry_after=retry_after)


async def test_waits_double_with_jitter_below_the_longest() -> None:
    clock = Clock(*[transient()] * 5)
    assert await clock.run(RetryBudget(attempts=6, seconds=1000, first_wait=1, longest_wait=4)) == "done"
    for wait, most in zip(clock.waits, [1, 2, 4, 4, 4], strict=True):
        assert most / 2 <= wait <= most


async def test_it_waits_as_long_as_the_other_side_asks() -> None:
    clock = Clock(transient(7))
    assert await clock.run(RetryBudget()) == "done"
    assert clock.waits == [7]


async def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    clock = Clock(*[transient(0.25)] * 9)
    with pytest.raises(TransientError) as raised:
        await clock.run(RetryBudget(attempts=3))
    assert clock.calls == 3
    assert raised.value.retry_after == 0.25


async def test_a_wait_beyond_the_time_budget_is_not_begun() -> None:
    clock = Clock(transient(3600))
    with pytest.raises(TransientError):
        await clock.run(RetryBudget(seconds=60))
    assert clock.waits == []


async def test_other_errors_are_not_retried() -> None:
    clock = Clock(ConfigError("wrong key"))
    with pytest.raises(ConfigError):
        await clock.run(RetryBudget())
    assert clock.calls == 1


async def test_a_budget_without_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 attempt"):
        await Clock().run(RetryBudget(attempts=0))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("3", 3),
        ("0.25", 0.25),
        ("-5", 0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Mon, 30 Nov 2026 12:00:10 GMT", 10),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_as_a_number_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, now=datetime(2026, 11, 30, 12, tzinfo=UTC)) == seconds
