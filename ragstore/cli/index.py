"""`ragstore index` and `ragstore plan`: a source in; an index in step with it, or what that would take, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ragstore.cli import opening, progress, tables
from ragstore.cli.options import AsJson, Config, Quiet, SourceArgument, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.ingest.report import SyncReport


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(short_help="Show what `index` would do, and what it would cost", epilog=EXIT_CODES)(plan)
    app.command(short_help="Bring the index in step with its source", epilog=EXIT_CODES)(index)


@answers
def plan(
    *,
    source: SourceArgument = None,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Show what `index` would do, changing nothing: blobs, chunks to embed and to reuse, tokens, price."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    settings = opening.settings_for_indexing(config, source, terminal).settings
    with open_index(settings) as opened, progress.shown(terminal) as bar:
        report = opened.plan(progress=bar)
    _tell(report, terminal, tables.PLANNED, why="the reasons stand above, those of an earlier run in: ragstore failures")
    return Exit.DONE


@answers
def index(
    *,
    source: SourceArgument = None,
    config: Config = None,
    allow_mass_delete: Annotated[
        bool, typer.Option("--allow-mass-delete", help="Go on although much of what is indexed is missing in the source.")
    ] = False,
    reembed: Annotated[bool, typer.Option("--reembed", help="Embed everything again where [embedder] is another one than before.")] = False,
    access_only: Annotated[
        bool,
        typer.Option("--access-only", help="Read tags, metadata and ACLs only, and no content: what changed there counts at once."),
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Bring the index in step with its source, in one pass: only what changed is read, and only new text is embedded."""
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    work = opening.settings_for_indexing(config, source, terminal)
    if access_only and (reembed or allow_mass_delete):
        raise ConfigError("--access-only reads no content and deletes nothing: leave out --reembed and --allow-mass-delete")
    with work.remembered(), open_index(work.settings) as opened, progress.shown(terminal) as bar:
        if access_only:
            report = opened.refresh_access(progress=bar)
        else:
            report = opened.sync(allow_mass_delete=allow_mass_delete, reembed=reembed, progress=bar)
    _tell(report, terminal, tables.APPLIED, why="see why with: ragstore failures")
    if report.held_back:
        return Exit.STOPPED
    return Exit.DONE if report.is_clean else Exit.INCOMPLETE


def _tell(report: SyncReport, terminal: Terminal, title: str, *, why: str) -> None:
    if terminal.as_json:
        terminal.json(report.as_dict())
    else:
        tables.show_report(report, terminal, title)
    for warning in report.warnings:
        terminal.note(warning)
    if not report.blobs:
        terminal.note("the source holds no blob that its prefix and globs admit")
    if report.quarantined:
        terminal.note(f"{tables.counted(report.quarantined, 'blob')} cannot be indexed; {why}")
    if report.failed:
        terminal.note(f"{tables.counted(report.failed, 'blob')} could not be read now; the next run tries again")
