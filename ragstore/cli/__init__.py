"""Words of a command line in; an exit code, with the answer on stdout and all else on stderr, out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_STDERR = 2
_INTERRUPTED = 130

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The console entry point `ragstore`. Ends the process with one of the codes of `outcome.Exit`."""
    _occupy_standard_files()
    # Numpy's BLAS starts a thread for each core when it is imported, a third of the time to a first answer; nothing here uses them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from ragstore.cli.outcome import run  # here, because whoever presses Ctrl-C while this is loading wants no traceback either

        code = run(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)


def _occupy_standard_files() -> None:
    """Where a caller closed stdin, stdout or stderr, the next file that is opened would take its number and receive what is printed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        continue
    os.close(descriptor)
