"""A folder in; its files, found by walking or by path, out: one rule for both of what belongs to the folder."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragstore.errors import ConfigError, RagstoreError, TransientError
from ragstore.globs import Globs
from ragstore_folder.names import is_unicode, shown_names

_LOG = logging.getLogger("ragstore.folder")

HIDDEN = frozenset({".git", ".ragstore"})
"""Never indexed, at any depth: the state of other programs and our own."""

_NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP})
"""What the file system says of a name that it cannot hold, which is thus the name of no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A regular file of the tree."""

    path: str
    """Relative to the root, `/` between segments; what is not Unicode is escaped."""
    file: str
    """Where to open it; no part of it is a link that was followed."""
    stat: os.stat_result
    is_unicode: bool
    """Whether `path` is the name that the file really has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    path: str
    """As of `FoundFile`, with `/` at the end; the root is empty."""
    place: str
    """Its place in the file system, free of links."""
    linked: bool
    """Whether a link led here."""
    linked_by: int | None
    """Whose link it was, where that user may show only files of its own."""
    is_unicode: bool


@dataclass(slots=True)
class _Skipped:
    """What a walk left out that somebody may miss."""

    links: int = 0
    first_link: str = ""
    special: int = 0

    def add_link(self, path: str) -> None:
        """Count a link that is not followed."""
        self.links += 1
        self.first_link = self.first_link or path


class Tree:
    """The files under one folder, under a prefix, that the globs admit.

    - A link to a file is followed where it leads to a regular file inside the root. A link to a folder is followed where it leads to a
      folder inside the root that does not contain the link; links to folders below it are not followed again, so that no loop can arise.
    - A link shows what its owner owns, and nothing else: access goes by paths, so it could put a file that its owner may not read under a
      path that others may. Links of the superuser, of this process's user and of the owner of the root lead to anything.
    - What leaves the root, dangles, or is neither file nor folder is skipped, and a walk logs how many there were.
    - `hidden_files` are skipped like the names in `HIDDEN`.
    """

    def __init__(self, *, root: str, prefix: str, globs: Globs, hidden_files: frozenset[str]) -> None:
        self._root = root
        self._prefix = prefix
        self._globs = globs
        self._hidden_files = hidden_files
        self._real_root = ""
        self._trusted = frozenset[int]()
        self._hidden = frozenset[tuple[int, int]]()

    def walk(self, below: str = "") -> Iterator[FoundFile]:
        """Every file whose path starts with `below`, folder by folder, sorted by name within each.

        Raises `ConfigError` where the root does not exist or a folder may not be read, `TransientError` where reading it fails.
        """
        skipped = _Skipped()
        folders = [self._top()]
        while folders:
            folder = folders.pop()
            inner: list[_Folder] = []
            for entry, shown in self._entries(folder):
                found = self._look_at(entry, shown, folder, skipped)
                if isinstance(found, FoundFile):
                    if found.path.startswith(below):
                        yield found
                elif found is not None and (found.path.startswith(below) or below.startswith(found.path)):
                    inner.append(found)
            folders.extend(reversed(inner))
        if not below and (skipped.links or skipped.special):  # not again for every folder that a feed tells of
            _LOG.warning(
                "folder.skipped: %d links that lead out of %s, nowhere, or to a file of another owner (the first is %r), %d special files",
                skipped.links,
                self._root,
                skipped.first_link,
                skipped.special,
            )

    def find(self, path: str) -> FoundFile | None:
        """The file that `walk` would give this path, or None. Raises as `walk` does."""
        segments = path.split("/")
        if not is_unicode(path) or "\0" in path or not HIDDEN.isdisjoint(segments) or not {"", ".", ".."}.isdisjoint(segments):
            return None
        folder = self._top()
        for number, segment in enumerate(segments, 1):
            place = self._place(folder, segment)
            entry = None if place is None else _lstat(place)
            if place is None or entry is None:
                return None
            found = self._follow(place, folder.path + segment, entry, folder, _Skipped())
            if number == len(segments):
                return found if isinstance(found, FoundFile) else None
            if not isinstance(found, _Folder):
                return None
            folder = found
        return None

    def place(self) -> str:
        """Where the root is now, free of links. Raises as `walk` does where it is not there."""
        return self._top().place

    def admits(self, path: str) -> bool:
        """Whether a file of this path would be one of the tree's, as far as its path can tell: `find` looks at the file."""
        hidden = not HIDDEN.isdisjoint(path.split("/")) or os.path.join(self._root, path) in self._hidden_files  # noqa: PTH118 - as below
        return not hidden and self._wants(path)

    def reaches(self, folder: str) -> bool:
        """Whether files below this folder, whose path ends with `/`, may be the tree's."""
        if not HIDDEN.isdisjoint(folder.split("/")) or self._globs.prunes(folder.removesuffix("/")):
            return False
        return folder.startswith(self._prefix) or self._prefix.startswith(folder)

    def _top(self) -> _Folder:
        """The root, which is looked up anew each time: it may be a link that somebody turned to another folder."""
        try:
            place = self._real_root
            status = os.stat(self._root)  # noqa: PTH116 - paths that are not Unicode stay plain strings here
            if not place or _identity(status) != _identity_of(place):
                place = os.path.realpath(self._root, strict=True)
                status = os.stat(place)  # noqa: PTH116 - as above
        except OSError as error:
            raise _folder_error(self._root, error) from error
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"{self._root!r} is not a folder; set `path` to the folder to index")
        self._real_root = place
        self._trusted = frozenset({0, status.st_uid, _own_id()})
        self._hidden = frozenset(identity for file in self._hidden_files if (identity := _identity_of(file)))
        return _Folder(path="", place=place, linked=False, linked_by=None, is_unicode=True)

    def _entries(self, folder: _Folder) -> list[tuple[os.DirEntry[str], str]]:
        """What is in the folder, each with the name to show for it."""
        try:
            with os.scandir(folder.place) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            if folder.path and isinstance(error, FileNotFoundError | NotADirectoryError):
                return []  # deleted since its parent was read: it has no files any more
            raise _folder_error(folder.place, error) from error
        shown = shown_names(entry.name for entry in entries)
        return [(entry, shown.get(entry.name, entry.name)) for entry in entries if entry.name not in HIDDEN]

    def _look_at(self, entry: os.DirEntry[str], shown: str, folder: _Folder, skipped: _Skipped) -> FoundFile | _Folder | None:
        path = folder.path + shown
        try:
            if entry.is_dir(follow_symlinks=False):
                return self._folder(entry.path, path, folder, is_unicode=shown == entry.name)
            if not entry.is_symlink() and not self._wants(path):
                return None
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None  # deleted since the folder was read
        except OSError as error:
            raise _folder_error(folder.place, error) from error
        return self._follow(entry.path, path, status, folder, skipped)

    def _follow(self, place: str, path: str, status: os.stat_result, folder: _Folder, skipped: _Skipped) -> FoundFile | _Folder | None:
        """What stands at `place`, through at most one link. `path` ends with the shown name, `place` with the real one."""
        shown_as_is = place.endswith(os.sep + path.rpartition("/")[2])
        linked = stat.S_ISLNK(status.st_mode)
        linked_by = folder.linked_by
        if linked:
            target = self._target(place)
            reached = None if target is None else _lstat(target)
            if target is None or reached is None:
                skipped.add_link(path)
                return None
            linked_by = self._bound(place, target, status.st_uid) if linked_by is None else linked_by
            place, status = target, reached
        if stat.S_ISDIR(status.st_mode):
            if linked and (folder.linked or _contains(place, folder.place)):
                return None  # its files are found on another way
            return self._folder(place, path, folder, is_unicode=shown_as_is, linked=linked, linked_by=linked_by)
        if not stat.S_ISREG(status.st_mode):
            skipped.special += 1
            return None
        if _identity(status) in self._hidden or not self._wants(path):
            return None
        if linked_by not in {None, status.st_uid}:
            skipped.add_link(path)
            return None
        return FoundFile(path=path, file=place, stat=status, is_unicode=folder.is_unicode and shown_as_is)

    def _bound(self, link: str, target: str, owner: int) -> int | None:
        """The owner, where its link may show only what it owns. Trust does not go on from a trusted link to others on the way."""
        try:
            first = os.path.join(os.path.dirname(link), os.readlink(link))  # noqa: PTH115, PTH118, PTH120 - as above
        except OSError:
            return owner  # it was replaced just now
        return None if owner in self._trusted and os.path.normpath(first) == target else owner

    def _folder(
        self, place: str, path: str, parent: _Folder, *, is_unicode: bool, linked: bool = False, linked_by: int | None = None
    ) -> _Folder | None:
        below = f"{path}/"
        if not below.startswith(self._prefix) and not self._prefix.startswith(below):
            return None
        if self._globs.prunes(path):
            return None
        return _Folder(
            path=below,
            place=place,
            linked=linked or parent.linked,
            linked_by=linked_by if linked else parent.linked_by,
            is_unicode=is_unicode and parent.is_unicode,
        )

    def _wants(self, path: str) -> bool:
        return path.startswith(self._prefix) and self._globs.admits(path)

    def _target(self, link: str) -> str | None:
        """Where the link leads, or None where that is nowhere, outside the root, or in a hidden folder."""
        try:
            target = os.path.realpath(link, strict=True)
        except OSError:
            return None
        if not _contains(self._real_root, target):
            return None
        return target if HIDDEN.isdisjoint(Path(target).relative_to(self._real_root).parts) else None

    def _place(self, folder: _Folder, segment: str) -> str | None:
        """The place of the entry that is shown as `segment`. A real name comes before an escaped one."""
        place = os.path.join(folder.place, segment)  # noqa: PTH118 - as above
        if "\\" not in segment or _lstat(place) is not None:
            return place
        return next((entry.path for entry, shown in self._entries(folder) if shown == segment), None)


def _lstat(place: str) -> os.stat_result | None:
    """None where there is nothing; an error where nobody can say whether there is."""
    try:
        return os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _NO_NAME:
            return None
        raise _folder_error(os.path.dirname(place), error) from error  # noqa: PTH120 - as above


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Of a file or folder, whatever paths lead to it."""
    return status.st_dev, status.st_ino


def _identity_of(place: str) -> tuple[int, int] | None:
    try:
        return _identity(os.stat(place))  # noqa: PTH116 - as above
    except (OSError, ValueError):
        return None


def _own_id() -> int:
    """Of the user of this process; systems without such numbers give 0 for every owner."""
    own = getattr(os, "geteuid", None)
    return own() if own is not None else 0


def _contains(folder: str, place: str) -> bool:
    return place == folder or place.startswith(folder.rstrip(os.sep) + os.sep)


def _folder_error(folder: str, error: OSError) -> RagstoreError:
    """A folder that cannot be read is never a folder without files."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ConfigError(f"the folder {folder!r} does not exist; set `path` to the folder to index, or mount it again")
    if isinstance(error, PermissionError):
        return ConfigError(f"the folder {folder!r} may not be read: give this user read and execute permission on it, or exclude it")
    return TransientError(f"the folder {folder!r} cannot be read: {error.strerror or error}")
