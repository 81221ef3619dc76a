"""A folder in; which of its files came, went or changed since the last time of asking, found by comparing, out."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from ragstore.models import Hint
from ragstore_folder.clock import is_settled, signature
from ragstore_folder.places import Finding
from ragstore_folder.tree import Tree

_PAUSE = 2.0
_SHARE = 10
"""A walk may take up to this part of the time, however large the folder."""


class Polling:
    """Compares the whole folder with how it was: for file systems that tell nobody of a change, as most network file systems."""

    def __init__(self, tree: Tree, *, pause: float = _PAUSE) -> None:
        self._tree = tree
        self._pause = pause
        self._due = 0.0
        self._known = self._walk()

    def look(self) -> list[Finding]:
        """What changed since the last look; nothing while it is too early for the next. Raises as `Tree.walk` does."""
        if time.monotonic() < self._due:
            return []
        now = datetime.now(UTC)
        before, self._known = self._known, self._walk()
        findings = [_finding(path, "content", now) for path, seen in self._known.items() if seen is None or before.get(path) != seen]
        findings += [_finding(path, "gone", now) for path in before.keys() - self._known.keys()]
        return findings

    def _walk(self) -> dict[str, str | None]:
        """Path -> signature; None for a file written so lately that another write would not show."""
        began = time.monotonic()
        found = {file.path: signature(file.stat) if is_settled(file.stat) else None for file in self._tree.walk()}
        self._due = time.monotonic() + max(self._pause, _SHARE * (time.monotonic() - began))
        return found


def _finding(path: str, hint: Hint, moment: datetime) -> Finding:
    return Finding(path=path, hint=hint, moment=moment, kind=f"poll/{hint}")
