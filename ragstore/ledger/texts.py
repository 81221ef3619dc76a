"""Any text in, what a database can store out, and back: PostgreSQL has no NUL in a text, and UTF-8 has no lone surrogates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Dialect, Text, TypeDecorator
from sqlalchemy.types import TypeEngine
from typing_extensions import override

_ESCAPE: Final = "\x1a"
_UNSAFE: Final = re.compile("[\0\x1a\ud800-\udfff]")
_ESCAPED: Final = re.compile("\x1a(?:0|1|d[89a-f][0-9a-f]{2})")
_NAMED: Final = {_ESCAPE: _ESCAPE + "0", "\0": _ESCAPE + "1"}


def escape(text: str) -> str:
    """The same text where it can be stored as it is. Each character is escaped by itself, so that prefixes stay prefixes."""
    if text.isascii() and "\0" not in text and _ESCAPE not in text:
        return text
    return _UNSAFE.sub(lambda found: _NAMED.get(found[0]) or f"{_ESCAPE}{ord(found[0]):x}", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPED.sub(_original, text) if _ESCAPE in text else text


def _original(found: re.Match[str]) -> str:
    code = found[0][1:]
    return {"0": _ESCAPE, "1": "\0"}.get(code) or chr(int(code, 16))


class FreeText(TypeDecorator[str]):
    """A text that came from outside. In PostgreSQL it is escaped and compared by code points; in SQLite it is stored as it is.

    SQLite refuses lone surrogates with `UnicodeEncodeError`, unless `escaped` is set: a Python call for each value is what that costs.
    """

    impl = Text
    cache_ok = True

    def __init__(self, *, escaped: bool = False) -> None:
        super().__init__()
        self.escaped = escaped

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    @override
    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], Any] | None:
        return _escaped if self._needs_escapes(dialect) else None

    @override
    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], str | None] | None:
        return _unescaped if self._needs_escapes(dialect) else None

    def _needs_escapes(self, dialect: Dialect) -> bool:
        return self.escaped or dialect.name == "postgresql"


def _escaped(text: str | None) -> str | None:
    return None if text is None else escape(text)


def _unescaped(text: str | None) -> str | None:
    return None if text is None else unescape(text)
