"""`ragstore demo`: nothing in; a small company's files indexed, changed and searched by two people, with every claim checked, out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ragstore.cli.options import AsJson, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.demo import Step

_COUNTED: Final = {
    "chunks_embedded": "embedded",
    "chunks_reused": "reused",
    "added": "added",
    "changed": "changed",
    "moved": "moved",
    "retagged": "retagged",
    "deleted": "deleted",
    "quarantined": "in quarantine",
}
_ALWAYS: Final = ("chunks_embedded", "chunks_reused")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Tell a story of two people, and check every claim", epilog=EXIT_CODES)(demo)


@answers
def demo(
    *,
    embedder: Annotated[str, typer.Option("--embedder", metavar="TYPE", help="`hash` needs no model, and matches words only.")] = "minilm",
    keep: Annotated[Path | None, typer.Option("--keep", metavar="DIR", help="Work in this new or empty folder and leave it there.")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Index a few files, change them, and search as two people. It checks what it says, and ends with 1 where something is wrong."""
    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    started = time.monotonic()
    with _folder(keep) as folder:
        steps = list(_shown(_steps(folder, embedder), terminal))
    failed = [check.claim for step in steps for check in step.checks if not check.holds]
    seconds = time.monotonic() - started
    if as_json:
        terminal.json({"steps": [step.as_dict() for step in steps], "failed": failed, "seconds": round(seconds, 3)})
    else:
        _conclude(steps, failed, seconds, keep, terminal)
    return Exit.BUG if failed else Exit.DONE


def _steps(folder: Path, embedder: str) -> Iterator[Step]:
    from ragstore.demo import tell

    try:
        yield from tell(folder, embedder=embedder)
    except ConfigError as error:
        if embedder != "minilm":
            raise
        raise ConfigError(f"{error}. To see the demo without a model, matching words only: ragstore demo --embedder hash") from error


def _shown(steps: Iterator[Step], terminal: Terminal) -> Iterator[Step]:
    """Each step when it is done; on a terminal, a sign of life until then."""
    number = 0
    while True:
        with _waiting(terminal):
            step = next(steps, None)
        if step is None:
            return
        number += 1
        if not terminal.as_json:
            _show(number, step, terminal)
        yield step


@contextmanager
def _waiting(terminal: Terminal) -> Iterator[None]:
    if not terminal.styled or terminal.quiet:
        yield
        return
    with terminal.out.status("working", spinner="line"):
        yield


def _show(number: int, step: Step, terminal: Terminal) -> None:
    from rich.text import Text

    terminal.show(Text(f"{number}. {step.title}", style="bold"))
    if step.report:
        counts = [f"{name} {step.report[key]}" for key, name in _COUNTED.items() if step.report[key] or key in _ALWAYS]
        terminal.show(Text(f"   {'  '.join(counts)}  {step.report['seconds']:.1f} s", style="cyan"))
    if step.answers:
        _show_answers(step, terminal)
    for check in step.checks:
        line = Text("   ok  " if check.holds else "   NO  ", style="green" if check.holds else "bold red")
        terminal.show(line.append(plain(check.claim), style="default"))
    terminal.line()


def _show_answers(step: Step, terminal: Terminal) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("question", "Ada's best", "Bob's best"):
        table.add_column(heading, overflow="fold")
    for question, ada, bob in step.answers:
        table.add_row(*(Text(plain(text.removeprefix("company/"))) for text in (question, ada, bob)))
    terminal.show(Padding(table, (0, 0, 0, 3)))


def _conclude(steps: list[Step], failed: list[str], seconds: float, keep: Path | None, terminal: Terminal) -> None:
    checks = sum(len(step.checks) for step in steps)
    embedded = sum(step.report.get("chunks_embedded", 0) for step in steps)
    reused = sum(step.report.get("chunks_reused", 0) for step in steps)
    if failed:
        terminal.line(f"{len(failed)} of {checks} claims do not hold: {'; '.join(failed)}")
        return
    terminal.line(f"{checks} claims hold. {embedded} chunks embedded, {reused} reused, in {seconds:.0f} seconds.")
    if keep is not None:
        terminal.line(f'Go on there: ragstore search "how often are keys replaced?" --as Bob --config {keep / "ragstore.toml"}')
    else:
        terminal.line("Now with files of your own: ragstore init FOLDER, then ragstore index")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where the demo works: a folder that is removed afterwards, or the one to keep."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="ragstore-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        occupied = any(keep.iterdir())
    except OSError as error:
        raise ConfigError(f"{str(keep)!r} cannot be used: {error.strerror or error}; name a new folder") from error
    if occupied:
        raise ConfigError(f"{str(keep)!r} is not empty; name a new folder, so that no file of yours is touched")
    yield keep
