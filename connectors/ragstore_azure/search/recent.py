"""What this process wrote lately in; what the service may not show yet out.

AI Search makes a write visible within seconds, not at once. Whoever writes twice to one document must know of the first write all the
same: a retag that did not see the rows would leave them as they were.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

_SECONDS: Final = 60.0
_MOST: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The last write of one document key."""

    document_id: str
    generation: int | None
    """None for a row that was deleted."""
    stamp: int
    at: float


class Recent:
    """The writes of the last minute, by document key; the oldest are forgotten where there are very many."""

    def __init__(self) -> None:
        self._written: OrderedDict[str, Written] = OrderedDict()
        self._keys: dict[str, set[str]] = {}

    def note(self, key: str, *, document_id: str, generation: int | None, stamp: int) -> None:
        """This was written."""
        self.forget([key])
        self._written[key] = Written(document_id=document_id, generation=generation, stamp=stamp, at=time.monotonic())
        self._keys.setdefault(document_id, set()).add(key)
        while len(self._written) > _MOST:
            self.forget([next(iter(self._written))])

    def forget(self, keys: Iterable[str]) -> None:
        """The service shows these writes."""
        for key in keys:
            written = self._written.pop(key, None)
            if written is not None:
                self._keys[written.document_id].discard(key)
                if not self._keys[written.document_id]:
                    del self._keys[written.document_id]

    def clear(self) -> None:
        """The whole index is gone."""
        self._written.clear()
        self._keys.clear()

    def of_keys(self, keys: Iterable[str]) -> dict[str, Written]:
        """The writes of these keys."""
        self._expire()
        return {key: self._written[key] for key in keys if key in self._written}

    def of_documents(self, documents: Collection[str] | None) -> dict[str, Written]:
        """The writes of these documents, or of all."""
        self._expire()
        if documents is None:
            return dict(self._written)
        return {key: self._written[key] for document in documents for key in self._keys.get(document, ())}

    def _expire(self) -> None:
        limit = time.monotonic() - _SECONDS
        old = []
        for key, written in self._written.items():  # the oldest first
            if written.at > limit:
                break
            old.append(key)
        self.forget(old)
