"""`ragstore explain`: a blob and a principal in; why its chunks are, or are not, shown to that principal, out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.access.conditions.tracing import Clause
    from ragstore.access.explanation import Explanation, Reason
    from ragstore.blocking import Index
    from ragstore.retrieval.standing import Standing

_TRUTHS: Final = {True: "true", False: "false", None: "unknown"}
_STYLES: Final = {
    "true": "green",
    "false": "red",
    "unknown": "yellow",
    "grants": "green",
    "passes": "green",
    "denies": "red",
    "stops": "red",
    "nothing": "dim",
}
_SHORT: Final = "Microsoft.Storage/storageAccounts/blobServices/containers"
"""What most attributes begin with; on a terminal an ellipsis stands for it, unless -v is said."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Say why PRINCIPAL can, or cannot, read BLOB", epilog=EXIT_CODES)(explain)


@answers
def explain(
    *,
    blob: Annotated[str, typer.Argument(metavar="BLOB", show_default=False, help="container/path, as `search` shows it.")],
    principal: Annotated[str | None, typer.Option("--as", metavar="PRINCIPAL", help="Whose access to explain, by id or name.")] = None,
    who: Annotated[bool, typer.Option("--who", help="List instead which of the known principals can read it.")] = False,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Say why PRINCIPAL can, or cannot, read BLOB: each assignment, each clause of its condition, with the values that were seen.

    For whoever may see the policy: it names assignments, tags and groups. It asks the index, so a blob that was never indexed is unknown.
    """
    from ragstore.blocking import open as open_index

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    if who and principal is not None:
        raise ConfigError("--who lists everybody: leave out --as, or leave out --who")
    settings = opening.settings_for_reading(config)
    with open_index(settings) as opened:
        if who:
            _show_readers(opened, blob, terminal, mode=settings.access.mode)
        else:
            asking = opened.principal(principal)
            _show_standing(opened.explain(blob, principal=asking), asking.name, terminal)
    return Exit.DONE


def _show_readers(opened: Index, blob: str, terminal: Terminal, *, mode: str) -> None:
    found = [{"principal": one.id, "name": one.name, "reads": reads} for one, reads in opened.readers(blob)]
    if terminal.as_json:
        terminal.json({"blob": blob, "principals": found})
        return
    if mode == "open":
        terminal.note(f"in mode 'open' whoever asks is answered alike, listed or not; see: ragstore explain {blob}")
    elif not found:
        terminal.note("no principal is known: name some in the file of [access] principals")
    if not found:
        return
    tables.show_rows(found, ["principal", "name", "reads"], terminal, f"who reads {blob}")


def _show_standing(standing: Standing, name: str, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.json(standing.as_dict())
        return
    explanation = standing.explanation
    verdict = "can read" if standing.shown else "cannot read"
    asking = explanation.principal if name == explanation.principal else f"{name} ({explanation.principal})"
    _line(terminal, 0, f"{asking} {verdict} {explanation.blob}", "bold green" if standing.shown else "bold red")
    _line(terminal, 0, standing.why)
    _show_reasons(explanation, standing.why, terminal)
    if standing.as_read is not None:
        _line(terminal, 0, "")
        _line(terminal, 0, f"By the attributes with which its content was read, which count as well: {standing.as_read.why}", "bold")
        _show_reasons(standing.as_read, standing.as_read.why, terminal)


def _show_reasons(explanation: Explanation, told: str, terminal: Terminal) -> None:
    for reason in explanation.reasons:
        _line(terminal, 0, "")
        _line(terminal, 0, f"{reason.kind} {reason.name}: {reason.outcome}", _STYLES[reason.outcome])
        if reason.why not in told:
            _line(terminal, 1, reason.why)
        for label, value in _facts(reason):
            _line(terminal, 1, f"{label}: {value}", "dim")
        if reason.clause is not None:
            for depth, text, style in _clauses(reason.clause, 1):
                _line(terminal, depth, text, style)


def _facts(reason: Reason) -> Iterator[tuple[str, str]]:
    if reason.via is not None:
        yield "by", reason.via
    if reason.role is not None:
        yield "role", reason.role
    if reason.scope is not None:
        yield "scope", reason.scope
    if reason.condition is not None and reason.clause is None:
        yield "condition", reason.condition


def _clauses(clause: Clause, depth: int) -> Iterator[tuple[int, str, str]]:
    """Each clause on a line under the one it belongs to, with its truth and the values it saw."""
    truth = _TRUTHS[clause.truth]
    if clause.parts:
        yield depth, f"{truth}  {clause.joined}", _STYLES[truth]
        for part in clause.parts:
            yield from _clauses(part, depth + 1)
        return
    seen = "; ".join(f"{one.name} = {'missing' if one.value is None else repr(one.value)}" for one in clause.seen)
    text = f"{truth}  {clause.text}" + (f"   [{seen}]" if seen else "") + (f"   {clause.why}" if clause.why else "")
    yield depth, text, _STYLES[truth]


def _line(terminal: Terminal, depth: int, text: str, style: str = "") -> None:
    if not terminal.styled:
        terminal.line("  " * depth + text)
        return
    from rich.padding import Padding
    from rich.text import Text

    shown = plain(text if terminal.verbose else text.replace(_SHORT, "\u2026"))
    terminal.show(Padding(Text(shown, style=style), (0, 0, 0, 2 * depth)))
