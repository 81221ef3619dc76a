"""What was asked and answered in; a record of it without content, for metrics and for the audit log, out."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from ragstore.errors import AccessError, ConfigError
from ragstore.filters import Filter
from ragstore.instrumentation import Instruments

_LONGEST_FILTER: Final = 2_000
"""Characters of a filter in a record; the digest stands for all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """One answer of the door."""

    kind: Literal["search", "chunk", "readable"]
    """What was asked for: hits, one chunk, or which of some chunks may still be read."""
    moment: datetime
    """Aware, UTC."""
    principal: str
    """Object id."""
    mode: str
    policy: str
    """Digest of the policy that decided."""
    filter: Filter
    """As the store was asked, the caller's own filter included."""
    exact: bool
    query: str
    """Its hash, 32 hex digits; empty for chunks by id."""
    returned: tuple[str, ...]
    """Chunk ids."""
    refused: tuple[str, ...]
    """Ids of chunks that the store proposed and the check refused."""
    leaked: int
    """How many of those an exact filter should have kept back."""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values. A filter over many values is cut, after its digest."""
        shown = ascii(self.filter)
        return {
            "time": self.moment.isoformat(timespec="milliseconds"),
            "kind": self.kind,
            "principal": self.principal,
            "mode": self.mode,
            "policy": self.policy,
            "filter": shown if len(shown) <= _LONGEST_FILTER else shown[:_LONGEST_FILTER] + "...",
            "filter_digest": _digest(shown),
            "exact": self.exact,
            "query": self.query,
            "returned": list(self.returned),
            "refused": list(self.refused),
            "leaked": self.leaked,
        }


Observer = Callable[[Retrieval], None]
"""Told of every answer before it is given. What it raises is raised instead of the answer."""


def measured(instruments: Instruments) -> Observer:
    """An observer that counts answers in these metrics."""

    def count(retrieval: Retrieval) -> None:
        returned, refused = len(retrieval.returned), len(retrieval.refused)
        instruments.answered(retrieval.kind, returned=returned, refused=refused, leaked=retrieval.leaked)

    return count


def query_hash(query: str) -> str:
    """Tells equal questions from others without saying what was asked: 32 hex digits."""
    return _digest(query)


class AuditLog:
    """An append-only file of JSON lines, one for each answer; several processes may write to one file.

    Fails closed: an answer that cannot be recorded is not given (`AccessError`). Raises `ConfigError` where the file cannot be opened.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"[access] audit = {str(file)!r} cannot be written: {error.strerror or error}") from error

    def __call__(self, retrieval: Retrieval) -> None:
        """Append one line, in one write."""
        line = (json.dumps(retrieval.as_dict()) + "\n").encode("ascii")
        try:
            with self._lock:
                self._reopen_where_rotated()
                written = os.write(self._descriptor, line)
        except OSError as error:
            raise AccessError("the audit log cannot be written, so nothing is shown; the administrator has to mend it") from error
        if written != len(line):
            raise AccessError("the audit log is full, so nothing is shown; the administrator has to make room")

    def close(self) -> None:
        """Give back the file."""
        os.close(self._descriptor)

    def _reopen_where_rotated(self) -> None:
        """Whoever rotates logs moves the file away; what we write then belongs into a new one."""
        held = os.fstat(self._descriptor)
        try:
            found = self._file.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            fresh = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.close(self._descriptor)
            self._descriptor = fresh


def observe_all(observers: Sequence[Observer]) -> Observer | None:
    """One observer that tells all of these; None where there are none, for nobody has to be waited for."""
    if not observers:
        return None

    def tell(retrieval: Retrieval) -> None:
        for observer in observers:
            observer(retrieval)

    return tell


def now() -> datetime:
    """The moment of a record."""
    return datetime.now(UTC)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
