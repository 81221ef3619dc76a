"""An answer with `[n]` marks and the texts of its sources in; which marks and quotations are wrong, and how much of it is grounded, out.

What is checked is that numbers exist and that quotations stand where they are said to stand. Whether a source that exists says what the
statement says, no program tells.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ragstore.terms import fold, words

_MARK: Final = r"\[\d{1,6}(?:\s*[,;]\s*\d{1,6})*\]"
_MARKS: Final = re.compile(_MARK)
_GROUP: Final = re.compile(rf"{_MARK}(?:\s*{_MARK})*")
_NUMBER: Final = re.compile(r"\d+")
_QUOTE: Final = re.compile(
    '"([^"\n]+)"|\u201c([^\u201c\u201d\n]+)\u201d|\u201e([^\u201c-\u201e\n]+)[\u201c\u201d]'  # the last one is German
    "|\u00ab([^\u00ab\u00bb\n]+)\u00bb|\u300c([^\u300c\u300d\n]+)\u300d"
)
_STATEMENT: Final = re.compile(
    rf".+?(?:(?<![.!?\u2026])[.!?\u2026]++[\"\u201c\u201d\u00bb)*_]*+(?:\s*{_MARK})*(?=\s|$)"
    rf"|[\u3002\uff01\uff1f]+[\u201d\u300d)]*(?:\s*{_MARK})*|$)"
)
"""A run of dots is looked at once, from its beginning: from each of its dots anew, ten thousand of them take seconds."""
_END_INSIDE: Final = re.compile("[.!?\u3002\uff01\uff1f\u2026](?!.$)")
_LEFT_OUT: Final = re.compile(r"\.\.\.|\u2026")
"""Of what stands around it, blanks and brackets, nothing is a word."""
_WORD: Final = re.compile(r"\d+(?:[.,]\d+)*%?|-(?=\d)|[^\W\d_]+")
_MOST_PROBLEMS: Final = 1_000
"""That are told of one answer; nobody reads more of them, and a model that repeats itself makes hundreds of thousands."""
_FEW: Final = 3
"""Words; fewer in quotation marks are a name or a term, not a quotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in an answer that is not as it says."""

    kind: Literal["citation", "quotation"]
    text: str
    """The mark or the quoted words."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounding:
    """What was found about one answer."""

    statements: int
    """Sentences that say something."""
    grounded: int
    """Those of them with at least one mark, none that leads nowhere, and no quotation that is wrong."""
    problems: tuple[Problem, ...]

    @property
    def share(self) -> float | None:
        """Grounded statements among all, 0 to 1; None for an answer that states nothing."""
        return self.grounded / self.statements if self.statements else None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        problems = [{"kind": problem.kind, "text": problem.text, "why": problem.why} for problem in self.problems]
        return {"groundedness": self.share, "statements": self.statements, "grounded": self.grounded, "problems": problems}


def marks(answer: str) -> list[tuple[int, int, tuple[int, ...]]]:
    """Where the `[n]` marks of an answer begin and end, and their numbers, whether there are such sources or not."""
    return [(mark.start(), mark.end(), tuple(_numbers(mark[0]))) for mark in _MARKS.finditer(answer)]


def check(answer: str, texts: Sequence[str]) -> Grounding:
    """What is wrong with the answer. `texts` are those of the sources, `[1]` the first.

    A quotation is of three words or more. It is looked for in the sources whose marks come next behind it in its line, or else last before
    it; case, accents, punctuation and white space do not count, and `...` leaves out what it likes.
    """
    sources = [_words(text) for text in texts]
    problems: list[Problem] = []
    statements = grounded = 0
    for line in answer.splitlines():
        wrong = _wrong_quotations(line, sources)
        places = [start for start, _ in wrong]
        problems += [problem for _, problem in wrong]
        for statement in _STATEMENT.finditer(_masked(line)):
            text = line[statement.start() : statement.end()]
            bad = [mark for mark in _MARKS.findall(text) if not all(1 <= number <= len(texts) for number in _numbers(mark))]
            problems += [Problem(kind="citation", text=mark, why=f"there are {len(texts)} sources") for mark in bad]
            if _says_something(text):
                statements += 1
                misquoted = bisect_left(places, statement.start()) < bisect_left(places, statement.end())
                grounded += bool(_MARKS.search(text)) and not bad and not misquoted
    return Grounding(statements=statements, grounded=grounded, problems=tuple(problems[:_MOST_PROBLEMS]))


def _wrong_quotations(line: str, sources: Sequence[str]) -> list[tuple[int, Problem]]:
    found = []
    groups = [_numbers(group[0]) for group in _GROUP.finditer(line)]
    starts = [group.start() for group in _GROUP.finditer(line)]
    for match in _QUOTE.finditer(line):
        quoted = next(group for group in match.groups() if group)
        if len(words(_MARKS.sub("", quoted))) < _FEW:
            continue
        if not groups:
            found.append((match.start(), Problem(kind="quotation", text=quoted, why="it is cited from no source")))
            continue
        numbers = groups[min(bisect_left(starts, match.start()), len(groups) - 1)]
        cited = [sources[number - 1] for number in numbers if 1 <= number <= len(sources)]
        if not any(_stands_in(quoted, source) for source in cited):
            where = ", ".join(map(str, numbers))
            found.append((match.start(), Problem(kind="quotation", text=quoted, why=f"it does not stand in [{where}]")))
    return found


def _stands_in(quoted: str, source: str) -> bool:
    """Whether its parts stand in the words of the source, in their order."""
    at = 0
    for part in _LEFT_OUT.split(_MARKS.sub("", quoted)):
        words = _words(part)
        if not words:
            continue
        place = re.compile(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])").search(source, at)
        if place is None:
            return False
        at = place.end()
    return True


def _words(text: str) -> str:
    return " ".join(_WORD.findall(fold(text)))


def _numbers(marks: str) -> list[int]:
    return list(dict.fromkeys(int(number) for number in _NUMBER.findall(marks)))


def _masked(line: str) -> str:
    """The line, as long as before, without what would end a sentence inside a quotation, its last character left out."""
    return _QUOTE.sub(lambda quote: _END_INSIDE.sub("x", quote[0]), line)


def _says_something(text: str) -> bool:
    """Whether it is more than a heading, a question, an announcement or a mark."""
    bare = _MARKS.sub("", text).strip().strip("*_ ")
    return bool(words(bare)) and not bare.startswith("#") and not bare.endswith((":", "?", "\uff1a", "\uff1f"))
