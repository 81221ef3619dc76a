"""`ragstore eval`: judged questions and a principal in; how well and how fast each configuration answers, as a table and a picture, out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from ragstore.cli import opening, tables
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal, plain
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.evaluation.measuring import Evaluation, Progress
    from ragstore.evaluation.metrics import Interval

_RUN: Final = "run"
_MOST: Final = 1000

AskedBy = Annotated[
    str,
    typer.Option("--as", metavar="PRINCIPAL", show_default=False, help="Who asks, by id or name: only what this one may read is found."),
]
SetFolder = Annotated[
    Path, typer.Argument(metavar="SET", show_default=False, help="A folder in BEIR layout: queries.jsonl, qrels/test.tsv.")
]


class _RunsByDefault(TyperGroup):
    """`ragstore eval SET` is `ragstore eval run SET`."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # of typer's own copy of click
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else [_RUN, *args])


def register(app: typer.Typer) -> None:
    """Add the group and its commands."""
    group = typer.Typer(cls=_RunsByDefault, no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)
    group.callback()(_about)
    group.command(_RUN, short_help="Measure a judged set (what `eval SET` does)", epilog=EXIT_CODES)(run)
    group.command(short_help="Make a judged set of what is indexed", epilog=EXIT_CODES)(make)
    group.command(short_help="Write a set's documents into files", epilog=EXIT_CODES)(unpack)
    app.add_typer(group, name="eval", short_help="Measure quality and speed of searches")


def _about() -> None:
    """Measure how well and how fast searches answer questions whose answers are known; see `eval run --help`; with --json, for programs.

    `ragstore eval SET --as PRINCIPAL` is short for `ragstore eval run`: it takes `--compare`, `-k`, `--plot`, `--split` and
    `--allow-missing`.
    """


@answers
def run(
    *,
    folder: SetFolder,
    principal: AskedBy,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare",
            metavar="WORDS",
            show_default=False,
            help="A configuration, such as 'rrf' or 'text per-blob=all'; again for each further one. "
            "Default: configured, rrf, vector, text. See above.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="recall counts the first N documents, 1 to 1000.")] = 10,
    plot: Annotated[
        list[Path] | None,
        typer.Option("--plot", metavar="FILE", show_default=False, help="Draw it into FILE.png or FILE.svg; again for both."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", show_default=False, help="Take qrels/NAME.tsv. Default: test, or the only one.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Count relevant documents that are not there as not found.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Ask the index the questions of SET, as PRINCIPAL, and compare what comes with what is judged relevant.

    Each figure stands with the interval in which it would lie for 95 of 100 such sets of questions. `above first` is by how much nDCG is
    above that of the first configuration, question by question: where that interval holds 0, they may be equally good.

    A document is named by CONTAINER/PATH, by PATH, or by the id of which `eval unpack` made a file.

    Words of --compare: configured, max-norm, rrf, vector, text; and rerank, no-rerank, vector-weight=X, near-duplicates=X, mmr=X,
    half-life-days=X, neighbours=N, per-blob=N or all (default 1), which stand for those of [retrieval].
    """
    from ragstore import evaluation
    from ragstore.blocking import open as open_index
    from ragstore.evaluation import plotting, variants

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    if not 1 <= k <= _MOST:
        raise ConfigError(f"-k must be between 1 and {_MOST}, not {k}")
    chosen = variants.parse_all(compare or variants.DEFAULTS)
    for file in plot or ():
        plotting.check(file)
    judged = evaluation.load(folder, split=split)
    with open_index(opening.settings_for_reading(config)) as opened, _shown(terminal) as bar:
        found = evaluation.evaluate(
            opened, judged, principal=opened.principal(principal), variants=chosen, k=k, allow_missing=allow_missing, progress=bar
        )
    for file in plot or ():
        plotting.save(found, file)
    if as_json:
        terminal.json(found.as_dict())
    else:
        _show(found, terminal)
    return Exit.DONE


@answers
def make(
    *,
    folder: Annotated[Path, typer.Argument(metavar="SET", show_default=False, help="The folder to write; a new one.")],
    principal: AskedBy,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", help="The most questions.")] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same index and seed give the same questions.")] = 0,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="KIND", show_default=False, help="title, heading or sentence; again for several. Default: all three."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Make questions of titles, headings and first sentences of what PRINCIPAL may read; the answer is where they stand.

    They measure whether a text that is there is found again by a few of its own words: good for telling configurations apart, and for
    seeing what an update broke. They do not measure whether people who use other words find what they need, nor whether an answer is right;
    and they favour full-text search. SET quotes documents: keep it as they are kept.
    """
    from ragstore.blocking import open as open_index
    from ragstore.evaluation import questions

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    if number < 1:
        raise ConfigError(f"--number must be at least 1, not {number}")
    if unknown := [kind for kind in by or () if kind not in questions.KINDS]:
        raise ConfigError(f"--by {unknown[0]!r} is none of {', '.join(questions.KINDS)}")
    kinds = [kind for kind in questions.KINDS if not by or kind in by]
    with open_index(opening.settings_for_reading(config)) as opened:
        made = questions.make(opened, principal=opened.principal(principal), number=number, seed=seed, kinds=kinds)
    questions.write(made, folder, number=number, seed=seed, kinds=kinds)
    counts = {kind: sum(question.kind == kind for question in made) for kind in kinds}
    if as_json:
        terminal.json({"set": str(folder), "queries": len(made), "documents": len({one.blob for one in made}), "by": counts})
    else:
        parts = ", ".join(f"{count:,} by {kind}" for kind, count in counts.items())
        terminal.line(f"{tables.counted(len(made), 'question')} in {plain(str(folder))}: {parts}")
        terminal.note("known texts asked for by their own words; what that measures, and what not, says the README.md in the folder")
    return Exit.DONE


@answers
def unpack(
    *,
    folder: Annotated[Path, typer.Argument(metavar="SET", show_default=False, help="A folder with a corpus.jsonl.")],
    target: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False, help="Where to write; a new folder.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Write each document of SET/corpus.jsonl into a file named by its id, so that it can be indexed: ragstore index FOLDER."""
    from ragstore.evaluation import judged

    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    number = judged.unpack(folder, target)
    if as_json:
        terminal.json({"folder": str(target), "documents": number})
    else:
        terminal.line(f"{tables.counted(number, 'document')} in {plain(str(target))}")
    return Exit.DONE


def _show(found: Evaluation, terminal: Terminal) -> None:
    """A line for each configuration, tab-separated in a pipe; on a terminal intervals stand below their figures, for want of width."""
    columns = ["nDCG@10", f"recall@{found.k}", "MRR@10", "above first", "p50 (ms)", "p95 (ms)"]
    rows = {one.variant.name: (one.ndcg, one.recall, one.mrr, one.better, one.p50, one.p95) for one in found.measured}
    if terminal.styled:
        terminal.line(f"{found.name}, {tables.counted(found.queries, 'question')}; below each figure its 95 % interval")
        _show_table(columns, rows, terminal)
    else:
        terminal.line("\t".join(["configuration", *columns]))
        for name, figures in rows.items():
            cells = [_cell(figure, column) for figure, column in zip(figures, columns, strict=True)]
            terminal.line("\t".join([plain(name), *(f"{value} ({low} to {high})" if value else "" for value, low, high in cells)]))
    if found.missing:
        terminal.note(f"relevant documents that are not there, and count as not found: {found.missing:,} of {found.judged:,}")
    if found.left_out:
        terminal.note(f"questions without a relevant document, which were left out: {found.left_out:,}")


def _show_table(columns: Sequence[str], rows: Mapping[str, Sequence[Interval | None]], terminal: Terminal) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, figures in rows.items():
        cells = []
        for figure, column in zip(figures, columns, strict=True):
            value, low, high = _cell(figure, column, digits=2)
            cells.append(Text.assemble(value, (f"\n{low}..{high}", "dim")) if value else Text())
        table.add_row(Text(plain(name)), *cells)
    terminal.show(table)


def _cell(figure: Interval | None, column: str, *, digits: int = 3) -> tuple[str, str, str]:
    """The figure and its bounds; of the bounds so many digits, of milliseconds one."""
    if figure is None:
        return "", "", ""
    sign = "+" if column == "above first" else ""
    form, bounds = (".1f", ".1f") if column.endswith("(ms)") else (".3f", f".{digits}f")
    return f"{figure.value:{sign}{form}}", f"{figure.low:{sign}{bounds}}", f"{figure.high:{sign}{bounds}}"


@contextmanager
def _shown(terminal: Terminal) -> Iterator[Progress]:
    """Draws on stderr how many questions were asked; nothing where nobody looks."""
    if not terminal.shows_progress:
        yield lambda _done, _all: None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=terminal.err, transient=True) as bar:
        task = bar.add_task("looking for the documents", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, description=f"{done:,} of {total:,} questions")
