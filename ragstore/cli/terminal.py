"""Values in, text on a terminal, in a pipe or as JSON out; text that others wrote is never interpreted by the terminal."""

from __future__ import annotations

import json
import logging
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Control characters (C0, C1, DEL), bidi controls and marks, invisible format characters, line separators, lone surrogates; but not the
# joiners U+200C and U+200D, which Persian, Indic scripts and emoji need.
_HOSTILE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_OF_ANSWERS: Final = "ragstore.retrieval"
_WIDTH_IN_A_PIPE: Final = 80
_NARROWEST: Final = 40


def plain(text: str, *, keep: str = "") -> str:
    r"""The text with everything that a terminal might obey written as an escape (`\x1b`), except the characters to keep."""
    return _HOSTILE.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 - two hex digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four hex digits


def say(text: str) -> None:
    """One message on stderr: a line, or on a terminal as many as its words need."""
    shown = plain(text)
    if sys.stderr is not None and sys.stderr.isatty():
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        shown = textwrap.fill(shown, width, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")
    print(shown, file=sys.stderr, flush=True)  # noqa: T201 - the terminal is our output


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Where a command writes: answers to stdout, everything else to stderr."""

    as_json: bool = False
    verbose: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Log records of this process go to stderr from now on."""
        level = logging.ERROR if self.quiet else logging.DEBUG if self.verbose else logging.WARNING
        logger = logging.getLogger("ragstore")
        logger.handlers = [_PlainHandler()]
        logger.setLevel(level)

    @property
    def out(self) -> Console:
        """For answers."""
        return _console(stderr=False)

    @property
    def err(self) -> Console:
        """For progress and notes."""
        return _console(stderr=True)

    @property
    def styled(self) -> bool:
        """Whether a person looks at the answers."""
        return not self.as_json and sys.stdout is not None and sys.stdout.isatty()

    @property
    def shows_progress(self) -> bool:
        """Whether a person looks at stderr, and wants to."""
        return not self.quiet and sys.stderr is not None and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Something a person should know, beside the answer."""
        if not self.quiet:
            say(f"note: {text}")

    def json(self, value: object) -> None:
        """The one JSON document of this command. ASCII only, so that no encoding and no terminal can spoil it."""
        print(json.dumps(value, indent=2))  # noqa: T201 - the terminal is our output

    def line(self, text: str = "") -> None:
        """One plain line of the answer."""
        print(plain(text, keep="\t"))  # noqa: T201 - the terminal is our output

    def show(self, renderable: RenderableType) -> None:
        """A table or styled text, whose parts were made with `plain`."""
        self.out.print(renderable, soft_wrap=False)


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Undo at the end what a `Terminal` did to logging: the process may be somebody else's."""
    logger = logging.getLogger("ragstore")
    level, handlers = logger.level, logger.handlers
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)


class _PlainHandler(logging.Handler):
    """Writes to what stderr is at that moment, because a progress bar puts itself in between.

    That hits were refused is for whoever runs the index (metrics, audit log), and not for whoever asks: by `--filter "path = '...'"` it
    would say which hidden blobs there are.
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _OF_ANSWERS and record.levelno < logging.WARNING:
            return
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_IN_A_PIPE
    return console
