from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ragstore.errors import TransientError
from ragstore.spool import SpoolFile


def test_a_finished_file_holds_the_pieces_and_tells_their_hash(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"one ")
        spooled.write(memoryview(b"two"))
        assert spooled.size == 7
        file, sha256 = spooled.finish()
    assert file.read_bytes() == b"one two"
    assert sha256 == hashlib.sha256(b"one two").hexdigest()
    assert list(tmp_path.iterdir()) == [file]


def test_starting_again_forgets_what_was_written(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"much longer than the second attempt")
        spooled.start_again()
        spooled.write(b"short")
        file, sha256 = spooled.finish()
    assert file.read_bytes() == b"short"
    assert sha256 == hashlib.sha256(b"short").hexdigest()


def test_a_file_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled:
        spooled.write(b"x")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_same_content_twice_is_two_files(tmp_path: Path) -> None:
    files = set()
    for _number in range(2):
        with SpoolFile(tmp_path) as spooled:
            files.add(spooled.finish()[0])
    assert len(files) == 2


def test_a_folder_that_cannot_be_written_is_a_transient_error(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="spool"):
        SpoolFile(tmp_path / "missing")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_transient_error(tmp_path: Path) -> None:
    with SpoolFile(tmp_path) as spooled, Path("/dev/full").open("wb", buffering=0) as full:
        spooled._file.close()
        spooled._file = full
        with pytest.raises(TransientError, match="No space left"):
            spooled.write(b"x")
