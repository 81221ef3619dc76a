from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.plugins import build
from ragstore.spool import SpoolFile
from ragstore.testing.sources import BlobWriter, OpenSource, SourceOptions, SourceSuite, files_in, listed
from ragstore_folder import FolderSource
from ragstore_folder.reading import read_into


class FolderWriter:
    """Writes files, and the tags beside them."""

    def __init__(self, base: Path) -> None:
        self.root = base / "docs"
        self.root.mkdir()
        self._tag_file = base / "tags.json"
        self._tag_file.write_text("{}", encoding="utf-8")

    async def put(self, path: str, content: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    async def delete(self, path: str) -> None:
        (self.root / path).unlink()

    async def tag(self, path: str, tags: Mapping[str, str]) -> None:
        self._tag_file.write_text(json.dumps({path: dict(tags)}), encoding="utf-8")

    async def annotate(self, path: str, metadata: Mapping[str, str]) -> None:
        raise NotImplementedError("files have no metadata")


class TestFolderSource(SourceSuite):
    has_metadata: ClassVar[bool] = False
    odd_names: ClassVar[tuple[str, ...]] = (*SourceSuite.odd_names, "line\nbreak.md", "control\x01.md", "~", "-rf", "\\xff.md", "CON")

    @pytest.fixture
    @override
    def writer(self, tmp_path: Path) -> BlobWriter:
        return FolderWriter(tmp_path)

    @pytest.fixture
    @override
    def make_source(self, tmp_path: Path) -> OpenSource:
        def make(options: SourceOptions) -> FolderSource:
            return FolderSource(
                path="docs",
                base=tmp_path,
                prefix=options.prefix,
                include=options.include,
                exclude=options.exclude,
                max_bytes=options.max_bytes,
                tags="tags.json",
            )

        return make


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


# -- options


async def test_the_container_is_named_after_the_folder_unless_told(root: Path) -> None:
    assert source_of(root).container == "docs"
    assert FolderSource(path="docs", base=root.parent, container="handbook").container == "handbook"
    assert FolderSource(path=".", base=root).container == "docs"
    assert FolderSource(path="../docs/", base=root).container == "docs"


def test_a_missing_folder_is_no_error_until_it_is_read(tmp_path: Path) -> None:
    FolderSource(path="missing", base=tmp_path)


async def test_a_missing_folder_is_an_error_and_never_empty(tmp_path: Path, spool: Path) -> None:
    source = FolderSource(path="missing", base=tmp_path)
    for attempt in (listed(source), source.state("a"), source.fetch("a", spool)):
        with pytest.raises(ConfigError, match=r"missing.* does not exist"):
            await attempt


async def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "docs")
    with pytest.raises(ConfigError, match="not a folder"):
        await listed(FolderSource(path="docs", base=tmp_path))


def test_options_that_make_no_sense_are_refused(root: Path) -> None:
    for container in ("", "a/b"):
        with pytest.raises(ConfigError, match="container"):
            FolderSource(path="docs", base=root.parent, container=container)
    with pytest.raises(ConfigError, match="'docs/'"):
        FolderSource(path="docs", base=root.parent, prefix="/docs/")
    with pytest.raises(ConfigError, match="max_bytes"):
        FolderSource(path="docs", base=root.parent, max_bytes=0)


def test_the_options_come_from_a_configuration(root: Path) -> None:
    options = {"path": "docs", "include": ["**/*.md"], "exclude": ["drafts/**"], "prefix": "a", "max_bytes": 5, "container": "c"}
    source = build("sources", "folder", options, base=root.parent)
    assert (source.account, source.container, source.max_bytes) == ("local", "c", 5)
    with pytest.raises(ConfigError, match="include"):
        build("sources", "folder", {"path": "docs", "include": "**/*.md"}, base=root.parent)


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


# -- change


async def test_a_write_within_the_same_tick_of_the_clock_is_seen(root: Path, spool: Path) -> None:
    file = root / "a.md"
    source = source_of(root)
    for number in range(20):
        file.write_bytes(b"%03d" % number)
        fetched = await source.fetch("a.md", spool)
        assert fetched is not None
        file.write_bytes(b"%03d" % (number + 500))
        after = await source.state("a.md")
        assert after is not None
        assert after.etag != fetched.state.etag


async def test_a_file_put_in_place_with_old_times_is_seen(root: Path, spool: Path) -> None:
    file = write(root / "a.md", "one")
    source = source_of(root)
    fetched = await source.fetch("a.md", spool)
    assert fetched is not None
    times = file.stat()
    other = write(root.parent / "other.md", "two")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(file)
    after = await source.state("a.md")
    assert after is not None
    assert after.etag != fetched.state.etag


async def test_times_that_no_calendar_holds_do_no_harm(root: Path) -> None:
    file = write(root / "a.md")
    os.utime(file, (2**33, 2**33))
    os.utime(write(root / "b.md"), (-(2**31), -(2**31)))
    found = await listed(source_of(root))
    assert found["b.md"].modified.year == 1901
    assert found["a.md"].modified.year == 2242


async def test_a_file_that_never_rests_is_given_up_for_now(root: Path, spool: Path) -> None:
    file = write(root / "busy.log")
    source = source_of(root)
    done = threading.Event()

    def scribble() -> None:
        while not done.is_set():
            file.write_text("x", encoding="utf-8")
            done.wait(0.002)

    scribbler = threading.Thread(target=scribble)
    scribbler.start()
    try:
        with pytest.raises(TransientError, match="changed"):
            await source.fetch("busy.log", spool)
    finally:
        done.set()
        scribbler.join()
    assert files_in(spool) == []


# -- tags


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a.md": {"k": "v"},\n oops}', "line 2"),
        ('{"a.md":\n {"k": 1}}', "line 2.*string"),
        ('{\n"a.md": ["k"]}', "line 2.*object"),
        ('[\n"a.md"]', "line 1.*object"),
        ('{"a.md": {"k": "v"},\n"a.md": {}}', "'a.md' stands twice"),
        ("", "line 1"),
    ],
)
async def test_malformed_tags_are_an_error_that_names_the_line(root: Path, text: str, complaint: str) -> None:
    write(root / "a.md")
    write(root.parent / "tags.json", text)
    source = source_of(root, tags="tags.json")
    with pytest.raises(ConfigError, match=f"tags.json, .*{complaint}"):
        await listed(source)
    with pytest.raises(ConfigError):
        await source.state("a.md")


async def test_missing_tags_are_an_error_and_not_no_tags(root: Path, spool: Path) -> None:
    write(root / "a.md")
    source = source_of(root, tags="tags.json")
    with pytest.raises(ConfigError, match="tags"):
        await source.fetch("a.md", spool)
    assert files_in(spool) == []


async def test_tags_that_change_while_a_listing_runs_show_in_the_next_state(root: Path) -> None:
    write(root / "a.md")
    file = write(root.parent / "tags.json", '{"a.md": {"k": "1"}}')
    source = source_of(root, tags="tags.json")
    for value in ("1", "2", "3", "4"):
        file.write_text(json.dumps({"a.md": {"k": value}}), encoding="utf-8")
        state = await source.state("a.md")
        assert state is not None
        assert state.access.tags == {"k": value}


# -- rights


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder that another user may reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        folder = Path(name) / "docs"
        folder.mkdir()
        yield folder


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may read everything; for a moment this process is somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o300])
async def test_a_folder_that_may_not_be_read_ends_the_listing_with_an_error(open_root: Path, mode: int) -> None:
    write(open_root / "a.md")
    closed = write(open_root / "closed" / "b.md").parent
    closed.chmod(mode)
    source = source_of(open_root)
    with ordinary_user():
        with pytest.raises(ConfigError, match=r"closed.*permission"):
            await listed(source)
        if mode != 0o300:
            with pytest.raises(ConfigError, match="permission"):
                await source.state("closed/b.md")
        assert list(await listed(source_of(open_root, exclude=("closed/**",)))) == ["a.md"]
    closed.chmod(0o700)


async def test_a_file_that_may_not_be_read_is_listed_and_tried_again_later(open_root: Path) -> None:
    file = write(open_root / "a.md")
    file.chmod(0o000)
    spool = open_root.parent / "spool"
    spool.mkdir(mode=0o777)
    spool.chmod(0o777)
    source = source_of(open_root)
    with ordinary_user():
        assert list(await listed(source)) == ["a.md"]
        with pytest.raises(TransientError, match="permission"):
            await source.fetch("a.md", spool)
    assert files_in(spool) == []


async def test_a_spool_that_may_not_be_written_is_an_error_that_says_so(root: Path) -> None:
    write(root / "a.md")
    with pytest.raises(TransientError, match="spool"):
        await source_of(root).fetch("a.md", root.parent / "missing")


@pytest.mark.long
async def test_fifty_thousand_files_are_listed_in_a_second_or_two(root: Path) -> None:
    for number in range(100):
        folder = root / f"s{number}"
        folder.mkdir()
        for file in range(500):
            (folder / f"f{file}.md").touch()
    source = source_of(root, exclude=("**/node_modules/**",))
    started = time.perf_counter()
    assert len(await listed(source)) == 50_000
    assert time.perf_counter() - started < 4.0  # 14 µs a file on an idle machine
