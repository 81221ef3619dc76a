"""`ragstore mcp`: a principal in; a Model Context Protocol server on stdin and stdout, for a desktop or an agent that starts it, out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from ragstore.cli import opening
from ragstore.cli.options import AsPrincipal, Config, Quiet, Verbose
from ragstore.cli.outcome import EXIT_CODES, Exit, answers
from ragstore.cli.terminal import Terminal
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from ragstore.config import Settings

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Serve PRINCIPAL's agent over MCP, on stdin and stdout", epilog=EXIT_CODES)(mcp)


@answers
def mcp(*, principal: AsPrincipal = None, config: Config = None, verbose: Verbose = False, quiet: Quiet = False) -> Exit:
    """Serve the tools search, fetch and prompt to the MCP client that starts this.

    Whatever the client asks, PRINCIPAL asks it. It ends when the client closes stdin. Clients start it in a folder of their own: name the
    configuration by --config with its full path.
    """
    import asyncio

    terminal = Terminal(verbose=verbose, quiet=quiet)
    settings = opening.settings_for_reading(config)
    if sys.stdin is not None and sys.stdin.isatty():
        terminal.note("this waits for an MCP client on stdin, which starts it by itself: ragstore mcp --as PRINCIPAL --config FILE")
    with _ending_at_once():
        asyncio.run(_serve(settings, principal))
    return Exit.DONE


async def _serve(settings: Settings, principal: str | None) -> None:
    from ragstore.index import open_async

    async with open_async(settings) as index:
        index.principal(principal)  # whoever is unknown is told so before the SDK, which takes a second, is imported
        try:
            from ragstore.service.mcp import serve_stdio
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types"}:
                raise
            raise ConfigError("this needs a package that is not installed: pip install 'ragstore[mcp]'") from error
        await serve_stdio(index, principal)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let signals kill the process, as they do by default: reading leaves nothing behind, and a read of stdin cannot be interrupted."""
    before = {number: handler for number in _ENDING if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
