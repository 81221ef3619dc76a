from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from ragstore.errors import ConfigError, TransientError
from ragstore.plugins import build
from ragstore.spool import HELD
from ragstore.testing.sources import BlobWriter, OpenSource, SourceOptions, SourceSuite, files_in, listed
from ragstore_folder import FolderSource
from ragstore_folder.tags import TagFile, Tags
from ragstore_folder.tree import FoundFile


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


def source_of(root: Path, *, exclude: tuple[str, ...] = (), tags: str | None = None) -> FolderSource:
    return FolderSource(path=root.name, base=root.parent, exclude=exclude, tags=tags)


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


async def test_a_file_that_never_rests_is_given_up_for_now(root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(root / "busy.log")
    source = source_of(root)
    find = source._tree.find

    def find_and_scribble(path: str) -> FoundFile | None:
        found = find(path)
        with file.open("a", encoding="utf-8") as log:  # longer each time, so that no tick of the clock can hide it
            log.write("x")
        return found

    monkeypatch.setattr(source._tree, "find", find_and_scribble)
    with pytest.raises(TransientError, match="changed"):
        await source.fetch("busy.log", spool)
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


class TagsReadAtABadMoment:
    """The file of tags, but somebody replaces file and tags just before it is read for the first time."""

    def __init__(self, real: TagFile, replace: Callable[[], None]) -> None:
        self._real = real
        self._replace: Callable[[], None] | None = replace

    def read(self) -> Tags:
        replace, self._replace = self._replace, None
        if replace is not None:
            replace()
        return self._real.read()


@pytest.mark.parametrize("what", ["fetch", "state"])
async def test_tags_are_never_paired_with_another_version_of_the_file(
    root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    file = write(root / "a.md", "old")
    tags = write(root.parent / "tags.json", '{"a.md": {"for": "old"}}')
    source = source_of(root, tags="tags.json")

    def replace() -> None:
        write(tags, '{"a.md": {"for": "new"}}')
        write(file, "new, longer")

    monkeypatch.setattr(source, "_tag_file", TagsReadAtABadMoment(TagFile(tags), replace))
    if what == "fetch":
        fetched = await source.fetch("a.md", spool)
        assert fetched is not None
        assert fetched.content.read_bytes().decode() == "new, longer"
        state = fetched.state
    else:
        found = await source.state("a.md")
        assert found is not None
        state = found
    assert (state.size, state.access.tags) == (11, {"for": "new"})


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
    write(root / "a.md", "x" * 2 * HELD)
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
