"""What changed in the file system in; the paths of the index that this concerns, through links too, each with a hint, out."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ragstore.errors import FeedGapError, RagstoreError
from ragstore.models import Hint
from ragstore_folder.names import is_unicode
from ragstore_folder.notices import ADDED, DELETED, Notice, UnreadableNameError
from ragstore_folder.tree import HIDDEN, Tree

_AGAIN_AFTER = 1.0
"""Seconds after which a new folder is looked at once more: a file may have been put there before the system watched it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A path of the index, and what to look at."""

    path: str
    hint: Hint
    moment: datetime
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    target: str
    """Where it leads in the end, relative to the root, which is empty; where that is outside, an absolute place, which no path is."""
    to_folder: bool

    @property
    def is_inside(self) -> bool:
        """Whether it leads to the root, or to something below it."""
        return not os.path.isabs(self.target)  # noqa: PTH117 - plain strings


@dataclass(slots=True)
class _Touched:
    """What one round of notices concerns, relative to the real root."""

    files: dict[str, datetime] = field(default_factory=dict)
    folders: dict[str, datetime] = field(default_factory=dict)
    """Without `/` at the end."""
    links: bool = False
    """Whether links may lead elsewhere than before."""


class Places:
    """The folders and links below one root, kept up to date by what is noticed; not safe for threads.

    Raises when made as `Tree.walk` does where the root is not there, and `UnreadableNameError` for a folder whose name is not Unicode.
    """

    def __init__(self, tree: Tree) -> None:
        self.root = tree.place()
        """Free of links."""
        self._tree = tree
        self._folders: set[str] = set()
        self._links: dict[str, _Link] = {}
        self._new: dict[str, float] = {}
        self._scan("")

    def look(self, notices: Mapping[str, Notice]) -> list[Finding]:
        """What the notices mean now. Raises `FeedGapError` where the system stopped watching something."""
        before = dict(self._links)
        touched = _Touched()
        relative = list(self._relative(notices))
        lost = {rel: notice.moment for rel, notice in relative if self._is_lost(rel, notice)}
        self._forget(lost, touched)
        for rel, notice in relative:
            self._look_at(rel, notice, touched, was_folder=rel in lost)
        if touched.links:
            self._look_at_links(before, touched)
        self._reach_through_links({**before, **self._links}, touched)
        return self._findings(touched)

    def look_again(self) -> list[Finding]:
        """What lies in folders that were new a moment ago."""
        due = [rel for rel, since in self._new.items() if time.monotonic() - since > _AGAIN_AFTER]
        touched = _Touched()
        for rel in due:
            del self._new[rel]
            if _holds_something(self._place(rel)):
                touched.folders[rel] = datetime.now(UTC)
        self._reach_through_links(self._links, touched)
        return self._findings(touched)

    def _relative(self, notices: Mapping[str, Notice]) -> Iterator[tuple[str, Notice]]:
        """Each place by its path below the real root. A folder that links lead to is watched once, under any of its names."""
        real: dict[str, str] = {}
        for place, notice in notices.items():
            folder, name = os.path.split(place)
            if folder not in real:
                real[folder] = os.path.realpath(folder)
            as_told = os.path.relpath(place, self.root).replace(os.sep, "/")
            meant = {self._below_root(os.path.join(real[folder], name)), self._through_links(as_told)}  # noqa: PTH118 - plain strings
            for rel in meant:
                if rel is not None and HIDDEN.isdisjoint(rel.split("/")):
                    yield rel, notice

    def _below_root(self, place: str) -> str | None:
        prefix = self.root.rstrip(os.sep) + os.sep
        return place[len(prefix) :].replace(os.sep, "/") if place.startswith(prefix) else None

    def _through_links(self, rel: str) -> str | None:
        """The path with the links on its way replaced as they were known: the link itself may be gone by now."""
        for above in _above(rel):
            if (link := self._links.get(above)) is not None:
                return (link.target + rel[len(above) :]).removeprefix("/") if link.is_inside else None
        return rel if rel not in {".", ".."} and not rel.startswith("../") else None

    def _is_lost(self, rel: str, notice: Notice) -> bool:
        """Whether this was a folder and is gone, or is another that took its name."""
        return rel in self._folders and (ADDED in notice.kinds or not _is_kind(self._status(rel), stat.S_ISDIR))

    def _forget(self, lost: Mapping[str, datetime], touched: _Touched) -> None:
        if not lost:
            return
        touched.folders.update(lost)
        touched.links = True
        self._folders = {rel for rel in self._folders if rel not in lost and lost.keys().isdisjoint(_above(rel))}
        self._links = {rel: link for rel, link in self._links.items() if lost.keys().isdisjoint(_above(rel))}
        self._new = {rel: since for rel, since in self._new.items() if rel in self._folders}

    def _look_at(self, rel: str, notice: Notice, touched: _Touched, *, was_folder: bool) -> None:
        status = self._status(rel)
        if status is None and was_folder:
            return
        if _is_kind(status, stat.S_ISDIR):
            self._look_at_folder(rel, notice, touched)
            return
        was_link = self._links.pop(rel, None) is not None
        is_link = _is_kind(status, stat.S_ISLNK)
        if is_link:
            self._links[rel] = self._read(rel)
        touched.links = touched.links or was_link or is_link
        touched.files[rel] = notice.moment

    def _status(self, rel: str) -> os.stat_result | None:
        try:
            return os.lstat(self._place(rel))
        except OSError:
            return None

    def _look_at_folder(self, rel: str, notice: Notice, touched: _Touched) -> None:
        if rel in self._folders:
            return  # its times or rights changed
        if DELETED in notice.kinds or rel in self._links:
            touched.files[rel] = notice.moment  # what it took the place of
        touched.links = touched.links or self._links.pop(rel, None) is not None
        self._scan(rel)
        self._new[rel] = time.monotonic()
        touched.links = touched.links or bool(self._links)
        if _holds_something(self._place(rel)):
            touched.folders[rel] = notice.moment

    def _look_at_links(self, before: Mapping[str, _Link], touched: _Touched) -> None:
        """Links that lead elsewhere since, or that came or went with their folder."""
        now = datetime.now(UTC)
        self._links = {rel: self._read(rel) for rel in self._links}
        for rel in before.keys() | self._links.keys():
            old, new = before.get(rel), self._links.get(rel)
            if old == new:
                continue
            touched.files.setdefault(rel, now)
            if (old is not None and old.to_folder) or (new is not None and new.to_folder):
                touched.folders.setdefault(rel, now)
            if old is not None and old.to_folder and (old.target in self._folders or not old.target or not old.is_inside):
                # The library takes the watch off the folder together with that of the link, which is the same one, or goes on to name
                # what happens there by the link. What is outside may contain the root, or lead back into it.
                raise FeedGapError(
                    f"the link {rel!r} to a folder changed, and with it the watch over {old.target or self.root!r} was lost; "
                    "run `ragstore index`, a worker lists the folder by itself"
                )

    def _reach_through_links(self, links: Mapping[str, _Link], touched: _Touched) -> None:
        """Add the paths under which links show what was touched. Twice: a link to a file may lie in a folder that a link leads to."""
        if not links:
            return
        by_target: dict[str, list[str]] = {}
        for rel, link in links.items():
            by_target.setdefault(link.target, []).append(rel)
        for _round in range(2):
            for known in (touched.files, touched.folders):
                for rel, moment in list(known.items()):
                    for above in (*_above(rel), rel):
                        for shown in by_target.get(above, ()):
                            known.setdefault(shown + rel[len(above) :], moment)
            for rel, moment in list(touched.folders.items()):
                for shown, link in links.items():
                    if link.target.startswith(rel + "/"):
                        (touched.folders if link.to_folder else touched.files).setdefault(shown, moment)

    def _findings(self, touched: _Touched) -> list[Finding]:
        findings = []
        folders = sorted(touched.folders)
        outermost: set[str] = set()
        for rel in folders:
            if outermost.isdisjoint(_above(rel)) and self._tree.reaches(rel + "/"):
                outermost.add(rel)
                findings.append(Finding(path=rel + "/", hint="folder", moment=touched.folders[rel], kind="watch/folder"))
        for rel, moment in touched.files.items():
            if outermost.isdisjoint(_above(rel)) and self._tree.admits(rel):
                hint: Hint = "content" if self._is_there(rel) else "gone"
                findings.append(Finding(path=rel, hint=hint, moment=moment, kind=f"watch/{hint}"))
        return findings

    def _is_there(self, rel: str) -> bool:
        try:
            return self._tree.find(rel) is not None
        except RagstoreError:
            return True  # whoever reads it will see the error, and whose it is

    def _scan(self, below: str) -> None:
        """Learn the folders and links below, this one included."""
        waiting = [below]
        while waiting:
            rel = waiting.pop()
            if rel:
                self._folders.add(rel)
            try:
                with os.scandir(self._place(rel)) as scan:
                    entries = [entry for entry in scan if entry.name not in HIDDEN]
            except OSError:
                continue  # gone since, or not ours to read: listing it says so
            for entry in entries:
                inner = f"{rel}/{entry.name}" if rel else entry.name
                if entry.is_symlink():
                    self._links[inner] = self._read(inner)
                elif entry.is_dir(follow_symlinks=False):
                    if not is_unicode(entry.name):
                        raise UnreadableNameError(f"the name of the folder {inner!r} is not Unicode")
                    waiting.append(inner)

    def _read(self, rel: str) -> _Link:
        place = os.path.realpath(self._place(rel))
        below = "" if place == self.root else self._below_root(place)
        return _Link(target=place if below is None else below, to_folder=os.path.isdir(place))  # noqa: PTH112 - plain strings

    def _place(self, rel: str) -> str:
        return os.path.join(self.root, rel)  # noqa: PTH118 - plain strings, as the tree has them


def _above(rel: str) -> Iterator[str]:
    """Every folder on the way to this path, from the outermost on."""
    at = rel.find("/")
    while at >= 0:
        yield rel[:at]
        at = rel.find("/", at + 1)


def _is_kind(status: os.stat_result | None, is_kind: Callable[[int], bool]) -> bool:
    return status is not None and is_kind(status.st_mode)


def _holds_something(place: str) -> bool:
    try:
        with os.scandir(place) as scan:
            return next(scan, None) is not None
    except OSError:
        return True  # not ours to read, or gone: listing it says which
