"""`ragstore status` and `ragstore verify`: an index in; what is in it, and where it differs from its source, out."""

from __future__ import annotations

from typing import Annotated

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Show counts, embedder, store and last pass", epilog=EXIT_CODES)(status)
    app.command(short_help="Compare source, ledger and store, and mend them", epilog=EXIT_CODES)(verify)


@answers
def status(*, config: Config = None, as_json: AsJson = False, verbose: Verbose = False, quiet: Quiet = False) -> Exit:
    """Show how much is indexed, with which embedder, in which store, and when the last pass was."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    with open_index(opening.settings_for_reading(config)) as opened:
        found = opened.status()
    if as_json:
        terminal.json(found)
    else:
        tables.show_status(found, terminal)
    return Exit.DONE


@answers
def verify(
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what differs, and compare again.")] = False,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Compare source, ledger and store: what is missing, stale or orphaned. Ends with 5 where something differs."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    with open_index(opening.settings_for_reading(config)) as opened:
        found = opened.verify(repair=repair)
    groups = found.as_dict()
    if as_json:
        terminal.json(groups)
    else:
        tables.show_names(groups, terminal)
        counts = ", ".join(f"{len(names)} {heading}" for heading, names in groups.items())
        terminal.line(f"{counts}{'' if repair or not found else '; mend it with: ragstore verify --repair'}")
    return Exit.DIFFERENT if found else Exit.DONE
