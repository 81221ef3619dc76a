"""A Markdown text in, the spans of its fenced code out, and the fence that is still open at the end."""

from __future__ import annotations

import re
from typing import Final

_EITHER: Final = re.compile(r"`{3,}|~{3,}")
_BACKTICKS: Final = re.compile(r"```+")  # a literal beginning makes the search ten times as fast
_INDENT: Final = re.compile(r" {0,3}")


def fences(text: str, opened: str | None = None) -> tuple[list[tuple[int, int]], str | None]:
    """Spans of fenced code in order, and the fence characters that are open at the end of the text.

    `opened` is the fence that was open where the text begins. After CommonMark 0.31 §4.5: a fence is closed by at least as many
    of the same character with nothing behind, and the information behind an opening of backticks contains no backtick. Fences inside
    lists that are indented deeper are not looked for.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    if opened is None and "```" not in text and "~~~" not in text:
        return spans, None
    tildes = "~~~" in text or (opened or "").startswith("~")
    for match in (_EITHER if tildes else _BACKTICKS).finditer(text):
        line = text.rfind("\n", 0, match.start()) + 1
        if match.start() > line and not _INDENT.fullmatch(text, line, match.start()):
            continue
        marks = match.group()
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end + 1
        rest = text[match.end() : end]
        if opened is None:
            if marks[0] == "~" or "`" not in rest:
                opened, start = marks, line
        elif marks[0] == opened[0] and len(marks) >= len(opened) and not rest.strip():
            spans.append((start, end))
            opened = None
    if opened is not None:
        spans.append((start, len(text)))
    return spans, opened
