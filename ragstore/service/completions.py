"""What a model said and the sources it had in; the objects of OpenAI's API, with citations added to them, out."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel

from ragstore.answering import Grounding
from ragstore.models import Prompt
from ragstore.service.problems import Problem

_FINISHES: Final = frozenset({"stop", "length", "content_filter"})
"""Why an answer ends. What calls a tool has nobody to call it for."""
END: Final = b"data: [DONE]\n\n"
_MOST_ANNOTATIONS: Final = 1_000
"""A model that repeats one mark for as long as it may speak would make of each three characters an object of a hundred and fifty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All of an answer."""

    text: str
    finish: str | None
    usage: Mapping[str, int] | None
    built: Prompt
    grounding: Grounding
    marks: Sequence[tuple[int, int, tuple[int, ...]]]
    """Those of the text; to look for them takes a while where there are many."""
    conversation: str | None = None
    """The conversation that it belongs to."""
    kept: bool = False
    """Whether it was put into that."""
    looked_up: str | None = None
    """What was looked up, where that was not the question as it stands."""

    @property
    def citations(self) -> list[dict[str, Any]]:
        """What each number points to, and whether the answer cites it."""
        cited = {number for _, _, numbers in self.marks for number in numbers}
        return [{**citation.as_dict(), "cited": citation.number in cited} for citation in self.built.citations]

    @property
    def annotations(self) -> list[dict[str, Any]]:
        """The first marks that lead somewhere, in the only form that OpenAI's clients know; the address is of this service."""
        sources = {citation.number: citation for citation in self.built.citations}
        found: list[dict[str, Any]] = []
        for start, end, numbers in self.marks:
            if len(found) >= _MOST_ANNOTATIONS:
                break
            for source in (sources[number] for number in numbers if number in sources):
                place = {"start_index": start, "end_index": end, "title": source.title or source.blob, "url": f"/v1/chunks/{source.chunk}"}
                found.append({"type": "url_citation", "url_citation": place})
        return found

    @property
    def additions(self) -> dict[str, Any]:
        """What ragstore adds to the object."""
        added: dict[str, Any] = {"citations": self.citations, "grounding": self.grounding.as_dict()}
        if self.looked_up is not None:
            added["search_query"] = self.looked_up
        if self.conversation is not None:
            added["conversation"] = {"id": self.conversation, "kept": self.kept}
        return added

    @property
    def reason(self) -> str:
        """Why it ends."""
        return self.finish if self.finish in _FINISHES else "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer under way, whole or in chunks."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(16)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """A `chat.completion`."""
        message = {
            "role": "assistant",
            "content": answer.text,
            "refusal": None,
            "annotations": answer.annotations,
            "citations": answer.citations,
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.reason}
        usage = {} if answer.usage is None else {"usage": dict(answer.usage)}
        return {**self._head("chat.completion"), "choices": [choice], **usage, **answer.additions}

    def first(self) -> bytes:
        """The chunk that says who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        """A chunk with a piece of the text."""
        return self._chunk({"content": text})

    def last(self, answer: Answer) -> bytes:
        """The chunk that says why it ends, and what it rests on."""
        return self._chunk({"annotations": answer.annotations}, finish=answer.reason, **answer.additions)

    def usage(self, usage: Mapping[str, int]) -> bytes:
        """The chunk without a choice."""
        return event({**self._head("chat.completion.chunk"), "choices": [], "usage": dict(usage)})

    def _chunk(self, delta: Mapping[str, Any], *, finish: str | None = None, **added: object) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice], **added})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(said: Mapping[str, Any]) -> bytes:
    """A server-sent event. ASCII, so that no client can part a line where JSON has none."""
    return b"data: " + json.dumps(said).encode("ascii") + b"\n\n"


def broken(problem: Problem) -> bytes:
    """The event by which a stream ends that cannot be finished."""
    return event({"error": problem.error})


# For the document.


class _Source(BaseModel):
    number: int
    blob: str
    chunk: str
    start: int
    end: int
    page: int | None
    heading: str | None
    title: str | None
    version: str | None
    etag: str
    cited: bool


class _Wrong(BaseModel):
    kind: Literal["citation", "quotation"]
    text: str
    why: str


class _Grounding(BaseModel):
    groundedness: float | None
    statements: int
    grounded: int
    problems: list[_Wrong]


class _Message(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[dict[str, Any]]
    citations: list[_Source]


class _Choice(BaseModel):
    index: int
    message: _Message
    logprobs: None
    finish_reason: Literal["stop", "length", "content_filter"]


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _Conversation(BaseModel):
    id: str
    kept: bool


class ChatCompletion(BaseModel):
    """An answer with what ragstore adds: `citations`, `grounding`, `conversation`, and `search_query` where not the question was looked up.

    In a stream they are in the last chunk that has a choice; an answer that breaks off ends with `{"error": {...}}` instead. `usage` counts
    all that the model was asked for this answer: also what to look up, where it said how many tokens that took.
    """

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[_Choice]
    usage: _Usage | None = None
    citations: list[_Source]
    grounding: _Grounding
    search_query: str | None = None
    conversation: _Conversation | None = None
