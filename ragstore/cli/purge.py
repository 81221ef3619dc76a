"""`ragstore purge`: a blob's name in; nothing of it left in the index, and the proof of that, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain

if TYPE_CHECKING:
    from ragstore.ingest.purge import Erasure


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Erase all of one blob, and prove it", epilog=EXIT_CODES)(purge)


@answers
def purge(
    *,
    blob: Annotated[
        str, typer.Argument(metavar="BLOB", show_default=False, help="container/path; account/container/path where that means several.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Erase it although it is still in its source, or that cannot be asked.")] = False,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Erase all that the index holds of BLOB: rows, old versions of the store, cached vectors, spool, queue, quarantine and history.

    With it go turns of conversations that were made of it. Then every place is looked at again. Ends with 5 where something is left; with
    4, before anything is done, where the blob is still in its source. The whole store is written anew, so it takes as long as copying it.
    Run it again to finish what was stopped.
    """
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    with open_index(opening.settings_for_reading(config)) as opened:
        done = opened.purge(blob, force=force)
    if as_json:
        terminal.json(done.as_dict())
    else:
        _show(done, terminal)
    if done.in_source is not False:
        terminal.note("the next pass indexes it again if it is still in its source: delete it there, or leave it out ([source] exclude)")
    return Exit.DIFFERENT if done.left else Exit.DONE


def _show(done: Erasure, terminal: Terminal) -> None:
    rows = [{"what": kind.replace("_", " "), "removed": done.removed.get(kind, 0), "left": left} for kind, left in done.found.items()]
    tables.show_rows(rows, ["what", "removed", "left"], terminal, f"purged {done.blob.name}")
    searched = f"{tables.counted(done.files, 'file')} of store and ledger searched for {tables.counted(done.samples, 'sample')} of it"
    if not done.left:
        terminal.line(f"nothing is left; {searched}")
        return
    for left in done.left:
        terminal.line(f"left\t{plain(left)}")
    terminal.line(f"something is left; {searched}; when nobody else uses the index, run it again: ragstore purge")
