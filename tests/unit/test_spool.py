"""Content on its way into the index: in memory while it is small, else in a file that leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ragstore.errors import TransientError
from ragstore.spool import HELD, SpoolFile

LARGE = HELD + 1


def test_small_content_stays_in_memory_until_somebody_wants_a_file(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"hello ")
        spooled.write(b"world")
        content, sha256 = spooled.finish()
    assert content.in_memory
    assert list(tmp_path.iterdir()) == []
    assert content.read_bytes() == b"hello world"
    assert content.stat().st_size == 11
    assert content.path().read_bytes() == b"hello world"
    assert not content.in_memory
    assert list(tmp_path.iterdir()) == [content.path()]
    assert sha256 == hashlib.sha256(b"hello world").hexdigest()
    content.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [HELD - 1, HELD, HELD + 1, 3 * HELD])
@pytest.mark.parametrize("piece", [1000, HELD, 4 * HELD])
def test_content_of_any_size_comes_back_as_it_was_written(tmp_path: Path, size: int, piece: int) -> None:
    written = os.urandom(size)
    with SpoolFile(tmp_path) as spooled:
        for start in range(0, size, piece):
            spooled.write(written[start : start + piece])
        assert spooled.size == size
        content, sha256 = spooled.finish()
    assert content.in_memory == (size <= HELD)
    assert content.read_bytes() == written
    assert content.stat().st_size == size
    assert sha256 == hashlib.sha256(written).hexdigest()
    assert content.path().name.startswith(sha256[:32])
    content.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, LARGE])
def test_starting_again_forgets_what_was_written(tmp_path: Path, size: int) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"x" * size)
        spooled.start_again()
        spooled.write(b"y" * 5)
        content, sha256 = spooled.finish()
    assert content.read_bytes() == b"y" * 5
    assert content.stat().st_size == 5
    assert sha256 == hashlib.sha256(b"y" * 5).hexdigest()


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_was_not_finished_leaves_no_file_behind(tmp_path: Path, size: int) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"x" * size)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10, LARGE])
def test_the_same_content_twice_is_two_files(tmp_path: Path, size: int) -> None:
    files = set()
    for _number in range(2):
        with SpoolFile(tmp_path) as spooled:
            spooled.write(b"x" * size)
            files.add(spooled.finish()[0].path())
    assert len(files) == 2


def test_a_folder_that_cannot_be_written_is_a_transient_error(tmp_path: Path) -> None:
    with SpoolFile(tmp_path / "missing") as spooled, pytest.raises(TransientError, match="spool"):
        spooled.write(b"x" * LARGE)
    with SpoolFile(tmp_path / "missing") as spooled:
        spooled.write(b"x")
        content, _sha256 = spooled.finish()
    with pytest.raises(TransientError, match="spool"):
        content.path()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_transient_error(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"x" * LARGE)
        os.close(spooled._descriptor)
        spooled._descriptor = os.open("/dev/full", os.O_WRONLY)
        with pytest.raises(TransientError, match="No space left"):
            spooled.write(b"x")
