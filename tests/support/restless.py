"""Chance in; blobs that are written, edited, retagged, renamed and deleted, and what anybody was ever allowed to read of them, out."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.account import Account, Told

READERS = {"ada": {"ada", "staff", "board"}, "bob": {"bob", "staff"}, "eve": {"eve"}}
"""The ids of each principal of `workspace.PRINCIPALS`."""
_ALLOW = ("staff", "board", "eve", "")
_MARK = re.compile(r"mark\d{7}")
_FEWEST, _MOST = 8, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A blob: each of its paragraphs has a mark of its own."""

    marks: tuple[str, ...]
    allow: str

    @property
    def text(self) -> str:
        return "\n\n".join(f"{mark} speaks about subject{mark[4:]} and " + f"detail{mark[-3:]} " * 24 for mark in self.marks)


def marks_in(text: str) -> set[str]:
    """Those of the paragraphs of which the text holds something."""
    return set(_MARK.findall(text))


def readers_of(allow: str) -> set[str]:
    return {who for who, ids in READERS.items() if allow in ids}


@dataclass(slots=True, kw_only=True)
class Restless:
    """Changes blobs at random, and knows what there is."""

    account: Account
    chance: random.Random
    now: dict[str, Content] = field(default_factory=dict)
    ever: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Who was allowed to read a paragraph of a path at any time, by path and mark; noted before it is so."""
    done: Counter[str] = field(default_factory=Counter)
    _numbers: int = 0

    def change(self) -> Iterable[Told]:
        """Make one change; gives what the account tells of it."""
        kinds = ["new", "edit", "edit", "edit", "retag", "retag", "rename", "delete"]
        kind = self.chance.choice(kinds)
        if len(self.now) < _FEWEST or (kind == "new" and len(self.now) >= _MOST):
            kind = "new" if len(self.now) < _FEWEST else "delete"
        self.done[kind] += 1
        if kind == "new":
            return [self.new()]
        path = self.chance.choice(sorted(self.now))
        return getattr(self, f"_{kind}")(path)  # type: ignore[no-any-return]

    def new(self) -> Told:
        """A blob of its own words."""
        self._numbers += 1
        marks = tuple(self._mark() for _paragraph in range(self.chance.randint(1, 8)))
        return self._put(f"{self.chance.choice('abc')}/{self._numbers}.txt", Content(marks=marks, allow=self._allow()))

    def readable(self, who: str) -> set[str]:
        """The marks of all paragraphs that this principal may read now."""
        return {mark for content in self.now.values() if who in readers_of(content.allow) for mark in content.marks}

    def _edit(self, path: str) -> list[Told]:
        """Some paragraphs change, some go and some come; now and then who may read them changes with them."""
        old = self.now[path]
        marks = [mark if self.chance.random() < 0.7 else self._mark() for mark in old.marks if self.chance.random() < 0.9]
        marks.insert(self.chance.randint(0, len(marks)), self._mark())
        allow = self._allow() if self.chance.random() < 0.3 else old.allow
        return [self._put(path, Content(marks=tuple(marks[:10]), allow=allow))]

    def _retag(self, path: str) -> list[Told]:
        content = Content(marks=self.now[path].marks, allow=self._allow())
        self._note(path, content)
        return [self.account.retag(path, content.allow)]

    def _rename(self, path: str) -> list[Told]:
        self._numbers += 1
        new = f"renamed/{self._numbers}.txt"
        self._note(new, self.now[path])
        told = self.account.rename(path, new)
        del self.now[path]
        return list(told)

    def _delete(self, path: str) -> list[Told]:
        told = self.account.delete(path)
        del self.now[path]
        return [told]

    def _put(self, path: str, content: Content) -> Told:
        self._note(path, content)
        return self.account.put(path, content.text, allow=content.allow)

    def _note(self, path: str, content: Content) -> None:
        for mark in content.marks:
            self.ever.setdefault((path, mark), set()).update(readers_of(content.allow))
        self.now[path] = content

    def _allow(self) -> str:
        return self.chance.choice(_ALLOW)

    def _mark(self) -> str:
        self._numbers += 1
        return f"mark{self._numbers:07d}"
