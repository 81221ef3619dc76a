from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ragstore.models import EventBatch
from tests.support.watching import (
    Start,
    atomic,
    gap,
    names_in,
    said,
    said_once,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


# -- files


async def test_a_file_that_is_written_rewritten_and_deleted_is_told_each_time(root: Path, start: Start) -> None:
    feed = await start()
    file = write(root / "sub" / "a.md")
    assert await said(feed, ("folder", "sub/")) == {("folder", "sub/")}
    file.write_text("y")
    await said(feed, ("content", "sub/a.md"))
    file.unlink()
    await said(feed, ("gone", "sub/a.md"))


async def test_events_name_the_blob_of_the_source_and_the_moment(root: Path, start: Start) -> None:
    feed = await start(container="handbook")
    before = time.time()
    write(root / "a.md")
    batches: list[EventBatch] = []
    while not batches:
        batches = [batch async for batch in feed.read(None)]
    (event,) = batches[0].events
    assert (event.blob.account, event.blob.container, event.blob.path) == ("local", "handbook", "a.md")
    assert before - 1 <= event.moment.timestamp() <= time.time()
    assert batches[0].cursor is None
    assert feed.name == "watch local/handbook"


async def test_what_happens_after_the_head_and_before_the_first_read_is_told(root: Path, start: Start) -> None:
    feed = await start()
    write(root / "a.md")
    await asyncio.sleep(0)
    assert ("content", "a.md") in await said(feed, ("content", "a.md"))


async def test_a_read_ends_after_about_a_second_without_events(start: Start) -> None:
    feed = await start()
    began = time.monotonic()
    assert await said_once(feed) == set()
    assert 0.9 < time.monotonic() - began < 5
    assert feed.poll_seconds == 0


async def test_many_rewrites_in_a_moment_are_few_events(root: Path, start: Start) -> None:
    feed = await start(debounce_seconds=1.0)
    file = write(root / "a.md")
    for number in range(200):
        file.write_text(str(number))
    events = []
    async for batch in feed.read(None):
        events += batch.events
    assert {event.blob.path for event in events} == {"a.md"}
    assert len(events) <= 5


@pytest.mark.parametrize(
    "name", ["grüße.md", "résumé.md", "re\u0301sume\u0301.md", "日本/語.md", "a b'\"%41\\n.md", "line\nbreak.md", "🙂.md"]
)
async def test_names_are_told_verbatim(root: Path, start: Start, name: str) -> None:
    file = write(root / name)
    feed = await start()
    file.write_text("y")
    await said(feed, ("content", name))


async def test_what_the_source_leaves_out_is_not_told(root: Path, start: Start) -> None:
    write(root / "kept" / "old.md")
    feed = await start(prefix="kept/", include=["**/*.md"], exclude=["kept/drafts/**"])
    for name in ("kept/a.txt", "kept/drafts/a.md", "other/a.md", "a.md", "kept/.git/a.md", ".ragstore/a.md", "ragstore.toml"):
        write(root / name)
    write(root / "kept" / "a.md")
    assert await said(feed, ("content", "kept/a.md")) == {("content", "kept/a.md")}


async def test_a_pipe_is_not_told_as_content(root: Path, start: Start) -> None:
    feed = await start()
    os.mkfifo(root / "pipe")
    write(root / "a.md")
    assert ("content", "pipe") not in await said(feed, ("content", "a.md"))


# -- how editors save


def vim(file: Path, text: str) -> None:
    """Writes a probe, a swap file and a backup, renames the old file away, and writes a new one (`backupcopy=no`)."""
    folder = file.parent
    swap = write(folder / f".{file.name}.swp")
    (folder / "4913").touch()
    (folder / "4913").unlink()
    file.rename(folder / f"{file.name}~")
    file.write_text(text)
    (folder / f"{file.name}~").unlink()
    swap.unlink()


def emacs(file: Path, text: str) -> None:
    auto = write(file.with_name(f"#{file.name}#"), text)
    lock = file.with_name(f".#{file.name}")
    lock.symlink_to("me@here.1:2")
    file.replace(file.with_name(f"{file.name}~"))
    file.write_text(text)
    auto.unlink()
    lock.unlink()


@pytest.mark.parametrize("save", [vim, atomic, emacs])
async def test_saving_with_an_editor_is_one_content_of_the_file(root: Path, start: Start, save: Callable[[Path, str], None]) -> None:
    file = write(root / "a.md")
    feed = await start(debounce_seconds=0.5)
    save(file, "new")
    found = await said(feed, ("content", "a.md"))
    left = names_in(root)
    assert {path for hint, path in found if hint == "content"} <= left
    assert ("gone", "a.md") not in found


# -- folders


async def test_a_folder_that_is_moved_in_is_told_as_a_whole_and_followed(root: Path, start: Start) -> None:
    outside = root.parent / "outside"
    write(outside / "deep" / "a.md")
    feed = await start()
    outside.rename(root / "in")
    assert await said(feed, ("folder", "in/")) == {("folder", "in/")}
    write(root / "in" / "deep" / "b.md")
    await said(feed, ("content", "in/deep/b.md"))


async def test_a_folder_that_is_moved_out_is_told_and_followed_no_longer(root: Path, start: Start) -> None:
    write(root / "out" / "deep" / "a.md")
    feed = await start()
    (root / "out").rename(root.parent / "outside")
    assert await said(feed, ("folder", "out/")) == {("folder", "out/")}
    write(root.parent / "outside" / "deep" / "b.md")
    write(root / "a.md")
    assert await said(feed, ("content", "a.md")) == {("content", "a.md")}


async def test_a_folder_that_is_renamed_is_told_under_both_names(root: Path, start: Start) -> None:
    write(root / "old" / "deep" / "a.md")
    feed = await start()
    (root / "old").rename(root / "new")
    assert await said(feed, ("folder", "old/"), ("folder", "new/")) == {("folder", "old/"), ("folder", "new/")}
    (root / "new" / "deep").rename(root / "new" / "deeper")
    await said(feed, ("folder", "new/deep/"), ("folder", "new/deeper/"))
    write(root / "new" / "deeper" / "a.md", "y")
    await said(feed, ("content", "new/deeper/a.md"))


async def test_a_folder_that_is_deleted_is_told_as_a_whole(root: Path, start: Start) -> None:
    write(root / "old" / "deep" / "a.md")
    feed = await start(debounce_seconds=0.5)
    (root / "old" / "deep" / "a.md").unlink()
    (root / "old" / "deep").rmdir()
    (root / "old").rmdir()
    await said(feed, ("folder", "old/"))


async def test_a_folder_in_place_of_another_is_told(root: Path, start: Start) -> None:
    write(root / "now" / "a.md")
    write(root.parent / "next" / "b.md")
    feed = await start(debounce_seconds=0.5)
    (root / "now").rename(root.parent / "before")
    (root.parent / "next").rename(root / "now")
    await said(feed, ("folder", "now/"))
    write(root / "now" / "c.md")
    await said(feed, ("content", "now/c.md"))


async def test_a_folder_in_place_of_a_file_and_the_other_way_round(root: Path, start: Start) -> None:
    write(root / "a")
    write(root / "b" / "x.md")
    feed = await start(debounce_seconds=0.5)
    (root / "a").unlink()
    write(root / "a" / "x.md")
    (root / "b").rename(root.parent / "b")
    write(root / "b")
    await said(feed, ("gone", "a"), ("folder", "a/"), ("folder", "b/"), ("content", "b"))


async def test_files_in_a_folder_that_is_filled_as_it_is_made_are_covered(root: Path, start: Start) -> None:
    feed = await start(debounce_seconds=0.02)
    for number in range(30):
        write(root / f"d{number}" / "deep" / "a.md")
    await said(feed, *[("folder", f"d{number}/") for number in range(30)])


async def test_an_empty_folder_is_told_only_once_something_lies_in_it(root: Path, start: Start) -> None:
    feed = await start()
    (root / "new").mkdir()
    assert await said_once(feed) == set()
    write(root / "new" / "a.md")
    await said(feed, ("content", "new/a.md"))


# -- links


async def test_a_change_of_a_links_target_is_told_under_both_paths(root: Path, start: Start) -> None:
    target = write(root / "real" / "t.md")
    (root / "link.md").symlink_to("real/t.md")
    feed = await start()
    target.write_text("y")
    await said(feed, ("content", "real/t.md"), ("content", "link.md"))
    target.unlink()
    await said(feed, ("gone", "real/t.md"), ("gone", "link.md"))
    target.write_text("z")
    await said(feed, ("content", "real/t.md"), ("content", "link.md"))


async def test_a_change_behind_a_link_to_a_folder_is_told_under_both_paths(root: Path, start: Start) -> None:
    write(root / "real" / "deep" / "t.md")
    (root / "real" / "inner.md").symlink_to("deep/t.md")
    (root / "alias").symlink_to("real")
    feed = await start()
    write(root / "alias" / "deep" / "t.md", "y")
    await said(feed, *[("content", path) for path in ("real/deep/t.md", "alias/deep/t.md", "real/inner.md", "alias/inner.md")])
    (root / "real" / "deep").rename(root / "real" / "d")
    await said(feed, *[("folder", path) for path in ("real/deep/", "real/d/", "alias/deep/", "alias/d/")], ("gone", "alias/inner.md"))


async def test_a_link_that_comes_turns_and_goes_is_told(root: Path, start: Start) -> None:
    write(root / "one.md")
    write(root / "two.md")
    write(root.parent / "outside.md")
    feed = await start()
    link = root / "link.md"
    link.symlink_to("one.md")
    await said(feed, ("content", "link.md"))
    (root / "other").symlink_to("two.md")
    (root / "other").replace(link)
    await said(feed, ("content", "link.md"))
    (root / "other").symlink_to(root.parent / "outside.md")
    (root / "other").replace(link)
    await said(feed, ("gone", "link.md"))


async def test_a_link_whose_folder_was_put_in_place_later_is_told(root: Path, start: Start) -> None:
    write(root.parent / "real" / "t.md")
    (root / "link.md").symlink_to("real/t.md")
    feed = await start()
    (root.parent / "real").rename(root / "real")
    await said(feed, ("folder", "real/"), ("content", "link.md"))
    write(root / "real" / "t.md", "y")
    await said(feed, ("content", "link.md"))


async def test_a_link_to_a_folder_that_goes_is_a_gap_because_its_target_is_watched_no_longer(root: Path, start: Start) -> None:
    target = write(root / "real" / "t.md")
    (root / "alias").symlink_to("real")
    feed = await start()
    (root / "alias").unlink()
    await gap(feed, "ragstore index")
    await feed.head()
    target.write_text("y")
    await said(feed, ("content", "real/t.md"))


@pytest.mark.parametrize("target", [".", ".."])
@pytest.mark.parametrize("act", ["remove the link", "move the folder that it is in"])
async def test_a_link_to_a_folder_above_that_goes_is_a_gap_because_the_root_is_watched_no_longer(
    root: Path, start: Start, target: str, act: str
) -> None:
    write(root / "in" / "t.md")
    feed = await start()
    link = root / "in" / "up"
    link.symlink_to(root / target)
    await said(feed, ("gone", "in/up"))
    if act == "remove the link":
        link.unlink()
    else:
        (root / "in").rename(root / "moved")
    await gap(feed, "ragstore index")
    await feed.head()
    write(root / "r.md")
    await said(feed, ("content", "r.md"))


async def test_changes_that_are_noticed_through_a_link_to_the_root_are_told_under_their_own_paths(root: Path, start: Start) -> None:
    write(root / "in" / "t.md")
    feed = await start()
    (root / "in" / "up").symlink_to("..")
    await said(feed, ("gone", "in/up"))
    write(root / "r.md")
    write(root / "in" / "t.md", "y")
    await said(feed, ("content", "r.md"), ("content", "in/t.md"))
