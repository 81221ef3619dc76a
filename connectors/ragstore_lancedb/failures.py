"""What LanceDB raises in, what a caller can act on out: retried conflicts, stale handles, `TransientError`, `ConfigError`, damage.

LanceDB raises `ValueError`, `RuntimeError` and `OSError` with whole nested errors of its storage as text; the text decides.
"""

from __future__ import annotations

import re
from typing import Final

from ragstore.errors import ConfigError, RagstoreError, StoreDamagedError, TransientError

RAISED: Final = (RuntimeError, OSError, ValueError)
"""What LanceDB raises."""

_LONG: Final = 200
_NO_TABLE: Final = re.compile(r"^Table '.*' was not found")
_CONFLICT: Final = re.compile(r"commit conflict|concurrent (writers|modification)|preempted by concurrent", re.IGNORECASE)
_GONE: Final = re.compile(r"\bnot found\b|no such file", re.IGNORECASE)
_REFUSED: Final = re.compile(
    r"<Code>\w*(Authentication|Authorization|Forbidden|KeyBased|Permission)\w*</Code>"
    r"|status: 40[13]|permission denied|read-only file system|account must be specified|invalid access key",
    re.IGNORECASE,
)
_DAMAGED: Final = re.compile(
    r"does not appear to be a Lance file|corrupt|failed to fill whole buffer|file size is too small|Invalid range \d+\.\.\d+"
    r"|not found: [^\n]*\.lance/_?(data|indices|versions|deletions)/",
    re.IGNORECASE,
)
"""A file of the table was cut off, overwritten or removed. Whoever missed one because of another process has opened the table again."""
_FILTER: Final = re.compile(
    r"sql parser|SELECT 1 FROM|filter expression|sql filter|Error (parsing|resolving|optimizing)|Schema error|regex parse"
    r"|\b(array_has_any|starts_with|regexp_like)\(|\b(account|container|path|media_type|allowed|labels|label_keys)\b\S* (=|IN\b)",
    re.IGNORECASE,
)
"""LanceDB quotes a condition that it cannot work with: whose ids, folders and tags those are is not for whoever searches."""
_NO_CONTAINER: Final = re.compile(r"<Code>Container(NotFound|BeingDeleted|Disabled)</Code>")
_AZURE: Final = re.compile(r"<Code>(?P<code>\w+)</Code>\s*(?:\\n)?\s*<Message>(?P<message>.*?)(?:\\n|\n|</Message>)", re.DOTALL)
_SYSTEM: Final = re.compile(r"message: \"(?P<message>[^\"]+)\"")


def is_missing_table(error: Exception) -> bool:
    """The storage answered, and there is no such table in it."""
    return _NO_TABLE.search(str(error)) is not None


def is_conflict(error: Exception) -> bool:
    """Another process committed first: repeat the commit on top of its version."""
    return _CONFLICT.search(str(error)) is not None


def is_gone(error: Exception) -> bool:
    """The table, or the version that this handle stands on, was dropped or cleaned up: open it again."""
    text = str(error)
    return _GONE.search(text) is not None and _NO_CONTAINER.search(text) is None


def translated(error: Exception, uri: str) -> RagstoreError:
    """The error by recovery; what is not understood may be tried again later."""
    text = str(error)
    quoted = _FILTER.search(text) is not None
    said = "its message quotes a filter and is kept back." if quoted else _told(text) or type(error).__name__
    if _NO_CONTAINER.search(text) is not None:
        return ConfigError(f"there is no container for the LanceDB index at {uri}: {said} Create it first")
    if _REFUSED.search(text) is not None:
        return ConfigError(f"LanceDB may not read and write at {uri}: {said} Check the credentials, their rights, and the folder's owner")
    if _DAMAGED.search(text) is not None:
        return damaged(uri, said)
    if quoted:
        return TransientError(f"LanceDB at {uri} does not accept the filter of a request: make the conditions behind it shorter or flatter")
    return TransientError(f"LanceDB at {uri}: {said}")


def damaged(uri: str, said: str) -> StoreDamagedError:
    """For a table that cannot be read any more."""
    return StoreDamagedError(f"the LanceDB index at {uri} is damaged ({said}); make it anew with: ragstore verify --repair")


def _told(text: str) -> str:
    """What the innermost layer said, because the outer ones fill pages."""
    azure = _AZURE.search(text)
    if azure is not None:
        return f"{azure['code']}: {azure['message'].strip()}"
    system = _SYSTEM.search(text)
    first = text.splitlines()[0] if text.strip() else ""
    return f"{first[:_LONG]} ... {system['message']}." if system is not None and len(first) > _LONG else first[: 2 * _LONG]
