"""A folder's options in; its files as blobs, with content, out."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.globs import Globs
from ragstore.models import AccessAttributes, BlobId, BlobState, FetchedBlob
from ragstore.spool import SpoolFile
from ragstore_folder.clock import signature
from ragstore_folder.names import is_unicode
from ragstore_folder.reading import CancelledReadError, read_into
from ragstore_folder.tags import TagFile, Tags
from ragstore_folder.tree import FoundFile, Tree

_BATCH = 500
"""Files looked at per hop to a thread: few enough that a cancelled listing stops soon."""
_ATTEMPTS = 5


class FolderSource:
    """The files of a local folder: account `local`, one container. Paths have `/` between segments, in case and Unicode form verbatim.

    - `path`: the folder, relative to the configuration file; it may be a link. `container`: its name in results, by default the folder's.
    - `prefix`: what paths must start with. `include`, `exclude`: globs, see `ragstore.globs`.
    - `max_bytes`: larger files are listed, but `fetch` refuses them as `too_large`.
    - `tags`: a JSON file `{"path": {"key": "value"}}` that gives index tags to files.

    Never indexed: folders and files named `.ragstore` or `.git`, `ragstore.toml` in the root, the file of tags. Links are followed where
    they stay inside the root (see `ragstore_folder.tree.Tree`). A name that is not Unicode is listed with `\\xNN` for each byte that does
    not decode, and `fetch` refuses it as `name`. Raises `ConfigError` where the options make no sense.
    """

    account: str = "local"

    def __init__(
        self,
        *,
        path: str,
        base: Path,
        container: str | None = None,
        prefix: str = "",
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        max_bytes: int = 256 * 2**20,
        tags: str | None = None,
    ) -> None:
        if max_bytes < 1:
            raise ConfigError(f"max_bytes = {max_bytes} would refuse every file; give a number of bytes above 0")
        if prefix.startswith("/"):
            raise ConfigError(f"the prefix {prefix!r} begins with '/': it is relative to the folder; write {prefix.lstrip('/')!r}")
        root = Path(os.path.abspath(base / Path(path).expanduser()))  # noqa: PTH100 - resolve() would name the target of a link
        self.root = root
        """The folder as configured: absolute, links not resolved."""
        self.location = str(root)
        self.container = _container(container if container is not None else root.name, root)
        self.max_bytes = max_bytes
        tag_file = base / Path(tags).expanduser() if tags is not None else None
        self._tag_file = TagFile(tag_file) if tag_file is not None else None
        hidden = [root / "ragstore.toml", *([tag_file] if tag_file is not None else [])]
        self._tree = Tree(
            root=str(root),
            prefix=prefix,
            globs=Globs(include=tuple(include), exclude=tuple(exclude)),
            hidden_files=frozenset(map(str, hidden)),
        )

    @property
    def tree(self) -> Tree:
        """What belongs to the folder."""
        return self._tree

    def tags(self) -> Tags:
        """Path -> its index tags, as the file of tags stands now. Blocks; raises as `TagFile.read` does."""
        return self._tag_file.read() if self._tag_file is not None else {}

    async def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        """Every file of the folder that the options admit, as of `Source.list`.

        Raises `ConfigError` where the folder does not exist or one below it may not be read, `TransientError` where reading one fails:
        a listing that ends has seen everything.
        """
        walk = self._tree.walk(below)
        while batch := await asyncio.to_thread(self._next_states, walk):
            for state in batch:
                yield state

    async def state(self, path: str) -> BlobState | None:
        """The file as it is now, as of `Source.state`; None for a path that `list` would not give. Raises as `list` does."""
        return await asyncio.to_thread(self._state_now, path)

    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        """Copy the file into the spool, as of `Source.fetch`.

        Raises `PoisonError` (`too_large`, `name`), `TransientError` where the file may not be read (that can change without the file
        changing) or never rests, and as `list` does.
        """
        stop = threading.Event()
        reading = asyncio.ensure_future(asyncio.to_thread(self._fetch, path, spool, stop))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread is told to end and waited for, so that nothing is left in the spool and nobody writes there afterwards.
            stop.set()
            (outcome,) = await asyncio.gather(reading, return_exceptions=True)
            if isinstance(outcome, FetchedBlob):
                outcome.content.remove()
            raise

    async def close(self) -> None:
        """Nothing is held open."""

    def _next_states(self, walk: Iterator[FoundFile]) -> Sequence[BlobState]:
        batch = [*itertools.islice(walk, _BATCH)]
        tags = self.tags()  # after the files, also where there are none: malformed tags are an error at every listing
        return [self._state(found, tags) for found in batch]

    def _state_now(self, path: str) -> BlobState | None:
        """Tags that were read between two looks at the same version of a file belong to it."""
        before = self._tree.find(path)
        for _attempt in range(_ATTEMPTS):
            if before is None:
                return None
            tags = self.tags()
            after = self._tree.find(path)
            if after is not None and signature(after.stat) == signature(before.stat):
                return self._state(after, tags)
            before = after
        raise TransientError(f"{path!r} changed {_ATTEMPTS} times while it was looked at; it is tried again when it rests")

    def _fetch(self, path: str, spool: Path, stop: threading.Event) -> FetchedBlob | None:
        with SpoolFile(spool) as spooled:
            for _attempt in range(_ATTEMPTS):
                found = self._tree.find(path)
                if found is None:
                    return None
                self._refuse(found)
                spooled.start_again()
                read = read_into(spooled, found, stop)
                # In this order: what decides over access is read after the content, then the file must still be the one that was read.
                tags = self.tags()
                found = self._tree.find(path)
                if stop.is_set():
                    raise CancelledReadError
                if found is not None and read == signature(found.stat):
                    content, sha256 = spooled.finish()
                    return FetchedBlob(state=self._state(found, tags), content=content, sha256=sha256)
        raise TransientError(f"{path!r} changed {_ATTEMPTS} times while it was read; it is tried again when it rests")

    def _refuse(self, found: FoundFile) -> None:
        if not found.is_unicode:
            raise PoisonError("name", f"the name {found.path!r} holds bytes that are not Unicode; rename it: convmv can, or mv by hand")
        if found.stat.st_size > self.max_bytes:
            size, limit = found.stat.st_size, self.max_bytes
            raise PoisonError("too_large", f"{size} bytes are more than the limit of {limit}; raise max_bytes of the source, or exclude it")

    def _state(self, found: FoundFile, tags: Tags) -> BlobState:
        return BlobState(
            id=BlobId(account=self.account, container=self.container, path=found.path),
            etag=signature(found.stat),
            size=found.stat.st_size,
            modified=_moment(found.stat.st_mtime),
            access=AccessAttributes(account=self.account, container=self.container, path=found.path, tags=tags.get(found.path, {})),
        )


def _container(name: str, root: Path) -> str:
    if not name or "/" in name or not is_unicode(name):
        raise ConfigError(f"{name!r} cannot be the container's name for {str(root)!r}; set `container` to a name without '/'")
    return name


def _moment(seconds: float) -> datetime:
    """A file may claim a time that no calendar holds; it is for people only, so the nearest one will do."""
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)
