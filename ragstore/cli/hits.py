"""Hits and prompts in; for each hit where it stands and the lines around the query's words, and for a prompt its messages, out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ragstore.cli.tables import counted
from ragstore.cli.terminal import Terminal, plain

if TYPE_CHECKING:
    from ragstore.models import Citation, Hit, Prompt

_SNIPPET: Final = 280
_LEAD: Final = 60
"""Characters before the first word that was asked for."""
_SHORTEST_WORD: Final = 3
_HEADING: Final = 60


def show(hits: Sequence[Hit], query: str, terminal: Terminal) -> None:
    """The hits, best first: where each stands, and below it the lines around the query's words."""
    if not hits:
        terminal.note("nothing found that this principal may read")
    words = query_words(query)
    for number, hit in enumerate(hits, start=1):
        if number > 1:
            terminal.line()
        if terminal.styled:
            _show_styled(number, hit, words, terminal)
        else:
            terminal.line("  ".join([f"{number}. {plain(hit.blob)}", *_details(hit)]))
            terminal.line(f"   {plain(snippet_of(hit.text, words))}")


def _show_styled(number: int, hit: Hit, words: re.Pattern[str] | None, terminal: Terminal) -> None:
    from rich.padding import Padding
    from rich.text import Text

    title = Text(f"{number}. ", style="dim")
    title.append(plain(hit.blob), style="bold")
    title.append("".join(f"  {detail}" for detail in _details(hit)), style="cyan")
    terminal.show(title)
    snippet = Text(plain(snippet_of(hit.text, words)))
    if words is not None:
        snippet.highlight_regex(words, style="bold yellow")
    terminal.show(Padding(snippet, (0, 0, 0, 3)))


def show_prompt(prompt: Prompt, terminal: Terminal) -> None:
    """Each message under its role, then what the numbers point to."""
    for message in prompt.messages:
        terminal.line(f"--- {message['role']} ---")
        for line in message["content"].split("\n"):
            terminal.line(line)
    terminal.line(f"--- {counted(len(prompt.citations), 'citation')}, {counted(prompt.tokens, 'token')} ---")
    show_citations(prompt.citations, terminal)


def show_citations(citations: Sequence[Citation], terminal: Terminal) -> None:
    """What each number points to."""
    for citation in citations:
        place = _place(citation)
        terminal.line(
            f"[{citation.number}] {plain(citation.blob)}{f'  {place}' if place else ''}  characters {citation.start}-{citation.end}"
        )


def query_words(query: str) -> re.Pattern[str] | None:
    """What to highlight: the query's words, but for the shortest, and only from the start of a word. None for a query without words."""
    words = {word for word in re.findall(r"\w+", query) if len(word) >= _SHORTEST_WORD or not word.isascii()}
    if not words:
        return None
    pattern = "|".join(re.escape(word) if word.isascii() else word for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?i)(?<![a-zA-Z0-9_])(?:{pattern})")


def snippet_of(text: str, words: re.Pattern[str] | None) -> str:
    """One line of the text around the densest place of the words, with `...` where it was cut."""
    line = " ".join(text.split())
    if len(line) <= _SNIPPET:
        return line
    starts = [found.start() for found in words.finditer(line)] if words is not None else []
    start = _cut(line, max(_densest(starts) - _LEAD, 0))
    end = start + _SNIPPET
    if end < len(line):
        end = line.rfind(" ", start + _SNIPPET // 2, end) if " " in line[start + _SNIPPET // 2 : end] else end
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''}"


def _densest(starts: Iterable[int]) -> int:
    """Where a window begins that holds most of these positions; 0 where there are none."""
    positions = list(starts)
    return max(positions, key=lambda start: (sum(start <= other < start + _SNIPPET - _LEAD for other in positions), -start), default=0)


def _cut(line: str, start: int) -> int:
    """The next beginning of a word, where there is one near."""
    space = line.find(" ", start, start + _LEAD)
    return space + 1 if start and space >= 0 else start


def _details(hit: Hit) -> list[str]:
    """Place, score and a warning, as far as there is something to say."""
    return [detail for detail in (_place(hit), f"{hit.score:.3f}", "stale" if hit.stale else "") if detail]


def _place(where: Hit | Citation) -> str:
    """Page and heading, as far as they are known."""
    heading = plain(where.heading or where.title or "")
    if len(heading) > _HEADING:
        heading = f"...{heading[-_HEADING:]}"  # the end of the path of headings is the nearest one
    parts = [f"p. {where.page}" if where.page is not None else "", heading]
    return "  ".join(part for part in parts if part)
