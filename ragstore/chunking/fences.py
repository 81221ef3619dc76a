"""A Markdown text in, the spans of its fenced code out, and the fence that is still open at the end."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)


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
    for match in _FENCE.finditer(text):
        marks, rest = match.group(1), match.group(2)
        if opened is None:
            if marks[0] == "~" or "`" not in rest:
                opened, start = marks, match.start()
        elif marks[0] == opened[0] and len(marks) >= len(opened) and not rest.strip():
            spans.append((start, min(match.end() + 1, len(text))))
            opened = None
    if opened is not None:
        spans.append((start, len(text)))
    return spans, opened
