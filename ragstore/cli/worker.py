"""`ragstore worker`: feeds in, an index that follows its sources until the process is asked to end, out."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, SourceArgument, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal

if TYPE_CHECKING:
    from ragstore.config import Settings
    from ragstore.ingest.report import SyncReport
    from ragstore.instrumentation import Instruments
    from ragstore.worker import Worker

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Follow the source's feeds, and keep the index in step", epilog=EXIT_CODES)(worker)


@answers
def worker(
    *,
    source: SourceArgument = None,
    config: Config = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there is nothing left to do, and say what was done.")] = False,
    allow_mass_delete: Annotated[
        bool, typer.Option("--allow-mass-delete", help="Go on although much of what is indexed is missing in the source.")
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=65535, metavar="PORT", help="Serve Prometheus metrics on 127.0.0.1:PORT.")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Follow the feeds that [source] names, and list the source at the start, after a gap and once a day.

    SIGTERM or Ctrl-C: the batch in hand is finished and saved; a second one ends at once, and loses nothing either.
    """
    import asyncio

    from ragstore.instrumentation import Instruments

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    settings = opening.settings_for_indexing(config, source, terminal).settings
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    instruments = Instruments(metrics_port=metrics_port, json_lines=not on_terminal, verbose=verbose, quiet=quiet)
    try:
        report = asyncio.run(_follow(settings, instruments, until_idle=until_idle, allow_mass_delete=allow_mass_delete))
    finally:
        instruments.close()
    if until_idle and terminal.as_json:
        terminal.json(report.as_dict())
    elif until_idle:
        tables.show_report(report, terminal, tables.APPLIED)
    if report.held_back:
        return Exit.STOPPED
    return Exit.DONE if report.is_clean or not until_idle else Exit.INCOMPLETE


async def _follow(settings: Settings, instruments: Instruments, *, until_idle: bool, allow_mass_delete: bool) -> SyncReport:
    from ragstore.index import open_async

    async with open_async(settings) as index:
        return await index.follow(
            instruments=instruments, until_idle=until_idle, allow_mass_delete=allow_mass_delete, started=_end_on_signals
        )


def _end_on_signals(worker: Worker) -> None:
    """The first signal ends it in good order; after that the system's own handling is back, for whoever cannot wait."""
    import asyncio

    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        worker.stop()

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
