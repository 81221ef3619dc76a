"""A lease that is prolonged by itself while a block runs, and without which the block can write no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

from ragstore.errors import IndexLockedError, OutageError, RagstoreError
from ragstore.ledger.leases import Lease, Leases
from ragstore.ledger.postgres import FENCE

_SECONDS: Final = 60.0
"""So long a pass that died keeps others out."""


@contextmanager
def holding(leases: Leases, name: str, seconds: float = _SECONDS) -> Iterator[None]:
    """Be the one who does this. Raises `IndexLockedError`, naming who does.

    Where the database cannot be reached for so long that somebody else may have begun, transactions of the block raise `OutageError`.
    """
    began = time.monotonic()
    lease = leases.acquire(name, seconds)
    if lease is None:
        raise IndexLockedError(
            f"another ragstore ({leases.owner_of(name) or 'gone by now'}) is at the {name!r} of this index; wait for it to end, or stop it "
            f"and run this again (one that died is forgotten after {seconds:.0f} seconds)"
        )
    keeper = _Keeper(leases, lease, seconds, began)
    keeper.start()
    FENCE.set(keeper.check)
    try:
        yield
    finally:
        FENCE.set(None)
        keeper.stop()


class _Keeper(threading.Thread):
    """Prolongs one lease until it is told to stop."""

    def __init__(self, leases: Leases, lease: Lease, seconds: float, began: float) -> None:
        super().__init__(name=f"lease {lease.name}", daemon=True)
        self._leases = leases
        self._lease = lease
        self._seconds = seconds
        self._until = began + seconds  # by our own clock, from before the database's was asked
        self._lost = False
        self._ended = threading.Event()

    @override
    def run(self) -> None:
        """An outage is waited for: unless somebody else took the lease, it can be prolonged when the server is back."""
        while not self._lost and not self._ended.wait(self._seconds / 4):
            asked = time.monotonic()
            try:
                renewed = self._leases.renew(self._lease, self._seconds)
            except RagstoreError:
                continue
            if renewed is None:
                self._lost = True
            else:
                self._until = asked + self._seconds

    def check(self) -> None:
        """Raises `OutageError` where somebody else may hold the lease."""
        if self._lost or time.monotonic() > self._until:
            raise OutageError(
                f"this process could not prolong its lease {self._lease.name!r} in time, and another may be at it by now; what was "
                "finished is kept: run this again"
            )

    def stop(self) -> None:
        """Let others have it; where that fails it expires."""
        self._ended.set()
        self.join(timeout=10)
        try:
            self._leases.release(self._lease)
        except RagstoreError:
            return
