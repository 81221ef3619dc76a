"""`ragstore worker` with a slow embedder; run by `test_soak.py`.

Arguments: a file to which every embedded text's hash is appended, the seconds of leases, and the command line of ragstore.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from ragstore.assembly import Connectors
from ragstore.cli import main
from ragstore.config import Settings
from ragstore.contracts import Embedder
from ragstore.models import text_hash
from ragstore.testing.faults import FaultyEmbedder
from ragstore.worker import follow, process

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECONDS_PER_BATCH = 0.1


class _Slow(FaultyEmbedder):
    """Takes time, so that a kill can hit it, and writes down what it was asked for before it answers."""

    def __init__(self, embedder: Embedder, log: Path) -> None:
        super().__init__(embedder)
        self._log = log

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        with self._log.open("a", encoding="ascii") as log:
            log.write("".join(f"{text_hash(text)}\n" for text in texts))
        time.sleep(_SECONDS_PER_BATCH)  # noqa: ASYNC251 - a busy processor
        return await super().embed(texts, purpose=purpose)


def _run() -> None:
    log, lease, *arguments = sys.argv[1:]
    plain = Connectors.embedder

    def slow(connectors: Connectors, kind: str, options: Mapping[str, Any], settings: Settings) -> Embedder:
        return _Slow(plain(connectors, kind, options, settings), Path(log))

    Connectors.embedder = slow  # type: ignore[assignment, method-assign]
    # A fleet gets over the death of a worker when its leases end: more often than once in two minutes, here.
    follow._LEASE_SECONDS = process.LEASE_SECONDS = float(lease)  # type: ignore[misc]
    sys.argv = ["ragstore", *arguments]
    main()


if __name__ == "__main__":
    _run()
