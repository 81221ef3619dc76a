"""Text in; a file that holds all of it, or is as it was before, out."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(file: Path, text: str, *, replace: bool) -> None:
    """Write the file in one step, so that a full disk or a kill leaves no half of it.

    Raises `FileExistsError` where it is there and may not be replaced, `OSError` where it cannot be written.
    """
    if not replace and os.path.lexists(file):
        raise FileExistsError(file)
    file = file.resolve()  # of a link, the target is replaced and not the link
    beside = file.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
