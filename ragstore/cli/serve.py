"""`ragstore serve`: an index in, answers over HTTP until the process is asked to end out; and keys for those who ask."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ragstore.cli import opening
from ragstore.cli.options import AsJson, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.config import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Answer over HTTP, to each caller as who that is", epilog=EXIT_CODES)(serve)


@answers
def serve(
    *,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Default: [service] host, 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, metavar="PORT", help="0 for any. Default: [service] port, 8000.")
    ] = None,
    allow_open: Annotated[
        bool, typer.Option("--allow-open", help="In access mode `open`, answer other machines too, which then read everything.")
    ] = False,
    new_key: Annotated[bool, typer.Option("--new-key", help="Only make an API key, and show it once with what to configure.")] = False,
    config: Config = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> Exit:
    """Answer POST /v1/search, POST /v1/prompt and GET /v1/chunks/ID, and as OpenAI's API does where [ask] names a model; see /docs.

    Callers prove who they are by an API key or a token, as [service] says. SIGTERM or Ctrl-C: requests under way are answered first.
    """
    terminal = Terminal(as_json=as_json, verbose=verbose, quiet=quiet)
    if new_key:
        return _show_new_key(terminal)
    with _collecting_later() as collect:
        return _serve(opening.settings_for_reading(config), terminal, host=host, port=port, allow_open=allow_open, started=collect)


def _serve(
    settings: Settings, terminal: Terminal, *, host: str | None, port: int | None, allow_open: bool, started: Callable[[], None]
) -> Exit:
    import asyncio

    on_terminal = sys.stderr is not None and sys.stderr.isatty()

    def listening(url: str) -> None:
        started()
        if terminal.as_json:
            terminal.json({"url": url})
            sys.stdout.flush()

    try:
        from ragstore.service import serving
        from ragstore.service.metrics import Metrics, new_registry
    except ModuleNotFoundError as error:
        raise ConfigError("serving needs packages that are not installed: pip install 'ragstore[service]'") from error
    from ragstore.index import open_async
    from ragstore.instrumentation import Instruments

    registry = new_registry()
    instruments = Instruments(json_lines=not on_terminal, verbose=terminal.verbose, quiet=terminal.quiet, registry=registry)

    async def serving_until_asked() -> None:
        async with open_async(settings) as index:
            await serving.serve(
                index,
                instruments=instruments,
                metrics=Metrics(registry),
                host=host,
                port=port,
                allow_open=allow_open,
                listening=listening,
            )

    asyncio.run(serving_until_asked())
    return Exit.DONE


@contextmanager
def _collecting_later() -> Iterator[Callable[[], None]]:
    """Look for no garbage until the function is called that this gives, and then only among what is made from then on.

    What a start makes lives as long as the server. To go through it again and again takes a tenth of the time until it is ready, and later
    would hold up answers.
    """

    def collect() -> None:
        gc.freeze()
        gc.enable()

    gc.disable()
    try:
        yield collect
    finally:
        gc.unfreeze()
        gc.enable()


def _show_new_key(terminal: Terminal) -> Exit:
    from ragstore.service.keys import new_key

    key, digest = new_key()
    if terminal.as_json:
        terminal.json({"key": key, "hash": digest})
        return Exit.DONE
    terminal.note("the key is shown this once: give it to whoever asks; the rest goes into ragstore.toml, with the principal's id or name")
    terminal.line(key)
    terminal.line()
    terminal.line("[[service.keys]]")
    terminal.line('principal = "ID OR NAME"')
    terminal.line(f'hash = "{digest}"')
    return Exit.DONE
