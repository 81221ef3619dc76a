"""A source and a way to write around it in; whether it keeps the contract `ragstore.contracts.Source` out."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from ragstore.contracts import Source
from ragstore.errors import PoisonError, TransientError
from ragstore.models import BlobState

MEGABYTE = 2**20


class BlobWriter(Protocol):
    """Writes blobs without the source under test."""

    async def put(self, path: str, content: bytes) -> None:
        """Create or overwrite, with neither tags nor metadata."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a blob that exists."""
        ...

    async def tag(self, path: str, tags: Mapping[str, str]) -> None:
        """Set all index tags of a blob that exists."""
        ...

    async def annotate(self, path: str, metadata: Mapping[str, str]) -> None:
        """Set all metadata of a blob that exists; called only where the suite's `has_metadata` says so."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options that every source has."""

    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_bytes: int = 256 * MEGABYTE


OpenSource = Callable[[SourceOptions], Source]


class SourceSuite:
    """Subclass it as `TestMySource`, give the fixtures `writer` and `make_source`, and run with `asyncio_mode = "auto"`.

    Both fixtures must mean the same container, which is empty at the start of each test.
    """

    has_metadata: ClassVar[bool] = True
    """Whether blobs of this source can carry metadata."""
    odd_names: ClassVar[tuple[str, ...]] = (
        "with space.md",
        "100%25.md",
        "a%2Fb.md",
        "what?.md",
        "c#1.md",
        "a+b&c=d;e,f.md",
        "'quoted'.md",
        "[x]*{y}.md",
        "back\\slash.md",
        "trailing dot.",
        ".hidden",
        "..double",
        "日本語/名前.md",
        "emoji 🦆.md",
        "composed é.md",
        "decomposed e\u0301.md",
        "UPPER.MD",
        "n" * 200 + ".md",
        "deep/" * 20 + "x.md",
    )
    """Names that must make the way there and back unchanged; extend it by what the source allows beyond."""

    @pytest.fixture
    def writer(self) -> BlobWriter:
        """How to write around the source."""
        raise NotImplementedError("give a fixture `writer`")

    @pytest.fixture
    def make_source(self) -> OpenSource:
        """How to make a source with given options; the suite closes it."""
        raise NotImplementedError("give a fixture `make_source`")

    @pytest.fixture
    async def open_source(self, writer: BlobWriter, make_source: OpenSource) -> AsyncIterator[OpenSource]:
        """As `make_source`, once the container exists; whatever it made is closed at the end of the test."""
        del writer  # asked for so that the container exists
        opened: list[Source] = []

        def make(options: SourceOptions) -> Source:
            opened.append(make_source(options))
            return opened[-1]

        yield make
        for source in opened:
            await source.close()

    @pytest.fixture
    async def source(self, open_source: OpenSource) -> Source:
        """A source with its default options."""
        return open_source(SourceOptions())

    @pytest.fixture
    def spool(self, tmp_path: Path) -> Path:
        """An empty folder for content."""
        folder = tmp_path / "spool"
        folder.mkdir()
        return folder

    # -- listing

    async def test_an_empty_container_lists_nothing(self, source: Source) -> None:
        assert await listed(source) == {}

    async def test_every_blob_is_listed_once(self, source: Source, writer: BlobWriter) -> None:
        paths = [f"folder-{number % 3}/file-{number}.md" for number in range(25)]
        for path in paths:
            await writer.put(path, path.encode())
        found = await listed(source)
        assert sorted(found) == sorted(paths)
        assert all(found[path].size == len(path) for path in paths)

    async def test_a_deleted_blob_is_listed_no_more(self, source: Source, writer: BlobWriter) -> None:
        await writer.put("a.md", b"a")
        await writer.put("b.md", b"b")
        await writer.delete("a.md")
        assert list(await listed(source)) == ["b.md"]

    async def test_a_blob_says_where_it_is_and_when_it_changed(self, source: Source, writer: BlobWriter) -> None:
        await writer.put("a.md", b"a")
        state = (await listed(source))["a.md"]
        assert (state.id.account, state.id.container, state.id.path) == (source.account, source.container, "a.md")
        assert (state.access.account, state.access.container, state.access.path) == (source.account, source.container, "a.md")
        assert state.modified.tzinfo is not None
        assert not state.archived

    async def test_an_empty_blob_is_listed_and_fetched(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("empty.md", b"")
        assert (await listed(source))["empty.md"].size == 0
        fetched = await source.fetch("empty.md", spool)
        assert fetched is not None
        assert fetched.content.read_bytes() == b""

    async def test_odd_names_make_the_way_there_and_back(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        for name in self.odd_names:
            await writer.put(name, name.encode())
        assert sorted(await listed(source)) == sorted(self.odd_names)
        for name in self.odd_names:
            fetched = await source.fetch(name, spool)
            assert fetched is not None
            assert fetched.state.id.path == name
            assert fetched.content.read_bytes() == name.encode()

    # -- what is wanted

    async def test_a_prefix_limits_the_listing(self, open_source: OpenSource, writer: BlobWriter) -> None:
        for path in ("docs/a.md", "docs-old/b.md", "c.md"):
            await writer.put(path, b"x")
        assert sorted(await listed(open_source(SourceOptions(prefix="docs")))) == ["docs-old/b.md", "docs/a.md"]
        assert sorted(await listed(open_source(SourceOptions(prefix="docs/")))) == ["docs/a.md"]

    async def test_globs_limit_the_listing_and_exclude_wins(self, open_source: OpenSource, writer: BlobWriter) -> None:
        for path in ("docs/a.md", "docs/b.txt", "docs/drafts/c.md", "d.md"):
            await writer.put(path, b"x")
        source = open_source(SourceOptions(include=("docs/**/*.md",), exclude=("**/drafts/**",)))
        assert list(await listed(source)) == ["docs/a.md"]

    async def test_globs_count_from_the_root_even_with_a_prefix(self, open_source: OpenSource, writer: BlobWriter) -> None:
        for path in ("docs/a.md", "docs/b.txt"):
            await writer.put(path, b"x")
        source = open_source(SourceOptions(prefix="docs/", include=("docs/*.md",)))
        assert list(await listed(source)) == ["docs/a.md"]

    async def test_what_is_left_out_has_no_state_and_no_content(self, open_source: OpenSource, writer: BlobWriter, spool: Path) -> None:
        for path in ("docs/a.txt", "docs/b.md", "other/c.md"):
            await writer.put(path, b"x")
        source = open_source(SourceOptions(prefix="docs/", include=("**/*.md",)))
        for path in ("docs/a.txt", "other/c.md"):
            assert await source.state(path) is None
            assert await source.fetch(path, spool) is None
        assert await source.state("docs/b.md") is not None

    async def test_a_blob_over_the_limit_is_listed_but_not_fetched(self, open_source: OpenSource, writer: BlobWriter, spool: Path) -> None:
        await writer.put("large.md", b"x" * 11)
        await writer.put("fits.md", b"x" * 10)
        source = open_source(SourceOptions(max_bytes=10))
        assert sorted(await listed(source)) == ["fits.md", "large.md"]
        assert await source.state("large.md") is not None
        with pytest.raises(PoisonError) as caught:
            await source.fetch("large.md", spool)
        assert caught.value.kind == "too_large"
        assert files_in(spool) == []
        assert await source.fetch("fits.md", spool) is not None

    # -- one blob

    async def test_state_fetch_and_listing_agree(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("docs/a.md", b"hello")
        await writer.tag("docs/a.md", {"team": "blue"})
        fetched = await source.fetch("docs/a.md", spool)
        assert fetched is not None
        assert fetched.state == await source.state("docs/a.md")
        assert fetched.state == (await listed(source))["docs/a.md"]

    async def test_the_content_and_its_hash_are_right(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        content = os.urandom(3 * MEGABYTE + 17)
        await writer.put("a.bin", content)
        fetched = await source.fetch("a.bin", spool)
        assert fetched is not None
        assert fetched.content.read_bytes() == content
        assert fetched.sha256 == hashlib.sha256(content).hexdigest()
        assert fetched.state.size == len(content)

    async def test_what_does_not_exist_is_none(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("a/b.md", b"x")
        for path in ("missing.md", "a", "a/b.md/c", "A/B.MD"):
            assert await source.state(path) is None
            assert await source.fetch(path, spool) is None
        assert files_in(spool) == []

    async def test_what_was_deleted_is_none(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("a.md", b"x")
        await writer.delete("a.md")
        assert await source.state("a.md") is None
        assert await source.fetch("a.md", spool) is None

    async def test_two_writes_in_a_row_are_two_changes(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        etags = set()
        for content in (b"one", b"two", b"six"):  # of one size, as fast as they can be written
            await writer.put("a.md", content)
            fetched = await source.fetch("a.md", spool)
            assert fetched is not None
            assert fetched.content.read_bytes() == content
            etags.add(fetched.state.etag)
        assert len(etags) == 3

    async def test_an_untouched_blob_keeps_its_etag(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("a.md", b"x")
        fetched = await source.fetch("a.md", spool)
        assert fetched is not None
        again = await source.state("a.md")
        assert again is not None
        assert fetched.state.etag == again.etag == (await listed(source))["a.md"].etag

    # -- access

    async def test_tags_are_read_as_they_are_now(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("a.md", b"x")
        for tags in ({"Project": "Baker", "project": "other"}, {"Project": "Cascade"}, {"k +-./:=_1": "v +-./:=_1"}, {}):
            await writer.tag("a.md", tags)
            state, fetched = await source.state("a.md"), await source.fetch("a.md", spool)
            assert state is not None
            assert fetched is not None
            assert state.access.tags == fetched.state.access.tags == (await listed(source))["a.md"].access.tags == tags

    async def test_metadata_is_read_with_keys_in_lower_case(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        if not self.has_metadata:
            pytest.skip("blobs of this source carry no metadata")
        await writer.put("a.md", b"x")
        await writer.annotate("a.md", {"Owner": "Alice", "readers": "u1;u2", "empty": ""})
        expected = {"owner": "Alice", "readers": "u1;u2", "empty": ""}
        state, fetched = await source.state("a.md"), await source.fetch("a.md", spool)
        assert state is not None
        assert fetched is not None
        assert state.access.metadata == fetched.state.access.metadata == (await listed(source))["a.md"].access.metadata == expected

    async def test_a_listing_below_a_folder_gives_what_starts_with_it_and_nothing_else(self, source: Source, writer: BlobWriter) -> None:
        for path in ("a/one.md", "a/b/two.md", "ab.md", "b/a/three.md", "a.md"):
            await writer.put(path, b"x")
        for below, expected in {
            "": {"a/one.md", "a/b/two.md", "ab.md", "b/a/three.md", "a.md"},
            "a/": {"a/one.md", "a/b/two.md"},
            "a/b/": {"a/b/two.md"},
            "a/b/two.md": {"a/b/two.md"},
            "a": {"a/one.md", "a/b/two.md", "ab.md", "a.md"},
            "c/": set(),
        }.items():
            assert {state.id.path async for state in source.list(below=below)} == expected, below

    # -- the spool

    async def test_spool_files_are_named_by_hash_and_lie_in_the_spool(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        for path in ("secret/name.md", "secret-name.md"):
            await writer.put(path, b"the same content" * MEGABYTE)
            fetched = await source.fetch(path, spool)
            assert fetched is not None
            assert fetched.content.path().parent == spool
            assert "secret" not in fetched.content.path().name
        files = files_in(spool)
        assert len(files) == 2, "each fetch owns a file, also where the content is the same"

    async def test_fetches_may_run_side_by_side(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        contents = {f"{number}.bin": os.urandom(1000 * number + 1) for number in range(12)}
        for path, content in contents.items():
            await writer.put(path, content)
        fetched = await asyncio.gather(*(source.fetch(path, spool) for path in contents for _twice in range(2)))
        for one in fetched:
            assert one is not None
            assert one.content.read_bytes() == contents[one.state.id.path]
        assert len({one.content.path() for one in fetched if one is not None}) == 24

    async def test_a_blob_replaced_during_a_fetch_is_never_mixed(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        versions = [letter * (2 * MEGABYTE) for letter in (b"a", b"b", b"c", b"d")]
        await writer.put("a.bin", versions[0])

        async def write_on() -> None:
            for content in versions[1:]:
                await asyncio.sleep(0)
                await writer.put("a.bin", content)

        writing = asyncio.create_task(write_on())
        seen: dict[str, bytes] = {}
        while not writing.done():
            try:
                fetched = await source.fetch("a.bin", spool)
            except TransientError:
                continue  # it may give up on a blob that does not rest, but not mix
            assert fetched is not None
            content = fetched.content.read_bytes()
            assert content in versions
            assert seen.setdefault(fetched.state.etag, content) == content
        await writing
        last = await source.fetch("a.bin", spool)
        assert last is not None
        assert last.content.read_bytes() == versions[-1]

    async def test_a_cancelled_fetch_leaves_nothing_in_the_spool(self, source: Source, writer: BlobWriter, spool: Path) -> None:
        await writer.put("a.bin", bytes(8 * MEGABYTE))
        fetching = asyncio.create_task(source.fetch("a.bin", spool))
        for _turn in range(10_000):
            if files_in(spool) or fetching.done():
                break
            await asyncio.sleep(0.0005)
        fetching.cancel()
        try:
            fetched = await fetching
        except asyncio.CancelledError:
            assert files_in(spool) == []
        else:  # it was faster than we
            assert fetched is not None
            assert files_in(spool) == [fetched.content.path()]


def files_in(spool: Path) -> list[Path]:
    """What lies in the spool, sorted."""
    return sorted(spool.iterdir())


async def listed(source: Source) -> dict[str, BlobState]:
    """The listing by path; a path that comes twice fails the test."""
    found: dict[str, BlobState] = {}
    async for state in source.list():
        assert state.id.path not in found, f"{state.id.path!r} was listed twice"
        found[state.id.path] = state
    return found
