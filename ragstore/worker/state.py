"""How a worker is in; a note of it in the ledger, which `ragstore status` shows, out."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from ragstore.ledger import Ledger

_KEY: Final = "worker"
_STALE_SECONDS: Final = 60.0
"""A note that was not renewed for so long is of a worker that died."""


class StateNote:
    """Says that this worker lives, and what is wrong."""

    def __init__(self, ledger: Ledger, owner: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._started = time.time()

    def note(self, *, outages: Sequence[str], held_back: int) -> None:
        """Renew it."""
        made = {"owner": self._owner, "started": self._started, "seen": time.time(), "outages": list(outages), "held_back": held_back}
        self._ledger.set_setting(_KEY, json.dumps(made))

    def ended(self) -> None:
        """The worker stops by itself."""
        self._ledger.set_setting(_KEY, None)


def read_state(ledger: Ledger) -> dict[str, Any] | None:
    """The latest note of a worker that lives, as JSON values; None where none does."""
    text = ledger.setting(_KEY)
    found: dict[str, Any] | None = json.loads(text) if text else None
    if found is None or time.time() - found["seen"] > _STALE_SECONDS:
        return None
    return found
