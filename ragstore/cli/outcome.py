"""A command's end in - a value, an error, an interrupt - and an exit code with one line on stderr out."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, ParamSpec

import typer

from ragstore.cli.signals import Ended, ending_cleanly
from ragstore.cli.terminal import logging_as_before, plain, say
from ragstore.errors import AccessError, ConfigError, GuardError, PoisonError, RagstoreError

P = ParamSpec("P")


class Exit(IntEnum):
    """How a command ended, for scripts."""

    DONE = 0
    BUG = 1
    """An error that nobody foresaw, or a service that is down."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    INCOMPLETE = 3
    """Done, but some blobs are in quarantine or could not be read now."""
    STOPPED = 4
    """A guard stopped the run before it did harm."""
    DIFFERENT = 5
    """`verify` found a difference, `ask` a wrong citation, `purge` left something, or a case of `policy test` failed."""
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """Whoever read the output went away; as a shell reports it of other programs."""
    TERMINATED = 143


EXIT_CODES: Final = """\b
Exit codes:
  0  done
  1  a bug, or a service that is down
  2  wrong usage or configuration, an unknown principal, a locked index
  3  done, but some blobs are in quarantine or could not be read
  4  stopped by a guard before it did harm
  5  verify or ask found a fault, purge left something, a policy case failed
An error is one line on stderr; stdout stays empty, with --json too."""
"""The epilog of every `--help`. The first line keeps the formatter from filling the paragraph."""

_LINE_BREAKS: Final = re.compile(r"\s*[\r\n]\s*")
"""In messages of other libraries, some of which write paragraphs."""
_USAGE_ERROR: Final[type[BaseException]] = typer.BadParameter.__bases__[0]
"""The base of all complaints over a command line; typer has no public name for it in every version."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line (default: that of the process) and return its exit code. An empty one gets the help."""
    from ragstore.cli.app import app

    command = typer.main.get_command(app)
    words = list(sys.argv[1:] if arguments is None else arguments)
    _accept_all_text()
    try:
        with logging_as_before(), ending_cleanly():
            outcome = command(words or ["--help"], prog_name="ragstore", standalone_mode=False)
    except _USAGE_ERROR as error:
        _complain(_usage(error))
        return Exit.USAGE
    except typer.Abort:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return _broken_pipe()
    if not words:
        return Exit.USAGE
    return outcome if isinstance(outcome, int) else Exit.DONE


def answers(command: Callable[P, Exit]) -> Callable[P, Exit]:
    """The same command, which never raises: an error becomes one line on stderr and an exit code."""

    @functools.wraps(command)
    def answering(*args: P.args, **kwargs: P.kwargs) -> Exit:
        try:
            outcome = command(*args, **kwargs)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            return _broken_pipe()
        except KeyboardInterrupt as error:
            _complain("stopped; what was finished is kept, run it again to go on", label="")
            return Exit(error.exit_code) if isinstance(error, Ended) else Exit.INTERRUPTED
        except RagstoreError as error:
            _complain(str(error))
            return _code(error)
        except Exception as error:  # noqa: BLE001 - the last door: whatever is not caught here is a traceback for the user
            return _bug(error, verbose=bool(kwargs.get("verbose")))
        return outcome

    return answering


def _code(error: RagstoreError) -> Exit:
    if isinstance(error, GuardError):
        return Exit.STOPPED
    # A PoisonError that comes this far is about the query: blobs go to quarantine.
    return Exit.USAGE if isinstance(error, (ConfigError, AccessError, PoisonError)) else Exit.BUG


def _bug(error: Exception, *, verbose: bool) -> Exit:
    if verbose:
        print(plain("".join(traceback.format_exception(error)), keep="\n"), file=sys.stderr)  # noqa: T201 - the terminal is our output
    if isinstance(error, OSError) and error.strerror:
        # A full disk, a folder without rights: no bug of ours, and the system says what it is.
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"{error.strerror}{where}; what was finished is kept, run it again when this is mended")
    else:
        _complain(f"unexpected {type(error).__name__}: {error}{'' if verbose else '; say -v to see where'}")
    return Exit.BUG


def _usage(error: BaseException) -> str:
    """The complaint, and the help that says how it is right."""
    message = str(getattr(error, "format_message", lambda: error)()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see: {context.command_path if context else 'ragstore'} --help"


def _complain(message: str, *, label: str = "error: ") -> None:
    try:
        say(f"{label}{_LINE_BREAKS.sub(' ', message.strip())}")
    except OSError:
        _broken_pipe()


def _broken_pipe() -> Exit:
    """Nobody reads any more. Python would complain once more when it flushes at exit: let it flush into nothing."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError, ValueError):
            _divert(stream, nothing)
    os.close(nothing)
    return Exit.BROKEN_PIPE


def _divert(stream: object, descriptor: int) -> None:
    fileno = getattr(stream, "fileno", None)
    if fileno is not None:
        os.dup2(descriptor, fileno())


def _accept_all_text() -> None:
    """A character that the terminal's encoding lacks is written as an escape instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
