"""A zip or OLE file in; what kind of document it holds out, after a guard that no archive gets past that would inflate too far."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragstore.errors import PoisonError
from ragstore.parsing.media_types import DOCX, PPTX, XLSX, Kind

TOTAL_LIMIT = 200 * 2**20
"""Bytes that all members may declare together."""
MEMBER_LIMIT = 10 * 2**20
"""Bytes up to which a member may have any ratio: small ones cannot hurt, and Office writes some that shrink a thousandfold."""
RATIO_LIMIT = 100
ENTRY_LIMIT = 10_000

_ODF = "application/vnd.oasis.opendocument."
_PACKAGES: tuple[tuple[str, Kind, str], ...] = (
    ("word/document", "office", DOCX),
    ("ppt/presentation", "office", PPTX),
    ("xl/workbook", "office", XLSX),
)
_STREAMS: tuple[tuple[str, Kind, str], ...] = (
    ("WordDocument", "office", "application/msword"),
    ("PowerPoint Document", "office", "application/vnd.ms-powerpoint"),
    ("Workbook", "office", "application/vnd.ms-excel"),
    ("Book", "office", "application/vnd.ms-excel"),
    ("__properties_version1.0", "outlook", "application/vnd.ms-outlook"),
)


@contextmanager
def guarded_zip(file: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, opened, after its directory has been checked. Members are read in memory only: a name never becomes a path.

    Raises `PoisonError`: `corrupt` for a broken archive, `too_large` for one that inflates beyond the limits.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            check(archive)
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise PoisonError("corrupt", f"the zip container is broken: {error}") from error


def check(archive: zipfile.ZipFile) -> None:
    """Raise `PoisonError("too_large", ...)` for an archive that would inflate beyond the limits."""
    entries = archive.infolist()
    if len(entries) > ENTRY_LIMIT:
        raise PoisonError("too_large", f"the zip container has {len(entries)} entries; the limit is {ENTRY_LIMIT}")
    total = sum(entry.file_size for entry in entries)
    if total > TOTAL_LIMIT:
        raise PoisonError("too_large", f"the zip container inflates to {total} bytes; the limit is {TOTAL_LIMIT}")
    for entry in entries:
        if entry.file_size > MEMBER_LIMIT and entry.file_size > RATIO_LIMIT * max(entry.compress_size, 1):
            reason = f"{entry.filename!r} in the zip container inflates to {entry.file_size} bytes, over {RATIO_LIMIT} to 1"
            raise PoisonError("too_large", reason)


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of a member, whose header may lie about its size.

    Raises `PoisonError`: `corrupt` where there is none of that name, `encrypted`, or `too_large`.
    """
    try:
        entry = archive.getinfo(name)
        if entry.flag_bits & 1:
            raise PoisonError("encrypted", f"{name!r} in the zip container needs a password")
        with archive.open(entry) as stream:
            data = stream.read(TOTAL_LIMIT + 1)
    except KeyError as error:
        raise PoisonError("corrupt", f"the zip container has no {name!r}") from error
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError, OSError) as error:
        raise PoisonError("corrupt", f"{name!r} in the zip container cannot be read: {error}") from error
    if len(data) > TOTAL_LIMIT:
        raise PoisonError("too_large", f"{name!r} in the zip container inflates beyond {TOTAL_LIMIT} bytes")
    return data


def in_zip(file: Path) -> tuple[Kind, str]:
    """What document this zip file is. Raises `PoisonError("unsupported", ...)` for an archive of files."""
    with guarded_zip(file) as archive:
        names = archive.namelist()
        for prefix, kind, media_type in _PACKAGES:
            if any(name.startswith(prefix) for name in names):
                return kind, media_type
        if "mimetype" in names:
            media_type = member(archive, "mimetype")[:200].decode("ascii", "replace").strip()
            if media_type == "application/epub+zip":
                return "epub", media_type
            if media_type.startswith(_ODF):
                return "opendocument", media_type
        if "META-INF/container.xml" in names:
            return "epub", "application/epub+zip"
        if "content.xml" in names:
            return "opendocument", _ODF + "text"
    raise PoisonError("unsupported", "a zip archive; put its files into the store one by one")


def in_ole(file: Path) -> tuple[Kind, str]:
    """What document this OLE file is. Raises `PoisonError`: `encrypted`, `unsupported` or `corrupt`."""
    import olefile

    try:
        with olefile.OleFileIO(file) as container:
            streams = {entry[0] for entry in container.listdir()}
    except Exception as error:  # the reader of a broken file raises whatever its arithmetic leads to
        raise PoisonError("corrupt", f"the OLE container is broken: {error}") from error
    if {"EncryptedPackage", "EncryptionInfo"} & streams:
        raise PoisonError("encrypted", "an Office file that needs a password")
    for name, kind, media_type in _STREAMS:
        if name in streams:
            return kind, media_type
    raise PoisonError("unsupported", "an OLE container of no kind that can be read")
