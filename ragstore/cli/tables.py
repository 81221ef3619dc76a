"""Reports in, tables for a person or `name: value` lines for a pipe out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ragstore.cli.terminal import Terminal, plain

if TYPE_CHECKING:
    from ragstore.ingest.report import SyncReport

APPLIED: Final = "indexed"
PLANNED: Final = "planned, nothing was changed"

_ALWAYS_SHOWN: Final = frozenset({"blobs", "unchanged", "chunks", "chunks_embedded", "chunks_reused", "seconds"})
_NAMES: Final = {
    "acl_reads": "ACLs asked for one by one",
    "chunks_embedded": "chunks embedded",
    "chunks_reused": "chunks reused",
    "held_back": "deletes held back",
    "quarantined": "in quarantine",
    "failed": "not readable now",
    "price": "price (USD)",
    "cached_vectors": "cached vectors",
    "attempts": "tries",
    "last_event": "last pass",
    "lag_seconds": "lag (s)",
    "store unindexed_rows": "store unindexed rows",
}


def counted(number: int, noun: str) -> str:
    """`1 blob`, `2,000 blobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show_report(report: SyncReport, terminal: Terminal, title: str) -> None:
    """The numbers of a pass; what did not happen is left out."""
    shown = {
        name: value
        for name, value in report.as_dict().items()
        if name != "warnings" and (value or (name in _ALWAYS_SHOWN and value is not None))
    }
    show_pairs(shown, terminal, title)


def show_status(status: Mapping[str, Any], terminal: Terminal) -> None:
    """Counts, embedder, store and feeds."""
    simple = {key: value for key, value in status.items() if not isinstance(value, (dict, list))}
    store = {f"store {key}": value for key, value in status["store"].items()}
    show_pairs({**simple, "worker": _worker(status["worker"]), **store}, terminal, "status")
    show_rows(status["feeds"], ["source", "last_event", "cursor", "lag_seconds"], terminal, "feeds")


def _worker(state: Mapping[str, Any] | None) -> str:
    """Whether one follows the feeds, and what it waits for."""
    if state is None:
        return "none runs"
    parts = [f"runs as {state['owner']}", *(f"waits: {reason}" for reason in state["outages"])]
    if state["held_back"]:
        parts.append(f"{state['held_back']} deletes wait for: ragstore worker --allow-mass-delete")
    return "; ".join(parts)


def show_pairs(pairs: Mapping[str, object], terminal: Terminal, title: str) -> None:
    """Names and values, one a line."""
    if not terminal.styled:
        for name, value in pairs.items():
            terminal.line(f"{_NAMES.get(name, name)}: {_text(value)}")
        return
    from rich.table import Table

    _show_title(title, terminal)
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(justify="right", overflow="fold")
    for name, value in pairs.items():
        table.add_row(plain(_NAMES.get(name, name)), _cell(_text(value)))
    terminal.show(table)


def show_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], terminal: Terminal, title: str) -> None:
    """A table with a line per row; tab-separated in a pipe."""
    if not terminal.styled:
        for row in rows:
            terminal.line("\t".join(plain(_text(row.get(column))) for column in columns))
        return
    from rich import box
    from rich.table import Table

    _show_title(title, terminal)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(_NAMES.get(column, column), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(_text(row.get(column))) for column in columns))
    terminal.show(table)


def show_names(groups: Mapping[str, Iterable[str]], terminal: Terminal) -> None:
    """Lists of names under their headings; nothing under an empty one."""
    for heading, names in groups.items():
        for name in names:
            terminal.line(f"{heading}\t{plain(name)}")


def _show_title(title: str, terminal: Terminal) -> None:
    """Above the table and not in it: rich would wrap a title to the width of its table."""
    from rich.text import Text

    terminal.show(Text(plain(title), style="bold"))


def _cell(text: str) -> Any:  # noqa: ANN401 - rich is imported late
    """Text in a table that rich does not read as markup."""
    from rich.text import Text

    return Text(plain(text))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
