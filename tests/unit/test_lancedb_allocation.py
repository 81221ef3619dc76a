"""Large blocks go back to the system when they are freed, unless whoever runs the process has set the allocator."""

from __future__ import annotations

import ctypes
import platform

import pytest

from ragstore_lancedb import allocation


class CountingLibrary:
    """Stands where the C library is loaded; nothing of this process is changed by it."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.calls.append((parameter, value))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CountingLibrary:
    library = CountingLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    for name in ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    return library


def test_glibc_is_told_to_map_large_blocks(library: CountingLibrary) -> None:
    allocation.give_back_large_blocks()
    assert (-3, 131072) in library.calls


@pytest.mark.parametrize("variable", ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_environment_says_of_the_allocator_stays(library: CountingLibrary, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    allocation.give_back_large_blocks()
    assert library.calls == []


def test_another_c_library_is_left_alone(library: CountingLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    allocation.give_back_large_blocks()
    assert library.calls == []
