from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from ragstore.contracts import Feed
from ragstore.errors import ConfigError, FeedGapError
from ragstore.models import EventBatch
from ragstore.plugins import build
from ragstore_folder import FolderSource, WatchFeed
from ragstore_folder.polling import Polling
from tests.support.watching import (
    DEADLINE,
    Said,
    Start,
    atomic,
    feed_of,
    gap,
    make_folder,
    move,
    said,
    said_once,
    write,
    write_odd,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


# -- tags


async def test_a_change_of_the_tags_is_told_for_the_paths_whose_tags_changed(root: Path, start: Start) -> None:
    tags = write(root.parent / "tags.json", json.dumps({"a.md": {"k": "1"}, "b.md": {"k": "1"}, "c.md": {"k": "1"}}))
    for name in ("a.md", "b.md", "c.md", "d.md"):
        write(root / name)
    feed = await start(tags="tags.json")
    tags.write_text(json.dumps({"a.md": {"k": "1"}, "b.md": {"k": "2"}, "d.md": {"k": "1"}, "e.txt": {}}))
    changed = {("attributes", "b.md"), ("attributes", "c.md"), ("attributes", "d.md")}
    assert await said(feed, *changed) == changed
    atomic(tags, json.dumps({"a.md": {"k": "1"}}))
    assert await said(feed, ("attributes", "b.md")) == {("attributes", "b.md"), ("attributes", "d.md")}


async def test_the_file_of_tags_in_the_folder_is_no_blob(root: Path, start: Start) -> None:
    tags = write(root / "tags.json", "{}")
    write(root / "a.md")
    feed = await start(tags="docs/tags.json", exclude=["*.tmp"])
    atomic(tags, json.dumps({"a.md": {"k": "1"}, "x/../a.md": {}}))
    assert await said(feed, ("attributes", "a.md")) == {("attributes", "a.md")}


async def test_malformed_tags_are_an_error_and_then_nothing_is_lost(root: Path, start: Start) -> None:
    tags = write(root.parent / "tags.json", "{}")
    feed = await start(tags="tags.json")
    tags.write_text("{")
    write(root / "a.md")
    with pytest.raises(ConfigError, match="line 1"):
        await said_once(feed)
    tags.write_text('{"a.md": {"k": "1"}}')
    await said(feed, ("attributes", "a.md"), ("content", "a.md"))


# -- what was not settled


async def batch_of(feed: WatchFeed) -> EventBatch:
    """The first batch, after which the reader breaks off."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        async with aclosing(feed.read(None)) as read:
            async for batch in read:
                return batch
    raise AssertionError("no batch came")


async def test_what_was_not_settled_comes_again_when_the_reader_broke_off(root: Path, start: Start) -> None:
    feed = await start()
    write(root / "a.md")
    first = await batch_of(feed)
    again = await batch_of(feed)
    assert again == first
    await feed.settle(again)
    assert await said_once(feed) == set()


async def test_what_is_still_being_applied_does_not_come_again_at_once(root: Path, start: Start) -> None:
    feed = await start()
    write(root / "a.md")
    batches: list[EventBatch] = []
    while not batches:
        batches = [batch async for batch in feed.read(None)]
    assert await said_once(feed) == set()


async def test_a_cancelled_read_loses_nothing(root: Path, start: Start) -> None:
    feed = await start(debounce_seconds=0.01)
    end = time.monotonic() + DEADLINE
    names = {f"{number}.md" for number in range(20)}
    for name in names:
        write(root / name)
        reading = asyncio.ensure_future(said_without_settling(feed))
        await asyncio.sleep(0.03)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    heard: set[str] = set()
    while not heard >= names:
        assert time.monotonic() < end
        heard |= {path for _, path in await said_once(feed)}


async def said_without_settling(feed: WatchFeed) -> None:
    async with aclosing(feed.read(None)) as read:
        async for _batch in read:
            await asyncio.sleep(DEADLINE)


# -- gaps


async def test_a_read_without_a_head_is_a_gap_and_begins_to_watch(root: Path) -> None:
    feed = feed_of(root)
    with pytest.raises(FeedGapError, match="ragstore index"):
        await said_once(feed)
    write(root / "a.md")
    await said(feed, ("content", "a.md"))
    await feed.close()


@pytest.mark.parametrize("poll", [False, True])
async def test_a_root_that_is_replaced_is_a_gap_and_never_a_deletion(root: Path, start: Start, *, poll: bool) -> None:
    write(root / "a.md")
    feed = await start(poll=poll)
    move(root, root.parent / "away")
    make_folder(root)
    await gap(feed, "mount it again")
    await feed.head()
    write(root / "b.md")
    await said(feed, ("content", "b.md"))


async def test_a_root_that_is_gone_is_a_gap_and_then_an_error_until_it_is_back(root: Path, start: Start) -> None:
    feed = await start()
    move(root, root.parent / "away")
    await gap(feed, "mount it again")
    with pytest.raises(ConfigError, match="does not exist"):
        await feed.head()
    (root.parent / "away").rename(root)
    await feed.head()
    write(root / "a.md")
    await said(feed, ("content", "a.md"))


async def test_a_flood_that_the_kernels_queue_may_not_hold_is_a_gap(root: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore_folder.notices._flood", lambda: 50)
    feed = await start(debounce_seconds=1.0)
    for number in range(500):
        (root / f"{number}.md").touch()
    await gap(feed, "run over")
    await feed.head()
    write(root / "a.md")
    await said(feed, ("content", "a.md"))


async def test_changes_that_nobody_reads_do_not_fill_the_memory(root: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore_folder.notices.HELD", 20)
    feed = await start()
    for number in range(60):
        (root / f"{number}.md").touch()
    await gap(feed, "waited to be read")


async def test_a_name_that_is_not_unicode_ends_in_polling(root: Path, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    feed = await start()
    write_odd(root)
    await gap(feed, "decode")
    assert "folder.polling" in caplog.text
    await feed.head()
    write(root / "a.md")
    await said(feed, ("content", "a.md"))


async def test_a_folder_whose_name_is_not_unicode_is_polled_from_the_start(root: Path, start: Start) -> None:
    make_folder(Path(os.fsdecode(os.fsencode(root) + b"/b\xff")))
    feed = await start()
    write(root / "a.md")
    await said(feed, ("content", "a.md"))


# -- polling


async def test_polling_tells_what_came_changed_and_went(root: Path) -> None:
    file = write(root / "sub" / "a.md")
    (root / "link.md").symlink_to("sub/a.md")
    write(root / "old.md")
    polling = Polling(FolderSource(path="docs", base=root.parent).tree, pause=0)
    end = time.monotonic() + DEADLINE
    while any(seen is None for seen in polling._known.values()):
        assert time.monotonic() < end
        polling.look()
    file.write_text("yy")
    (root / "old.md").unlink()
    write(root / "new.md")
    found: Said = set()
    while not found:
        assert time.monotonic() < end
        found = {(finding.hint, finding.path) for finding in polling.look()}
    assert found == {("content", "sub/a.md"), ("content", "link.md"), ("content", "new.md"), ("gone", "old.md")}


# -- options


def test_the_feed_is_registered_and_its_options_are_checked(root: Path) -> None:
    source = FolderSource(path="docs", base=root.parent)
    feed: Feed = build("feeds", "watch", {"poll": True}, base=root.parent, source=source, source_options={"path": "docs"})
    assert feed.name == "watch local/docs"
    with pytest.raises(ConfigError, match="debounce_seconds"):
        build("feeds", "watch", {"debounce_seconds": 0}, base=root.parent, source=source, source_options={"path": "docs"})


def test_the_library_is_imported_only_when_the_feed_is_used() -> None:
    code = "import sys, ragstore_folder; print('watchfiles' in sys.modules); ragstore_folder.WatchFeed; print('watchfiles' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


async def test_a_folder_that_is_missing_is_an_error(root: Path) -> None:
    move(root, root.parent / "away")
    with pytest.raises(ConfigError, match="does not exist"):
        await feed_of(root).head()
