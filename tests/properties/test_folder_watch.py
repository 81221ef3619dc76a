"""Any changes of a folder in; an index that believes nothing but its feed, and whether it ends up equal to a listing, out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ragstore.errors import FeedGapError
from ragstore.testing.sources import listed
from ragstore_folder import FolderSource, WatchFeed

_NAMES = ["a", "b", "ü", "c.md", "d.md"]
_EXCLUDE = ["**/b/**", "**/*.tmp"]
_OPTIONS = {"path": "docs", "exclude": _EXCLUDE}


class Copy:
    """What an index would hold: the version of each path, as of the last event that named it."""

    def __init__(self, base: Path) -> None:
        self.source = FolderSource(path="docs", base=base, exclude=_EXCLUDE)
        self.feed = WatchFeed(base=base, source=self.source, source_options=_OPTIONS, debounce_seconds=0.02)
        self.held: dict[str, str] = {}
        self.gaps = 0

    async def start(self) -> None:
        await self.feed.head()
        self.held = await self.present()

    async def present(self) -> dict[str, str]:
        return {path: state.etag for path, state in (await listed(self.source)).items()}

    async def follow(self) -> bool:
        """Apply what one read gives; whether it gave anything."""
        found = False
        try:
            async for batch in self.feed.read(None):
                for event in batch.events:
                    found = True
                    path = event.blob.path
                    if event.hint == "folder":
                        self.held = {known: etag for known, etag in self.held.items() if not known.startswith(path)}
                        async for state in self.source.list(below=path):
                            self.held[state.id.path] = state.etag
                        continue
                    state_now = await self.source.state(path)
                    self.held.pop(path, None)
                    if state_now is not None:
                        self.held[path] = state_now.etag
                await self.feed.settle(batch)
        except FeedGapError:
            self.gaps += 1
            await self.start()
        return found


def _place(root: Path, rng: random.Random) -> Path:
    return root.joinpath(*rng.choices(_NAMES, k=rng.randint(1, 3)))


def _write(root: Path, rng: random.Random) -> None:
    place = _place(root, rng)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(str(rng.random()) * rng.randint(1, 3))


def _replace(root: Path, rng: random.Random) -> None:
    place = _place(root, rng)
    other = place.with_name("x.tmp")
    other.write_text(str(rng.random()))
    other.replace(place)


def _move(root: Path, rng: random.Random) -> None:
    _place(root, rng).rename(_place(root, rng))


def _move_out_and_in(root: Path, rng: random.Random) -> None:
    outside = root.parent / f"outside{rng.randint(0, 2)}"
    place = _place(root, rng)
    if outside.exists():
        outside.rename(place)
    else:
        place.rename(outside)


def _delete(root: Path, rng: random.Random) -> None:
    place = _place(root, rng)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()


def _link(root: Path, rng: random.Random) -> None:
    place, target = _place(root, rng), _place(root, rng)
    place.symlink_to(os.path.relpath(target, place.parent))


_ACTIONS: list[Callable[[Path, random.Random], None]] = [_write, _write, _write, _replace, _move, _move_out_and_in, _delete, _link]


def _change(root: Path, rng: random.Random) -> None:
    for _number in range(rng.randint(1, 40)):
        with contextlib.suppress(OSError):
            rng.choice(_ACTIONS)(root, rng)


_ROUNDS = int(os.environ.get("RAGSTORE_WATCH_ROUNDS", "12"))


async def test_whoever_follows_the_feed_has_what_a_listing_gives() -> None:
    # All at once: most of the time passes in waiting.
    await asyncio.gather(*(_converges(seed) for seed in range(_ROUNDS)))


async def _converges(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        root = base / "docs"
        root.mkdir()
        _change(root, rng)
        copy = Copy(base)
        await copy.start()
        try:
            for _round in range(3):
                _change(root, rng)
                await copy.follow()
            end = time.monotonic() + 40
            while await copy.follow() or copy.held != await copy.present():
                assert time.monotonic() < end, f"seed {seed}: {_differences(copy.held, await copy.present())}"
        finally:
            await copy.feed.close()


def _differences(held: dict[str, str], present: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {path: (held.get(path), present.get(path)) for path in held.keys() | present.keys() if held.get(path) != present.get(path)}
