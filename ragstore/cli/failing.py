"""`ragstore failures`: the blobs that cannot be indexed, with the reason; try them again, or hear no more of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Blob = Annotated[str | None, typer.Argument(metavar="BLOB", show_default=False, help="container/path, as `list` shows it. Default: all.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands; without a sub-command it lists."""
    group = typer.Typer(invoke_without_command=True, epilog=EXIT_CODES, rich_markup_mode=None)
    group.callback()(failures)
    group.command("list", epilog=EXIT_CODES)(list_failures)
    group.command("retry", epilog=EXIT_CODES)(retry)
    group.command("drop", epilog=EXIT_CODES)(drop)
    app.add_typer(group, name="failures", short_help="List, retry or drop what cannot be indexed")


def failures(
    context: typer.Context, *, config: Config = None, as_json: AsJson = False, verbose: Verbose = False, quiet: Quiet = False
) -> Exit:
    """List the blobs that cannot be indexed, with the reason of each (exit code 0); `retry` or `drop` them."""
    if context.invoked_subcommand is not None:
        return Exit.DONE
    return list_failures(config=config, as_json=as_json, verbose=verbose, quiet=quiet)


@answers
def list_failures(*, config: Config = None, as_json: AsJson = False, verbose: Verbose = False, quiet: Quiet = False) -> Exit:
    """List them, oldest first."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    with open_index(opening.settings_for_reading(config)) as opened:
        found = opened.failures()
    if as_json:
        terminal.json(found)
    elif found:
        for failure in found:
            _show(failure, terminal)
        terminal.note("mend them, leave them out ([source] exclude), or hear no more of them: ragstore failures drop")
    else:
        terminal.note("every blob could be indexed")
    return Exit.DONE


@answers
def retry(*, blob: Blob = None, config: Config = None, as_json: AsJson = False, verbose: Verbose = False, quiet: Quiet = False) -> Exit:
    """Have the next `index` try them again."""
    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    number = _change(blob, config, retry=True)
    return _told(number, terminal, "will be tried again by the next: ragstore index")


@answers
def drop(*, blob: Blob = None, config: Config = None, as_json: AsJson = False, verbose: Verbose = False, quiet: Quiet = False) -> Exit:
    """Report them no more, until the blob changes."""
    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    number = _change(blob, config, retry=False)
    return _told(number, terminal, "will not be reported again without a change")


def _change(blob: str | None, config: Path | None, *, retry: bool) -> int:
    from ragstore.blocking import open as open_index

    with open_index(opening.settings_for_reading(config)) as opened:
        number = opened.retry_failures(blob) if retry else opened.drop_failures(blob)
    if blob is not None and not number:
        raise ConfigError(f"{blob!r} is not among the failures; see their names with: ragstore failures")
    return number


def _show(failure: Mapping[str, Any], terminal: Terminal) -> None:
    """Tab-separated in a pipe; on a terminal the name with the reason below it, because a table would cut up both."""
    if not terminal.styled:
        terminal.line("\t".join(plain(str(failure[column])) for column in ("blob", "kind", "reason", "attempts", "since")))
        return
    from rich.padding import Padding
    from rich.text import Text

    terminal.show(Text(plain(failure["blob"]), style="bold"))
    since = f"  ({tables.counted(failure['attempts'], 'attempt')}, since {failure['since'][:16].replace('T', ' ')} UTC)"
    terminal.show(Padding(Text(plain(f"{failure['kind']}: {failure['reason']}")).append(since, style="dim"), (0, 0, 0, 3)))


def _told(number: int, terminal: Terminal, what: str) -> Exit:
    if terminal.as_json:
        terminal.json({"blobs": number})
    else:
        terminal.line(f"{tables.counted(number, 'blob')} {what}")
    return Exit.DONE
