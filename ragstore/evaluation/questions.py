"""An index and a principal in; questions made of the titles, headings and first sentences of its chunks, as a judged set, out.

What this measures: whether a text that is known to be there is found again by a few of its own words (known-item search). That tells
configurations, embedders and stores apart, and shows what an update broke. What it does not measure: whether people who use other words
than the documents find what they need, whether an answer is right, and what nothing was written about. Full-text search is favoured,
because every question borrows its words, and a second document that answers as well counts as a miss.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ragstore.blocking import Index
from ragstore.errors import ConfigError
from ragstore.evaluation.judged import start_folder
from ragstore.models import Hit, Principal

Kind = Literal["title", "heading", "sentence"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_SHORTEST_WORDS: Final = 2
_SHORTEST: Final = 8
"""Letters and digits, where a script has no spaces between words."""
_LONGEST: Final = 200
_SENTENCE_END: Final = re.compile(r"(?<=[.!?؟।])\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:#|[-*|>]\s))")
_MARKUP: Final = re.compile(r"^(?:\s*(?:#{1,6}|[-*>]|\d+[.)])\s+)+")
_BREAKS: Final = re.compile(r"[\t\r\n]")
_NO_SENTENCE: Final = re.compile(r"^\s*(?:#{1,6}\s|```|~~~|\|)")
"""Headings, code and tables."""
_README: Final = """\
# Questions made of an index

Each is the title, the heading or the first sentence of a passage, and its answer is the document in which that stands.

- They measure whether a text that is known to be there is found again by a few of its own words. That tells configurations, embedders and
  stores apart, and shows what an update broke.
- They do not measure whether people who use other words find what they need, nor whether an answer is right. Full-text search is favoured,
  because every question borrows its words, and a second document that answers as well counts as a miss.
- They quote documents: whoever may read this folder reads a little of each of them.

Made with: --seed {seed} --by {by}; asked for {number}, got {got}. Measure with: ragstore eval FOLDER --as PRINCIPAL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the one document that is known to answer it."""

    text: str
    kind: Kind
    blob: str
    """`container/path`."""
    chunk: str


def make(index: Index, *, principal: Principal, number: int, seed: int = 0, kinds: Sequence[Kind] = KINDS) -> list[Question]:
    """Up to `number` questions about what this principal may read; the same ones for the same index and seed.

    Each is of another chunk, and documents take turns. A question that is made of two documents is left out, because nobody could say which
    of them is meant. Raises `ConfigError` where there is nothing to ask about.
    """
    drawn = random.Random(seed)  # noqa: S311 - it shall be the same each time
    contents = index.contents(principal=principal)
    made: dict[str, Question] = {}
    ambiguous: set[str] = set()
    for chunk_id in _taking_turns(contents, drawn):
        if len(made) >= number:
            break
        hit = index.chunk(chunk_id, principal=principal)
        question = _question(hit, kinds, drawn) if hit is not None else None
        if question is None:
            continue
        key = " ".join(question.text.casefold().split())
        if key not in ambiguous and made.setdefault(key, question).blob != question.blob:
            del made[key]
            ambiguous.add(key)
    if not made:
        raise ConfigError(f"{principal.name!r} may read nothing in this index of which a question could be made; say another --by or --as")
    return list(made.values())


def write(questions: Sequence[Question], folder: Path, *, number: int, seed: int, kinds: Sequence[Kind]) -> None:
    """Write them as a set in BEIR layout into a new folder, with a note of what they measure. Raises `ConfigError` as `start_folder`."""
    start_folder(folder)
    lines, rows = [], ["query-id\tcorpus-id\tscore"]
    for place, question in enumerate(questions, start=1):
        name = f"q{place:05}"
        lines.append(json.dumps({"_id": name, "text": question.text, "metadata": {"kind": question.kind, "chunk": question.chunk}}))
        rows.append(f"{name}\t{question.blob}\t1")
    (folder / "qrels").mkdir()
    _save(folder / "queries.jsonl", "\n".join(lines))
    _save(folder / "qrels" / "test.tsv", "\n".join(rows))
    _save(folder / "README.md", _README.format(seed=seed, by=" --by ".join(kinds), number=number, got=len(questions)).rstrip("\n"))


def _save(file: Path, text: str) -> None:
    file.write_text(text + "\n", encoding="utf-8", newline="\n")


def _taking_turns(contents: Mapping[str, Sequence[str]], drawn: random.Random) -> Iterator[str]:
    """Chunk ids, one of each blob before a second of any, so that a long document does not crowd out the others."""
    # Names that no line of a file of judgements can hold are left out.
    left: list[list[str]] = []
    for blob, chunks in contents.items():
        if not _BREAKS.search(blob):
            left.append(drawn.sample(list(chunks), len(chunks)))
    while left:
        drawn.shuffle(left)
        for chunks in left:
            if chunks:
                yield chunks.pop()
        left = [chunks for chunks in left if chunks]


def _question(hit: Hit, kinds: Sequence[Kind], drawn: random.Random) -> Question | None:
    texts: dict[Kind, Any] = {"title": hit.title, "heading": (hit.heading or "").rpartition(" > ")[2], "sentence": _sentence(hit)}
    fit: list[Kind] = [kind for kind in kinds if _is_enough(texts[kind])]
    if not fit:
        return None
    kind = drawn.choice(fit)
    return Question(text=_shortened(texts[kind]), kind=kind, blob=hit.blob, chunk=hit.chunk)


def _sentence(hit: Hit) -> str:
    """The first sentence of running text; where the chunk may begin in the midst of one, the first that begins in it."""
    parts = [part for part in _SENTENCE_END.split(hit.text) if part and part.strip() and not _NO_SENTENCE.match(part)]
    if len(parts) > 1 and hit.start and parts[0].lstrip()[:1].islower():
        del parts[0]
    return next((text for part in parts if _is_enough(text := _MARKUP.sub("", " ".join(part.split())))), "")


def _is_enough(text: str | None) -> bool:
    letters = sum(character.isalnum() for character in text or "")
    return letters >= _SHORTEST and (len((text or "").split()) >= _SHORTEST_WORDS or not (text or "").isascii())


def _shortened(text: str) -> str:
    """One line of at most so many characters, cut between words where there are any."""
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    kept = line[:_LONGEST]
    return kept.rpartition(" ")[0] or kept
