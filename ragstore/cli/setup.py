"""`ragstore init`: a folder or a URL in, a commented `ragstore.toml` to start from out."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ragstore.cli import opening
from ragstore.cli.files import write_whole
from ragstore.cli.options import AsJson, ConfigToWrite, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.cli.template import AccessMode

Place = Annotated[
    str | None,
    typer.Argument(
        metavar="FOLDER|URL",
        show_default=False,
        help="What to index: a folder or the URL of an Azure container. Default: this folder.",
    ),
]


_STARTERS: Final[dict[tuple[str, AccessMode], dict[str, str]]] = {
    ("folder", "open"): {},
    ("folder", "groups"): {"principals.json": "[]\n", "tags.json": "{}\n"},
    ("azure-blob", "open"): {},
    ("azure-blob", "groups"): {"principals.json": "[]\n"},
    ("folder", "azure"): {"principals.json": "[]\n", "assignments.json": "[]\n", "tags.json": "{}\n"},
    ("azure-blob", "azure"): {"principals.json": "[]\n", "assignments.json": "[]\n"},
}
"""What the configuration refers to, by type of source and access mode: it must be there for the first run."""


_SAYS_WHO: Final[dict[AccessMode, tuple[str, ...]]] = {
    "open": (),
    "groups": ("principals.json", "access-rules.toml"),
    "azure": ("principals.json", "assignments.json", "roles.json", "deny.json"),
}
"""Files that the configuration may refer to, and that nobody should find."""


class Access(StrEnum):
    """The access modes that a file can start with."""

    OPEN = "open"
    GROUPS = "groups"
    AZURE = "azure"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Write a commented ragstore.toml", epilog=EXIT_CODES)(init)


@answers
def init(
    *,
    source: Place = None,
    access: Annotated[
        Access | None,
        typer.Option(
            "--access",
            help="`open`: whoever asks reads everything (default for a folder). `groups`: each blob lists its readers (default for a URL). "
            "`azure`: role assignments and their conditions decide.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    config: ConfigToWrite = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Write a commented ragstore.toml, with every option and its default."""
    from ragstore.cli.template import render

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    file = config or opening.DEFAULT_FILE
    section = _relative_to(opening.source_section(source or "."), file)
    mode: AccessMode = access.value if access is not None else "open" if section["type"] == "folder" else "groups"
    beside = _STARTERS[section["type"], mode]
    written = [_write(file, render(section, mode, exclude=_within(section, file, mode)), force=force)]
    for starter, text in beside.items():
        if not (file.parent / starter).exists():
            written.append(_write(file.parent / starter, text, force=False))
    if as_json:
        terminal.json({"files": [str(name) for name in written], "access": mode})
    else:
        for name in written:
            terminal.line(f"wrote {name}")
    terminal.note(f"access mode {mode!r}: {_readers(section['type'], mode)}; see [access]. Next: ragstore plan, then ragstore index")
    return Exit.DONE


def _readers(kind: str, mode: AccessMode) -> str:
    if mode == "open":
        return "every caller may read everything"
    if mode == "azure":
        return "role assignments decide: write them to assignments.json, who asks to principals.json, then say: ragstore policy check"
    where = """, given by tags.json: {"reports/may.pdf": {"allowed": "staff hr"}}""" if kind == "folder" else ""
    asks = """[{"id": "ada", "name": "Ada", "groups": ["staff"]}]"""
    return f"a blob is read by the ids in its index tag 'allowed'{where}; nobody is allowed yet. Who asks stands in principals.json: {asks}"


def _within(section: dict[str, str], file: Path, mode: AccessMode) -> list[str]:
    """Globs for the files that say who may read what, where they would be indexed themselves; the source leaves out its tags anyway."""
    folder, home = (file.parent / section.get("path", "")).resolve(), file.parent.resolve()
    if section["type"] != "folder" or not home.is_relative_to(folder):
        return []
    names = [file.name, *_SAYS_WHO[mode]]
    inside = [str(PurePosixPath(home.relative_to(folder).as_posix(), name)) for name in names]
    return [name for name in inside if name != str(opening.DEFAULT_FILE)]  # which the source leaves out as well


def _relative_to(section: dict[str, str], file: Path) -> dict[str, str]:
    """A folder as it must be written in a file that may lie elsewhere: relative where it is below, so that both can be moved together."""
    if section["type"] != "folder":
        if opening.without_sas(section["url"]) != section["url"]:
            raise ConfigError("the URL holds a shared access signature, and a file may not: leave it out, and name its variable in sas_env")
        return section
    folder, home = Path(section["path"]).expanduser().absolute(), file.parent.absolute()
    path = os.path.relpath(folder, home) if folder.is_relative_to(home) else str(folder)
    return {**section, "path": path if path == "." or Path(path).is_absolute() else f"./{path}"}


def _write(file: Path, text: str, *, force: bool) -> Path:
    try:
        write_whole(file, text, replace=force)
    except FileExistsError:
        raise ConfigError(f"{str(file)!r} is there already; change it, or replace it with: ragstore init --force") from None
    except OSError as error:
        raise ConfigError(f"{str(file)!r} cannot be written: {error.strerror or error}") from error
    return file
