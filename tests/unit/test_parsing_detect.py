"""Which parser reads what: content first, then the declared type, then the extension."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ragstore.errors import PoisonError
from ragstore.parsing.detect import detect

PDF = b"%PDF-1.4\n%%EOF\n"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def write(folder: Path, data: bytes) -> Path:
    file = folder / "spooled"
    file.write_bytes(data)
    return file


@pytest.mark.parametrize(
    ("data", "name", "declared", "media_type"),
    [
        (PDF, "a.txt", "text/plain", "application/pdf"),
        (PDF, "a", None, "application/pdf"),
        (b"{\\rtf1 x}", "a.doc", "application/msword", "application/rtf"),
        (b"<!DOCTYPE html><p>x", "a.pdf", "application/pdf", "text/html"),
        (b"\n<!-- c --><html><p>x", "a", None, "text/html"),
        (b"# x\n", "a.md", "application/octet-stream", "text/markdown"),
        (b"# x\n", "a.md", "text/plain", "text/markdown"),
        (b"# x\n", "a.txt", "text/markdown; charset=utf-8", "text/markdown"),
        (b"a,b\n", "a.dat", "text/csv", "text/csv"),
        (b"print(1)\n", "tool.py", None, "text/x-python"),
        (b"FROM scratch\n", "app/Dockerfile", None, "text/x-dockerfile"),
        (b"all:\n", "Makefile", None, "text/x-makefile"),
        (b"<?xml version='1.0'?><a/>", "a", None, "application/xml"),
        (b"From: a@b.c\nTo: d@e.f\nSubject: hi\n\nx", "a", None, "message/rfc822"),
        (b"From a@b.c Mon Jan  1 00:00:00 2024\nFrom: x\n", "a", None, "application/mbox"),
        (b"From here it is text.\n", "a", None, "text/plain"),
        (b"words", "a.unheard-of", "application/x-unheard-of", "text/plain"),
        (b"BZh is how this sentence begins", "a.txt", None, "text/plain"),
        (b"The %PDF- marker stands in this text.\n", "a.md", None, "text/markdown"),
        (b"x", "a.txt", "text/plain; charset", "text/plain"),
        (b"x", "a.txt", ";;;", "text/plain"),
    ],
)
def test_content_wins_over_the_declared_type_and_that_over_the_extension(
    tmp_path: Path, data: bytes, name: str, declared: str | None, media_type: str
) -> None:
    assert detect(write(tmp_path, data), name=name, declared=declared).media_type == media_type


@pytest.mark.parametrize(
    ("data", "name", "declared", "kind"),
    [
        (b"", "a.pdf", "application/pdf", "empty"),
        (PNG, "a.docx", None, "mislabelled"),
        (PNG, "a.png", "image/png", "unsupported"),
        (b"\x7fELF\x02\x01\x01\x00", "tool", None, "unsupported"),
        (b"\x1f\x8b\x08\x00", "a.tar.gz", "application/gzip", "unsupported"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "a.webp", None, "unsupported"),
        (b"\x00\x00\x00\x20ftypisom", "a.mp4", None, "unsupported"),
        (b"plain words", "a.docx", None, "corrupt"),
        (b"PK\x03\x04 and nothing more", "a.docx", None, "corrupt"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 and nothing more", "a.doc", None, "corrupt"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_kind(tmp_path: Path, data: bytes, name: str, declared: str | None, kind: str) -> None:
    with pytest.raises(PoisonError) as caught:
        detect(write(tmp_path, data), name=name, declared=declared)
    assert caught.value.kind == kind


def test_the_declared_charset_is_kept(tmp_path: Path) -> None:
    found = detect(write(tmp_path, b"x"), name="a.txt", declared='text/plain; charset="Windows-1256"')
    assert found.charset == "windows-1256"


@pytest.mark.parametrize("member", ["../../etc/passwd", "a\x00b", "/abs", "C:\\x", "word"])
def test_an_archive_of_files_is_unsupported_and_its_names_never_become_paths(tmp_path: Path, member: str) -> None:
    file = tmp_path / "inner" / "a.zip"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, "x")
    with pytest.raises(PoisonError) as caught:
        detect(file, name="a.zip", declared="application/zip")
    assert caught.value.kind == "unsupported"
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "a.zip"]


@pytest.mark.parametrize(("entries", "size"), [(1, 300 * 2**20), (20, 11 * 2**20), (10_001, 1)])
def test_an_archive_that_would_inflate_too_far_is_too_large(tmp_path: Path, entries: int, size: int) -> None:
    file = tmp_path / "bomb.docx"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(entries):
            with archive.open(f"word/{number}", "w", force_zip64=True) as member:
                for _ in range(max(size // 2**20, 1)):
                    member.write(bytes(min(size, 2**20)))
            if number == 1 and size > 2**20:
                break
    with pytest.raises(PoisonError) as caught:
        detect(file, name="bomb.docx", declared=None)
    assert caught.value.kind == "too_large"
