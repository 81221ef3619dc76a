"""Hits in the order of their relevance in, numbered and fenced sources out; chunks that adjoin in a blob are one source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ragstore.models import Citation, Hit

_GAP: Final = 3
"""Characters between two chunks that still adjoin: chunking leaves out the white space at a cut."""
_LABEL_LENGTH: Final = 200
_INVISIBLE: Final = re.compile("[\U000e0000-\U000e007f]")
"""Tag characters: nobody sees them, but a model reads them as the ASCII text that they shadow."""
_CONTROL: Final = re.compile(
    r"<(?=[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]>"  # <|im_end|> and its relatives, also with full-width bars
    r"|/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\])"
)
"""Where the tokens begin that end a message or change the role in chat templates. Servers that fill such a template with text, and then
read all of it as tokens, would let a document end the user's message."""
_BREAKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A run of text of one blob version."""

    hit: Hit
    """The most relevant of the hits that it is made of."""
    text: str
    start: int
    end: int
    page: int | None
    heading: str | None
    chunks: tuple[str, ...]
    """The ids of all of them."""
    cut: bool = False
    """Only the beginning is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a template sees of one source. Everything but `number` comes from documents and is data."""

    number: int
    blob: str
    title: str | None
    page: int | None
    heading: str | None
    text: str
    stale: bool
    cut: bool
    fenced: str
    """All of it, between two lines that carry the boundary."""


def passages(hits: Iterable[Hit]) -> list[Passage]:
    """One passage for each run of hits that adjoin or overlap in one version of a blob, in the order of the best hit of each."""
    ranked = list(hits)
    rank = {id(hit): position for position, hit in enumerate(ranked)}
    runs: list[list[Hit]] = []
    for hit in sorted(ranked, key=lambda hit: (hit.blob, hit.etag, hit.version or "", hit.start, hit.end)):
        if runs and _adjoins(runs[-1], hit):
            runs[-1].append(hit)
        else:
            runs.append([hit])
    best = [min(run, key=lambda hit: rank[id(hit)]) for run in runs]
    ordered = sorted(zip(best, runs, strict=True), key=lambda pair: rank[id(pair[0])])
    return [_passage(hit, run) for hit, run in ordered]


def beginning(passage: Passage, length: int) -> Passage:
    """The first `length` characters of the passage at most, cut at white space where there is some in the last quarter."""
    kept = passage.text[:length]
    words = re.match(r"(?s).*\S(?=\s)", kept)
    if words and words.end() >= length * 3 // 4:
        kept = words[0]
    kept = kept.rstrip()
    return Passage(
        hit=passage.hit,
        text=kept,
        start=passage.start,
        end=passage.start + len(kept),
        page=passage.page,
        heading=passage.heading,
        chunks=passage.chunks,
        cut=True,
    )


def number(found: Sequence[Passage], boundary: str) -> list[Source]:
    """Sources numbered from 1."""
    return [_source(index, passage, boundary) for index, passage in enumerate(found, start=1)]


def cite(found: Sequence[Passage]) -> tuple[Citation, ...]:
    """What the numbers point to."""
    return tuple(
        Citation(
            number=index,
            blob=passage.hit.blob,
            chunk=passage.hit.chunk,
            start=passage.start,
            end=passage.end,
            page=passage.page,
            heading=passage.heading,
            title=passage.hit.title,
            version=passage.hit.version,
            etag=passage.hit.etag,
        )
        for index, passage in enumerate(found, start=1)
    )


def boundary_for(query: str, hits: Sequence[Hit], history: Sequence[str] = ()) -> str:
    """12 hex digits that occur neither in the query nor in an earlier message nor in anything that comes from a document.

    Derived from all of them, so that equal input gives an equal prompt; whoever writes one document knows neither the question nor
    the other sources, and a text that held its own hash would still be refused.
    """
    material = "\0".join([query, *history, *(part for hit in hits for part in (hit.blob, hit.title or "", hit.heading or "", hit.text))])
    digest = hashlib.blake2b(material.encode("utf-8", "surrogatepass"), digest_size=6)
    # Also in what the parts become on the way: cleaned, and joined where chunks adjoin.
    forms = "\0".join([material, plain(material), *(plain(passage.text) for passage in passages(hits))]).lower()
    while digest.hexdigest() in forms:
        digest.update(b"\0")
    return digest.hexdigest()


def _adjoins(run: list[Hit], hit: Hit) -> bool:
    first, end = run[0], max(part.end for part in run)
    same = (first.blob, first.etag, first.version) == (hit.blob, hit.etag, hit.version)
    exact = all(part.end - part.start == len(part.text) for part in (run[-1], hit))
    return same and exact and hit.start - end <= _GAP


def _passage(best: Hit, run: list[Hit]) -> Passage:
    text, end = run[0].text, run[0].end
    for hit in run[1:]:
        if hit.start > end:
            text += ("\n\n" if hit.start - end > 1 else " ") + hit.text
        else:
            text += hit.text[end - hit.start :]
        end = max(end, hit.end)
    return Passage(
        hit=best,
        text=text,
        start=run[0].start,
        end=end,
        page=run[0].page,
        heading=run[0].heading,
        chunks=tuple(hit.chunk for hit in run),
    )


def _source(index: int, passage: Passage, boundary: str) -> Source:
    hit = passage.hit
    labels = [
        ("title", _one_line(hit.title)),
        ("blob", _one_line(hit.blob)),
        ("page", str(passage.page) if passage.page else ""),
        ("section", _one_line(passage.heading)),
        ("note", "the document has changed since" if hit.stale else ""),
        ("note", "only the beginning of the passage" if passage.cut else ""),
    ]
    head = "\n".join(f"{name}: {value}" for name, value in labels if value)
    text = plain(passage.text)
    return Source(
        number=index,
        blob=_one_line(hit.blob),
        title=_one_line(hit.title) or None,
        page=passage.page,
        heading=_one_line(passage.heading) or None,
        text=text,
        stale=hit.stale,
        cut=passage.cut,
        fenced=f"<source [{index}] {boundary}>\n{head}\n\n{text}\n</source [{index}] {boundary}>",
    )


def _one_line(text: str | None) -> str:
    """A name or title that cannot pretend to be a line of its own."""
    line = _BREAKS.sub(" ", _INVISIBLE.sub("", text or "")).strip()
    return _harmless(line if len(line) <= _LABEL_LENGTH else line[: _LABEL_LENGTH - 3] + "...")


def plain(text: str) -> str:
    """Text that every tokenizer and every HTTP body can take, and that no chat template reads as more than text."""
    return _harmless(_INVISIBLE.sub("", text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")))


def _harmless(text: str) -> str:
    """The text with a blank behind the first character of each control token; a person reads on as if nothing were there."""
    return _CONTROL.sub(lambda found: f"{found[0]} ", text)
