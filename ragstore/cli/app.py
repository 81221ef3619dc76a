"""The command `ragstore`: its groups of commands, put together; nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ragstore import __version__
from ragstore.cli import (
    answering,
    checking,
    copying,
    demo,
    evaluating,
    explaining,
    failing,
    index,
    mcp,
    policy,
    purge,
    reading,
    serve,
    setup,
    worker,
)
from ragstore.cli.options import Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES

app = typer.Typer(
    name="ragstore",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: a tenth of a second less, and the same in every terminal
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if value:
        typer.echo(f"ragstore {__version__}")
        raise typer.Exit


@app.callback()
def ragstore(
    *,
    config: Config = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")] = False,
) -> None:
    """Keep a retrieval index in step with a blob store, and show each caller only what that caller may read."""


for _module in (
    setup,
    index,
    worker,
    reading,
    answering,
    evaluating,
    explaining,
    mcp,
    policy,
    checking,
    failing,
    copying,
    purge,
    serve,
    demo,
):
    _module.register(app)
