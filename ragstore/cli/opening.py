"""`--config` and `SOURCE` in, the settings to work with out; without a file, an index in `./.ragstore` that remembers its source."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ragstore.cli.files import write_whole
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.config import Settings

DEFAULT_FILE: Final = Path("ragstore.toml")
_REMEMBERED: Final = Path(".ragstore", "source.json")
_LEDGER: Final = Path(".ragstore", "ledger.db")
"""It is there from the beginning of the first pass, which may be under way or killed; the source is remembered at its end."""
_SAID_BY_THE_ARGUMENT: Final = ("RAGSTORE_SOURCE__TYPE", "RAGSTORE_SOURCE__PATH", "RAGSTORE_SOURCE__URL")


def settings_for_reading(config: Path | None) -> Settings:
    """The settings for a command that looks at an index. Raises `ConfigError` where there is neither a file nor an index."""
    from ragstore.config import load

    file = _file(config)
    return load(file) if file else _without_file(_remembered(), source_needed=not _LEDGER.exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a pass works with."""

    settings: Settings
    to_remember: Mapping[str, str] | None
    """The source of an index without a file, which the next pass goes on with."""

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Remember the source when the block ends, also where it is stopped, but not where the source or the set-up is wrong."""
        try:
            yield
        except ConfigError:
            raise
        except BaseException:
            with suppress(OSError):  # what stopped the pass is the news, not that the disk is full for this as well
                self._remember()
            raise
        self._remember()

    def _remember(self) -> None:
        if self.to_remember is not None:
            _remember(self.to_remember)


def settings_for_indexing(config: Path | None, source: str | None, terminal: Terminal) -> Pass:
    """The settings for a pass over `source`, which takes the place of the configured one.

    Where there is no file, the access that this means is said aloud. Raises `ConfigError` as the functions beside it do.
    """
    from ragstore.config import load

    where = source_section(source) if source is not None else None
    file = _file(config)
    if file is not None:
        settings = load(file)
        settings = _with_source(settings, where) if where else settings
        _warn_of_no_readers(settings, terminal)
        return Pass(settings=settings, to_remember=None)
    before = _remembered()
    where = where or before
    settings = _without_file(where)
    if where is not None and before is not None and _place(where) != _place(before):
        terminal.note(f"./.ragstore held the index of {_place(before)!r}; what is not in {_place(where)!r} leaves it")
    terminal.note(_announcement(settings))
    if where is not None and "?" in where.get("url", ""):
        terminal.note("the shared access signature of the URL is not remembered; the next pass needs it again, or RAGSTORE_SOURCE__SAS_ENV")
    return Pass(settings=settings, to_remember=where)


def _warn_of_no_readers(settings: Settings, terminal: Terminal) -> None:
    """Files have no metadata, and tags only where a file gives them: a list of readers that cannot exist is a slip, not a decision."""
    if settings.access.rules is not None or settings.access.mode != "groups":
        return
    for source in settings.source:
        if source.type == "folder" and (settings.access.metadata_key or not source.options.get("tags")):
            what = "its files have no metadata" if settings.access.metadata_key else "its files have no index tags"
            terminal.note(
                f"nobody may read anything from the folder {source.options.get('path')!r}, because {what}: "
                "name a file of tags in [source] tags and its key in [access] tag_key, or a file of globs in [access] rules"
            )


def source_section(source: str) -> dict[str, str]:
    """`[source]` for a folder or a URL. Raises `ConfigError` for a folder that is not there, or a URL that no source reads."""
    scheme, separator, _ = source.partition("://")
    if separator:
        if scheme.lower() not in ("http", "https"):
            raise ConfigError(f"{source!r} is no source: give a folder, or https://ACCOUNT.blob.core.windows.net/CONTAINER")
        if not urlsplit(source).path.strip("/"):
            raise ConfigError(f"{source!r} names an account and no container: https://ACCOUNT.blob.core.windows.net/CONTAINER")
        return {"type": "azure-blob", "url": source}
    folder = Path(source).expanduser()
    if not source.strip() or not folder.is_dir():
        what = "is a file, not a folder" if folder.is_file() else "is no folder here"
        raise ConfigError(f"{source!r} {what}; give a folder, or https://ACCOUNT.blob.core.windows.net/CONTAINER")
    return {"type": "folder", "path": source}


def _file(config: Path | None) -> Path | None:
    if config is not None:
        return config
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _without_file(where: Mapping[str, str] | None, *, source_needed: bool = True) -> Settings:
    from ragstore.config import from_mapping

    data: dict[str, Any] = {"access": {"mode": "open"}}
    environ = dict(os.environ)
    if where is not None:
        data["source"] = dict(where)
        environ = _without_source(environ)
    settings = from_mapping(data, base=Path.cwd(), environ=environ)
    if source_needed and not settings.source:
        raise ConfigError(
            "there is no ragstore.toml here, and no index of an earlier run; "
            "run: ragstore index FOLDER, or write a configuration with: ragstore init FOLDER, or name one with --config FILE"
        )
    return settings


def _with_source(settings: Settings, where: Mapping[str, str]) -> Settings:
    """The argument is relative to where the command runs, not to where the file lies. A configured place keeps its tags and all."""
    from ragstore.config import from_mapping

    absolute = {key: str(Path(value).expanduser().absolute()) if key == "path" else value for key, value in where.items()}
    named = _address(absolute, settings.base)
    configured = tuple(source for source in settings.source if _address(source.options, settings.base) == named)
    if not configured:
        alone = from_mapping({"access": {"mode": "open"}, "source": absolute}, base=settings.base, environ=_without_source(os.environ))
        configured = alone.source
    # One source was named, not the whole index: what came from others stays.
    guard = settings.guard.model_copy(update={"other_containers": "keep"})
    return settings.model_copy(update={"source": configured, "guard": guard})


def _address(where: Mapping[str, Any], base: Path) -> str:
    """Equal for two ways to write one place. A URL with a shared access signature is another one: it brings its own credential."""
    if "path" in where:
        return os.path.realpath(base / Path(where["path"]).expanduser())
    return str(where.get("url") or "").rstrip("/")


def _without_source(environ: Mapping[str, str]) -> dict[str, str]:
    """Options such as `RAGSTORE_SOURCE__CONNECTION_STRING_ENV` still count; where the source is, the argument says."""
    return {name: value for name, value in environ.items() if name not in _SAID_BY_THE_ARGUMENT}


def _announcement(settings: Settings) -> str:
    mode = settings.access.mode
    readers = 'whoever reads this folder may search everything (access mode "open")' if mode == "open" else f'access mode "{mode}"'
    return f"no ragstore.toml here, so the defaults: index in ./.ragstore, {readers}; to change that: ragstore init"


def _place(where: Mapping[str, str]) -> str:
    return where.get("path") or without_sas(where.get("url") or "")


def without_sas(url: str) -> str:
    """The URL without its query, in which a shared access signature stands: a secret, which no file and no message may hold."""
    return url.partition("?")[0].partition("#")[0]


def _remembered() -> dict[str, str] | None:
    try:
        found = json.loads(_REMEMBERED.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(_REMEMBERED)!r} cannot be read ({error}); remove it and run: ragstore index FOLDER") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f"{str(_REMEMBERED)!r} names no source; remove it and run: ragstore index FOLDER")
    return found


def _remember(where: Mapping[str, str]) -> None:
    kept = {**where, "url": without_sas(where["url"])} if "url" in where else dict(where)
    _REMEMBERED.parent.mkdir(mode=0o700, exist_ok=True)
    write_whole(_REMEMBERED, json.dumps(kept) + "\n", replace=True)
