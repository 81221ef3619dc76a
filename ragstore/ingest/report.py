"""What a pass did, counted while it runs and shown when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class SyncReport:
    """Numbers of one pass; `plan` gives the same for what a pass would do."""

    blobs: int = 0
    """Blobs that the sources hold."""
    added: int = 0
    changed: int = 0
    retagged: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    deferred: int = 0
    """Archived: waiting for rehydration."""
    quarantined: int = 0
    """Blobs that cannot be indexed, those of earlier passes included."""
    failed: int = 0
    """Blobs whose change could not be applied for a passing reason; the next pass tries again."""
    held_back: int = 0
    """Deletes that a guard stopped."""
    chunks: int = 0
    """Chunks of the blobs that were added, changed or moved."""
    chunks_embedded: int = 0
    chunks_reused: int = 0
    tokens: int = 0
    """Tokens that were embedded."""
    price: float | None = None
    """US dollars for those tokens, where the embedder has a price."""
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    """What a person should look at: ids that grant nothing, pages that could not be read."""
    acl_reads: int = 0
    """Requests for the ACL of one blob or folder, of accounts with a hierarchical namespace."""
    bytes_total: int = 0
    """Bytes of the blobs to be read, for the estimate of the time that is left."""
    bytes_done: int = 0

    _SHOWN = (
        "blobs", "added", "changed", "retagged", "moved", "deleted", "unchanged", "deferred", "quarantined", "failed", "held_back",
        "chunks", "chunks_embedded", "chunks_reused", "tokens", "price", "acl_reads", "seconds", "warnings",
    )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: round(self.seconds, 3) if name == "seconds" else getattr(self, name) for name in self._SHOWN}

    @property
    def is_clean(self) -> bool:
        """Whether every blob is indexed as it is now."""
        return not (self.quarantined or self.failed)

    def warn(self, blob: str, problems: list[str] | tuple[str, ...]) -> None:
        """Note problems of one blob; a flood is cut, because a report is read by a person."""
        for problem in problems:
            if len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(f"{blob}: {problem}")
            elif len(self.warnings) == _MOST_WARNINGS:
                self.warnings.append("more warnings were left out")


_MOST_WARNINGS = 200
_TICK_SECONDS = 0.1

Progress = Callable[[SyncReport], None]
"""Called with the growing report a few times a second at the most."""


class Clocked:
    """Calls a `Progress` with the report, but not more often than ten times a second, and keeps `seconds` up to date."""

    def __init__(self, report: SyncReport, progress: Progress | None) -> None:
        self.report = report
        self._progress = progress
        self._started = time.monotonic()
        self._last = 0.0

    def tick(self, *, now: bool = False) -> None:
        """Something was counted."""
        moment = time.monotonic()
        self.report.seconds = moment - self._started
        if self._progress is not None and (now or moment - self._last >= _TICK_SECONDS):
            self._last = moment
            self._progress(self.report)
