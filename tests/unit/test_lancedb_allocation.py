"""Large blocks go back to the system when they are freed, unless whoever runs the process has set the allocator."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from ragstore_lancedb import allocation


class CountingLibrary:
    """Stands where the C library is loaded; nothing of this process is changed by it."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.trimmed = 0

    def mallopt(self, parameter: int, value: int) -> int:
        self.calls.append((parameter, value))
        return 1

    def malloc_trim(self, _keep: int) -> int:
        self.trimmed += 1
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
    allocation.give_back_free_pages()
    assert (library.calls, library.trimmed) == ([], 0)


def test_glibc_is_told_to_give_back_free_pages(library: CountingLibrary) -> None:
    allocation.give_back_free_pages()
    assert library.trimmed == 1


def test_another_c_library_is_left_alone(library: CountingLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    allocation.give_back_large_blocks()
    allocation.give_back_free_pages()
    assert (library.calls, library.trimmed) == ([], 0)


def pool_of_a_new_process(**environment: str) -> str:
    program = (
        "import os, ragstore_lancedb, pyarrow; print(pyarrow.default_memory_pool().backend_name, 'ARROW_DEFAULT_MEMORY_POOL' in os.environ)"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run([sys.executable, "-c", program], env=inherited | environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_arrow_allocates_from_the_system_and_the_environment_stays_as_it_was() -> None:
    assert pool_of_a_new_process() == "system False"


def test_the_pool_that_the_environment_names_for_arrow_stays() -> None:
    assert pool_of_a_new_process(ARROW_DEFAULT_MEMORY_POOL="mimalloc") == "mimalloc True"


@pytest.mark.parametrize(
    ("bound", "variable", "value"),
    [
        (allocation.bound_read_ahead, "LANCE_DEFAULT_IO_BUFFER_SIZE", str(32 * 2**20)),
        (allocation.bound_text_partitions, "LANCE_FTS_PARTITION_SIZE", "32"),
    ],
)
def test_lance_holds_as_much_as_the_environment_says_or_32_mb(
    monkeypatch: pytest.MonkeyPatch, bound: Callable[[], None], variable: str, value: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    bound()
    assert os.environ[variable] == value
    monkeypatch.setenv(variable, "1000")
    bound()
    assert os.environ[variable] == "1000"
