"""`ragstore copy`: another store in; the index in it as well, compared with the ledger, and the lines that switch to it, out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ragstore.cli import opening, progress, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.template import toml_string
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Copy the index to another store", epilog=EXIT_CODES)(copy)


@answers
def copy(
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="STORE",
            show_default=False,
            help="TYPE and its options, as they stand in [store]: 'lancedb path=/srv/index'; or a TOML file whose [store] it is.",
        ),
    ],
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Copy the index to another store, embedding nothing, and compare it there with the ledger.

    The index goes on with the store that it has, until [store] in the configuration names the other one. A copy that was stopped goes on
    where it was. Ends with 5 where the copy is not what the ledger lists.
    """
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    section = store_section(to)
    with open_index(opening.settings_for_reading(config)) as opened, progress.shown(terminal) as bar:
        copied = opened.copy_to(section, progress=bar)
    differs = copied.as_dict()
    if as_json:
        terminal.json({"chunks": copied.chunks, "written": copied.written, **differs})
    else:
        tables.show_names(differs, terminal)
        terminal.line(f"{tables.counted(copied.chunks, 'chunk')}, of which {copied.written:,} were sent now")
    if copied:
        terminal.note(
            "the copy is not what the ledger lists; run it again, and if that does not help: ragstore verify --repair, then again"
        )
        return Exit.DIFFERENT
    terminal.note(f"to go on with it, let the configuration say: {_as_toml(section)}")
    return Exit.DONE


def store_section(text: str) -> dict[str, Any]:
    """The `[store]` that is meant. Raises `ConfigError`."""
    if text.endswith(".toml"):
        try:
            found = tomllib.loads(Path(text).read_text(encoding="utf-8-sig")).get("store")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{text!r} cannot be read: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("type"), str):
            raise ConfigError(f"{text!r} has no [store] with a type")
        return found
    if not text.strip():
        raise ConfigError("--to is empty; name the type of the other store: lancedb, for one")
    kind, *options = text.split()
    section: dict[str, Any] = {"type": kind}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ConfigError(f"--to {text!r}: {option!r} is no option; write NAME=VALUE, or name a TOML file with a [store]")
        section[name] = _value(value)
    return section


def _value(text: str) -> object:
    """As TOML reads it; what is no TOML is text, so that paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _as_toml(section: Mapping[str, Any]) -> str:
    return "store = {" + ", ".join(f"{key} = {_literal(value)}" for key, value in section.items()) + "}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return toml_string(value) if isinstance(value, str) else str(value)
