from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ragstore.errors import PoisonError
from ragstore.spool import SpoolFile
from ragstore.testing.sources import files_in, listed
from ragstore_folder import FolderSource
from ragstore_folder.reading import read_into


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def source_of(root: Path, *, prefix: str = "", exclude: tuple[str, ...] = (), tags: str | None = None) -> FolderSource:
    return FolderSource(path=root.name, base=root.parent, prefix=prefix, exclude=exclude, tags=tags)


async def paths(source: FolderSource) -> list[str]:
    """What is listed; each must be found by `state` as well, in the same state."""
    found = await listed(source)
    for path, state in found.items():
        assert await source.state(path) == state
    return sorted(found)


def write(file: Path, content: str = "x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")
    return file


# -- what belongs to the folder


async def test_hidden_state_is_never_indexed(root: Path) -> None:
    for name in (".git/config", ".ragstore/ledger.db", "sub/.git/HEAD", "ragstore.toml", "sub/ragstore.toml", ".gitignore", "a.md"):
        write(root / name)
    source = source_of(root)
    assert await paths(source) == [".gitignore", "a.md", "sub/ragstore.toml"]
    for name in (".git/config", "sub/.git/HEAD", "ragstore.toml"):
        assert await source.state(name) is None


async def test_the_file_of_tags_is_not_indexed_where_it_lies_in_the_folder(root: Path) -> None:
    write(root / "a.md")
    write(root / "tags.json", '{"a.md": {"k": "v"}}')
    source = source_of(root, tags="docs/tags.json")
    assert await paths(source) == ["a.md"]
    assert await source.state("tags.json") is None


@pytest.mark.parametrize("path", ["../outside.md", "sub/../a.md", "./a.md", "sub//b.md", "/a.md", "a.md/", "", "a\0b", "\udcff", "n" * 300])
async def test_a_path_that_the_listing_cannot_give_is_none(root: Path, spool: Path, path: str) -> None:
    write(root / "a.md")
    write(root / "sub" / "b.md")
    write(root.parent / "outside.md")
    source = source_of(root)
    assert await source.state(path) is None
    assert await source.fetch(path, spool) is None


async def test_a_root_that_is_a_link_is_read_and_keeps_its_name(root: Path) -> None:
    write(root / "a.md")
    link = root.parent / "current"
    link.symlink_to(root)
    source = source_of(link)
    assert source.container == "current"
    assert await paths(source) == ["a.md"]


async def test_a_root_link_that_is_turned_shows_the_new_folder(root: Path) -> None:
    write(root / "old.md")
    other = root.parent / "v2"
    write(other / "new.md")
    write(other / "ragstore.toml")
    link = root.parent / "current"
    link.symlink_to(root)
    source = source_of(link)
    assert await paths(source) == ["old.md"]
    link.unlink()
    link.symlink_to(other)
    assert await paths(source) == ["new.md"]


async def test_links_inside_the_root_are_followed_and_those_that_leave_it_are_skipped_with_a_warning(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = write(root.parent / "outside" / "secret.md").parent
    write(root / "v2" / "a.md")
    (root / "alias.md").symlink_to("v2/a.md")
    (root / "latest").symlink_to("v2")
    (root / "leak.md").symlink_to(outside / "secret.md")
    (root / "leak").symlink_to(outside)
    (root / "nowhere").symlink_to("missing")
    source = source_of(root)
    assert await paths(source) == ["alias.md", "latest/a.md", "v2/a.md"]
    assert "3 links" in caplog.text
    assert "leak" in caplog.text
    for path in ("leak.md", "leak/secret.md", "nowhere"):
        assert await source.state(path) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can give files away")
async def test_a_link_shows_what_its_owner_owns_and_nothing_else(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With rules over paths, a link could put a file that its owner may not read under a path that it may."""
    eve, ann = 1234, 1235
    for name, owner in (("secret/pay.md", ann), ("secret/eve.md", eve), ("secret/deep/plan.md", ann), ("secret/deep/own.md", eve)):
        os.chown(write(root / name), owner, owner)
    (root / "public").mkdir()
    links = {
        "pay.md": "../secret/pay.md",
        "own.md": "../secret/eve.md",
        "all": "../secret",
        "by-admin.md": "../secret/pay.md",
        "twice": "all",
    }
    for name, target in links.items():
        (root / "public" / name).symlink_to(target)
        if name not in {"by-admin.md", "twice"}:
            os.lchown(root / "public" / name, eve, eve)
    source = source_of(root)
    assert [path for path in await paths(source) if path.startswith("public/")] == [
        "public/all/deep/own.md",
        "public/all/eve.md",
        "public/by-admin.md",
        "public/own.md",
    ]
    assert "another owner" in caplog.text
    for path in ("public/pay.md", "public/all/pay.md", "public/all/deep/plan.md", "public/twice/pay.md"):
        assert await source.state(path) is None


async def test_a_prefix_may_lead_through_a_link_and_end_within_a_name(root: Path) -> None:
    write(root / "v2" / "guide" / "a.md")
    write(root / "v2" / "guests.md")
    (root / "latest").symlink_to("v2")
    assert await paths(source_of(root, prefix="latest/gui")) == ["latest/guide/a.md"]
    assert await paths(source_of(root, prefix="latest/gu")) == ["latest/guests.md", "latest/guide/a.md"]


async def test_a_folder_beside_the_root_whose_name_begins_alike_is_outside(root: Path) -> None:
    write(root.parent / "docs-private" / "secret.md")
    (root / "leak").symlink_to(root.parent / "docs-private")
    assert await paths(source_of(root)) == []


async def test_loops_of_links_end(root: Path) -> None:
    write(root / "a" / "x.md")
    write(root / "b" / "y.md")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "self").symlink_to(".")
    (root / "a" / "to-b").symlink_to("../b")
    (root / "b" / "to-a").symlink_to("../a")
    (root / "ring").symlink_to("ring")
    assert await paths(source_of(root)) == ["a/to-b/y.md", "a/x.md", "b/to-a/x.md", "b/y.md"]


async def test_a_link_into_hidden_state_is_not_followed(root: Path) -> None:
    write(root / ".git" / "config")
    write(root / "ragstore.toml")
    (root / "git").symlink_to(".git")
    (root / "config").symlink_to(".git/config")
    (root / "settings").symlink_to("ragstore.toml")
    assert await paths(source_of(root)) == []


async def test_special_files_are_skipped(root: Path, spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(root / "pipe")
    (root / "device").symlink_to("/dev/zero")
    write(root / "a.md")
    source = source_of(root)
    assert await paths(source) == ["a.md"]
    assert "1 special file" in caplog.text
    assert await source.fetch("pipe", spool) is None


async def test_an_excluded_folder_is_not_looked_into(root: Path) -> None:
    write(root / "a.md")
    loop = root / "node_modules"
    loop.mkdir()
    os.mkfifo(loop / "pipe")  # would be counted and reported
    assert await paths(source_of(root, exclude=("**/node_modules/**",))) == ["a.md"]


async def test_a_link_turned_during_a_fetch_never_leads_outside(root: Path, spool: Path) -> None:
    secret = write(root.parent / "secret.md", "secret")
    write(root / "real.md", "public")
    link = root / "link.md"
    link.symlink_to("real.md")
    source = source_of(root)
    found = source._tree.find("link.md")
    assert found is not None
    (root / "real.md").unlink()
    (root / "real.md").symlink_to(secret)
    with SpoolFile(spool) as spooled:
        assert read_into(spooled, found, threading.Event()) is None
    assert await source.fetch("link.md", spool) is None


# -- names that are not Unicode


def write_raw(root: Path, name: bytes) -> None:
    file = os.path.join(os.fsencode(root), name)  # noqa: PTH118 - a name of bytes
    os.makedirs(os.path.dirname(file), exist_ok=True)  # noqa: PTH103, PTH120
    with open(file, "wb") as opened:  # noqa: PTH123
        opened.write(b"x")


async def test_a_name_that_is_not_unicode_is_listed_escaped_and_refused(root: Path, spool: Path) -> None:
    write_raw(root, b"caf\xe9.md")
    write_raw(root, b"dir\xff/a.md")
    source = source_of(root)
    assert await paths(source) == ["caf\\xe9.md", "dir\\xff/a.md"]
    for path in ("caf\\xe9.md", "dir\\xff/a.md"):
        with pytest.raises(PoisonError, match="rename") as caught:
            await source.fetch(path, spool)
        assert caught.value.kind == "name"
    assert files_in(spool) == []


async def test_an_escaped_name_gives_way_to_a_file_of_that_name(root: Path, spool: Path) -> None:
    write_raw(root, b"\xff.md")
    write_raw(root, b"\\xff.md")
    write_raw(root, b"\\xff\xfe")
    write_raw(root, b"\xff\xfe")
    source = source_of(root)
    assert await paths(source) == ["\\xff.md", "\\xff.md~2", "\\xff\\xfe", "\\xff\\xfe~2"]
    assert await source.fetch("\\xff.md", spool) is not None
    with pytest.raises(PoisonError):
        await source.fetch("\\xff.md~2", spool)
