"""Markdown text in, heading marks and title out: ATX and setext headings, never those inside a fence or the front matter."""

from __future__ import annotations

import re

from ragstore.models import HeadingMark
from ragstore.parsing.normalize import one_line

_LINE = re.compile(
    r"^ {0,3}(?:(?P<hashes>#{1,6})(?:[ \t]+(?P<text>[^\n]*))?|(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)|(?P<under>=+|-+)[ \t]*)$", re.MULTILINE
)
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|#]|[-*+][ \t]|\d{1,9}[.)][ \t]|```|~~~|<|(?:[-*_][ \t]*){3,}$)")
_FRONT = re.compile(r"---[ \t]*\n(?P<body>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FRONT_TITLE = re.compile(r"^title:[ \t]*(?P<quote>[\"']?)(?P<title>[^\n]+?)(?P=quote)[ \t]*$", re.MULTILINE)
_FRONT_LARGEST = 65_536
"""Characters in which front matter and title are looked for."""


class HeadingScanner:
    """Scans a document's blocks in order; a fence that is open at the end of one block is still open in the next."""

    def __init__(self) -> None:
        self._fence = ""
        self._mid_line = False

    def scan(self, text: str, offset: int) -> tuple[HeadingMark, ...]:
        """The headings in this block, which begins at `offset` in the document."""
        position = 0
        if offset == 0 and (front := front_matter(text)):
            position = front.end()
        elif self._mid_line:
            position = text.find("\n") + 1 or len(text)
        self._mid_line = bool(text) and not text.endswith("\n")
        marks = []
        for line in _LINE.finditer(text, position):
            if self._fence or line["fence"]:
                self._follow_fence(line)
            elif line["hashes"]:
                words = _words(line["text"] or "")
                if words:
                    marks.append(HeadingMark(start=offset + line.start(), level=len(line["hashes"]), text=words))
            elif mark := _setext(text, line, offset, position):
                marks.append(mark)
        return tuple(marks)

    def _follow_fence(self, line: re.Match[str]) -> None:
        """Open a fence (backticks may not stand in its info string), or close it with a run at least as long."""
        run, info = line["fence"] or "", line["info"] or ""
        if not self._fence:
            if not (run.startswith("`") and "`" in info):
                self._fence = run
        elif run.startswith(self._fence) and not info.strip():
            self._fence = ""


def _words(text: str) -> str:
    """What an ATX heading says: without the closing run of hashes, which has a blank in front."""
    text = text.strip()
    bare = text.rstrip("#")
    return one_line(bare if not bare or bare[-1].isspace() else text)


def _setext(text: str, line: re.Match[str], offset: int, earliest: int) -> HeadingMark | None:
    """A heading of one line that is underlined; the line above it is blank or the beginning."""
    start = text.rfind("\n", earliest, max(line.start() - 1, earliest)) + 1
    start = max(start, earliest)
    words = text[start : max(line.start() - 1, start)]
    above = text[max(text.rfind("\n", earliest, max(start - 1, earliest)) + 1, earliest) : max(start - 1, earliest)]
    if not words.strip() or above.strip() or _NO_PARAGRAPH.match(words):
        return None
    return HeadingMark(start=offset + start, level=1 if line["under"][0] == "=" else 2, text=one_line(words))


def front_matter(text: str) -> re.Match[str] | None:
    """The YAML front matter at the very beginning, if there is one."""
    return _FRONT.match(text, 0, _FRONT_LARGEST) if text.startswith("---") else None


def markdown_title(text: str) -> str | None:
    """`title` of the front matter, else the first heading of level 1 in the first 64 kB."""
    if (front := front_matter(text)) and (title := _FRONT_TITLE.search(front["body"])):
        return title["title"].strip() or None
    return next((mark.text for mark in HeadingScanner().scan(text[:_FRONT_LARGEST], 0) if mark.level == 1), None)
