"""A JSON file of index tags in; the tags of each path out, as the file stands at the moment of asking."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from ragstore.errors import ConfigError, TransientError
from ragstore_folder.clock import is_settled, signature

Tags = Mapping[str, Mapping[str, str]]

_PATIENCE = (0.02, 0.05, 0.1)
"""Seconds between attempts to read a file that is malformed, perhaps because somebody is writing it just now."""


class TagFile:
    """`{"path": {"key": "value"}}`: gives index tags, on which access may depend, to files of a folder.

    The file is read again whenever it changed. Raises `ConfigError` where it is missing or malformed, with the line where that is known:
    without its tags a blob might be shown to whom it is denied.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        # One value, so that a thread never sees the signature of one reading with the tags of another.
        self._last: tuple[str | None, Tags] = (None, {})

    def read(self) -> Tags:
        """Path -> its tags. Blocks for a moment where the file is being written."""
        for pause in _PATIENCE:
            try:
                return self._read()
            except ConfigError:
                time.sleep(pause)
        return self._read()

    def _read(self) -> Tags:
        try:
            last_seen, last_tags = self._last
            if last_seen is not None and signature(self._file.stat()) == last_seen:
                return last_tags
            with self._file.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = signature(status)
                # Decided before reading: a write within the same tick of the clock would not show in the signature.
                settled = is_settled(status)
                content = file.read()
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise ConfigError(f"the file of tags {str(self._file)!r} cannot be read: {error.strerror}; correct `tags`") from error
        except OSError as error:
            raise TransientError(f"the file of tags {str(self._file)!r} cannot be read: {error.strerror or error}") from error
        tags = _parse(content, str(self._file))
        self._last = (seen if settled else None, tags)
        return tags


def _parse(content: bytes, name: str) -> Tags:
    try:
        loaded = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8") from error
    except _DuplicateKeyError as error:
        raise ConfigError(f"{name}, {_line(content, error.key)}: the key {error.key!r} stands twice in one object; keep one") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f'{name}, line 1: expected an object {{"path": {{"key": "value"}}}}')
    for path, tags in loaded.items():
        if not isinstance(tags, dict):
            raise ConfigError(f'{name}, {_line(content, path)}: the tags of {path!r} must be an object {{"key": "value"}}')
        for key, value in tags.items():
            if not isinstance(value, str):
                raise ConfigError(f"{name}, {_line(content, path, key)}: the tag {key!r} of {path!r} must be a string in quotes")
    return loaded


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _line(content: bytes, *keys: str) -> str:
    """Where the last of the keys stands after the ones before it; the parser does not say, so the text is searched."""
    text = content.decode("utf-8-sig")
    at = 0
    for key in keys:
        found = max(text.find(form, at) for form in (json.dumps(key), json.dumps(key, ensure_ascii=False)))
        at = max(found, at)
    return f"line {text.count(chr(10), 0, at) + 1}"
