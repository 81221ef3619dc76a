"""An evaluation in, a picture of it (PNG or SVG) out: quality with its intervals on the left, speed on the right."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragstore.errors import ConfigError
from ragstore.evaluation.measuring import Evaluation
from ragstore.evaluation.metrics import DEPTH, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("png", "svg")
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73")
"""Okabe and Ito, 2008: told apart by colour-blind people too; each has a mark of its own besides."""
_MARKS: Final = ("o", "s", "D")
_GREY: Final = "#555555"
_ROW: Final = 0.62
"""Inches for a configuration."""
_LONGEST: Final = 48
"""Characters of a name."""


def check(file: Path) -> None:
    """Raises `ConfigError` where no picture could be written there, before anybody waits for its figures."""
    if _format(file) not in FORMATS:
        raise ConfigError(f"{str(file)!r} must end in .{' or .'.join(FORMATS)}")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"{str(file)!r} cannot be written: there is no folder {str(file.parent)!r}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("a picture needs a package that is not installed: pip install 'ragstore[eval]'")


def save(evaluation: Evaluation, file: Path) -> None:
    """Draw the evaluation into this file, whose name says the format. Equal figures give equal files. Raises as `check` does."""
    check(file)
    import matplotlib as mpl

    kind = _format(file)
    # Without a date and with names of its own choice, an SVG is the same each time; as paths, its text looks the same everywhere.
    with mpl.rc_context({"svg.hashsalt": "ragstore", "svg.fonttype": "path", "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks is boxes: no reason to fill a terminal
        figure = draw(evaluation)
        try:
            figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else {"Software": None})
        except OSError as error:
            raise ConfigError(f"{str(file)!r} cannot be written: {error.strerror or error}") from error


def draw(evaluation: Evaluation) -> Figure:
    """The figure, with no window and no state of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.9 + _ROW * len(evaluation.measured)), layout="constrained")
    quality, speed = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    measured = evaluation.measured
    columns = ((f"nDCG@{DEPTH}", "ndcg"), (f"recall@{evaluation.k}", "recall"), (f"MRR@{DEPTH}", "mrr"))
    for number, (label, name) in enumerate(columns):
        _intervals(quality, label, [getattr(one, name) for one in measured], number, len(columns))
    for number, (label, name) in enumerate((("median", "p50"), ("95th percentile", "p95"))):
        _intervals(speed, label, [getattr(one, name) for one in measured], number, 2)
    quality.set_yticks(range(len(measured)), [_short(one.variant.name) for one in measured])
    quality.set_ylim(len(measured) - 0.5, -0.5)
    quality.set_xlim(0, 1.02)
    quality.set_xlabel("quality, with 95 % intervals")
    speed.set_xlim(0, 1.06 * max(one.p95.high for one in measured))
    speed.set_xlabel("milliseconds a search, with 95 % intervals")
    for axes in (quality, speed):
        _plain(axes, len(measured))
    figure.suptitle(f"{_short(evaluation.name)}: {evaluation.queries:,} queries", fontsize=12)
    return figure


def _intervals(axes: Axes, label: str, figures: list[Interval], number: int, of: int) -> None:
    """A row of marks with their intervals, a little above or below the middle of each configuration's row."""
    rows = [row + (number - (of - 1) / 2) * 0.24 for row in range(len(figures))]
    values = [figure.value for figure in figures]
    # The interval of a skewed sample may lie beside its figure.
    below = [max(0.0, figure.value - figure.low) for figure in figures]
    above = [max(0.0, figure.high - figure.value) for figure in figures]
    style: dict[str, Any] = {"color": _COLOURS[number], "fmt": _MARKS[number], "markersize": 5, "capsize": 2.5, "elinewidth": 1.4}
    axes.errorbar(values, rows, xerr=[below, above], label=label, **style)


def _plain(axes: Axes, rows: int) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    for row in range(rows - 1):
        axes.axhline(row + 0.5, color="#eeeeee", linewidth=0.7)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9, labelcolor=_GREY)


def _short(name: str) -> str:
    """Of a name that somebody else may have given: one line of what can be printed."""
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _format(file: Path) -> str:
    return file.suffix.lower().removeprefix(".")
