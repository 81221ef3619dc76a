"""A directory that can be slow, wrong or down in; what its cache still answers, and what it asks, out."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping

import pytest
from typing_extensions import override

from ragstore.access.directory import CachedDirectory
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError, ConfigError, TransientError
from ragstore.models import AttributeScalar

ALICE = "0a1b2c3d-0000-4000-8000-00000000000f"
BOB = "0a1b2c3d-0000-4000-8000-00000000000b"


class Directory(GroupResolver):
    """Answers when it is let, with an error where it is given one."""

    def __init__(self) -> None:
        self.known = frozenset({"staff"})
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False

    @override
    async def groups(self, object_id: str) -> frozenset[str]:
        self.asked.append(object_id)
        found, error = self.known, self.error
        await self.open.wait()
        if error is not None:
            raise error
        return found

    @override
    async def attributes(self, object_id: str) -> Mapping[str, tuple[AttributeScalar, ...]]:
        return {"asked": (len(await self.groups(object_id)),)}

    @override
    async def close(self) -> None:
        self.closed = True


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def directory() -> Directory:
    return Directory()


@pytest.fixture
def cached(directory: Directory, clock: Clock) -> CachedDirectory:
    return CachedDirectory(directory, seconds=300, most=2, clock=clock)


async def test_an_answer_is_kept_until_it_expires(cached: CachedDirectory, directory: Directory, clock: Clock) -> None:
    assert await cached.groups(ALICE) == {"staff"}
    directory.known = frozenset()
    clock.now = 299.9
    assert await cached.groups(ALICE.upper()) == {"staff"}
    clock.now = 300
    assert await cached.groups(ALICE) == frozenset()
    assert directory.asked == [ALICE, ALICE]


async def test_groups_and_attributes_are_kept_apart(cached: CachedDirectory, directory: Directory) -> None:
    assert await cached.groups(ALICE) == {"staff"}
    assert await cached.attributes(ALICE) == {"asked": (1,)}
    assert await cached.attributes(ALICE) == {"asked": (1,)}
    assert len(directory.asked) == 2


async def test_the_age_of_an_answer_counts_from_the_question(cached: CachedDirectory, directory: Directory, clock: Clock) -> None:
    directory.open.clear()
    asking = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    directory.known = frozenset()
    clock.now = 301
    directory.open.set()
    assert await asking == {"staff"}
    assert await cached.groups(ALICE) == frozenset()


async def test_an_expired_answer_is_never_given_when_the_directory_fails(
    cached: CachedDirectory, directory: Directory, clock: Clock
) -> None:
    await cached.groups(ALICE)
    clock.now = 300
    for error in (TransientError("throttled"), TimeoutError("slow"), ConnectionError("gone")):
        directory.error = error
        with pytest.raises(AccessError, match="cannot be reached"):
            await cached.groups(ALICE)
    for denied in (AccessError("unknown"), ConfigError("no permission")):
        directory.error = denied
        with pytest.raises(type(denied), match=str(denied)):
            await cached.groups(ALICE)


async def test_a_failure_is_not_kept(cached: CachedDirectory, directory: Directory) -> None:
    directory.error = TransientError("throttled")
    with pytest.raises(AccessError):
        await cached.groups(ALICE)
    directory.error = None
    assert await cached.groups(ALICE) == {"staff"}


async def test_many_who_ask_at_once_share_one_question_and_its_failure(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    directory.error = TransientError("throttled")
    asking = [asyncio.create_task(cached.groups(ALICE)) for _ in range(50)]
    await asyncio.sleep(0.01)
    directory.open.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(error) for error in found} == {AccessError}
    assert directory.asked == [ALICE]


async def test_whoever_goes_away_takes_the_answer_from_nobody(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    first, second = (asyncio.create_task(cached.groups(ALICE)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    directory.open.set()
    assert await second == {"staff"}
    assert first.cancelled()
    assert directory.asked == [ALICE]


async def test_a_failure_that_nobody_waits_for_is_no_warning(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    directory.error = TransientError("throttled")
    asking = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    asking.cancel()
    directory.open.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert asking.cancelled()


async def test_an_answer_under_way_is_not_kept_when_it_was_to_be_forgotten(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    asking = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    cached.forget(ALICE.upper())
    directory.known = frozenset()
    directory.open.set()
    assert await asking == {"staff"}
    assert await cached.groups(ALICE) == frozenset()


async def test_an_answer_to_be_forgotten_does_not_take_the_place_of_a_later_one(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    first = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    cached.forget()
    directory.known = frozenset()
    second = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    directory.open.set()
    assert await first == {"staff"}
    assert await second == frozenset()
    assert await cached.groups(ALICE) == frozenset()


async def test_forgetting_all_asks_again(cached: CachedDirectory, directory: Directory) -> None:
    await cached.groups(ALICE)
    cached.forget()
    await cached.groups(ALICE)
    assert directory.asked == [ALICE, ALICE]


async def test_of_too_many_answers_the_one_not_asked_for_longest_goes(cached: CachedDirectory, directory: Directory) -> None:
    for who in (ALICE, BOB, ALICE, "carol", ALICE, BOB):
        await cached.groups(who)
    assert directory.asked == [ALICE, BOB, "carol", BOB]


@pytest.mark.parametrize("wrong", ["", "a b", "../groups", f"{ALICE}/memberOf"])
async def test_nobody_is_asked_about_what_is_no_id(cached: CachedDirectory, directory: Directory, wrong: str) -> None:
    with pytest.raises(AccessError, match="no object id"):
        await cached.groups(wrong)
    assert directory.asked == []


async def test_closing_ends_what_is_under_way_and_closes_the_directory(cached: CachedDirectory, directory: Directory) -> None:
    directory.open.clear()
    asking = asyncio.create_task(cached.groups(ALICE))
    await asyncio.sleep(0.01)
    await cached.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert directory.closed


@pytest.mark.parametrize(("seconds", "most"), [(-1, 1), (float("nan"), 1), (float("inf"), 1), (90_000, 1), (300, 0)])
async def test_limits_that_make_no_sense_are_an_error(directory: Directory, seconds: float, most: int) -> None:
    with pytest.raises(ConfigError):
        CachedDirectory(directory, seconds=seconds, most=most)
