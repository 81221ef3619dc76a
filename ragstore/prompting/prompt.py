"""A query and permitted hits in; messages for a chat model, within a token budget, and the citations of their sources out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ragstore import tracing
from ragstore.errors import QueryError
from ragstore.models import Hit, Prompt
from ragstore.prompting.budget import Budget, Rendered
from ragstore.prompting.history import Message, cleaned, recent
from ragstore.prompting.sources import Passage, boundary_for, cite, number, plain
from ragstore.prompting.template import PromptTemplate


class PromptBuilder:
    """Builds prompts whose sources are numbered from 1 and fenced, so that an instruction inside a document reads as a quotation.

    - `count_tokens` counts the tokens of each text; the budget is kept by its measure, whatever the model that answers counts.
    - `template` is the text of a Jinja2 template, or a `Path` to its file; see `PromptTemplate` for its blocks and variables.
    - Raises `ConfigError` for a template that does not work.
    """

    def __init__(self, *, count_tokens: Callable[[Sequence[str]], list[int]], template: str | Path | None = None) -> None:
        self._count_tokens = count_tokens
        self._template = PromptTemplate(template)

    @tracing.step("prompt.build")
    def build(
        self, query: str, hits: Sequence[Hit], *, max_tokens: int = 3000, history: Sequence[Message] = (), wishes: str = ""
    ) -> Prompt:
        """A system and a user message with at most `max_tokens` tokens together, and one citation for each source in them.

        - Hits are taken in their order as far as they fit; adjoining chunks of a blob become one source.
        - `history`, earlier messages of the conversation, is whatever a client sent: it goes between the two messages as far as a quarter
          of the budget reaches, the last ones first, without anything that was retrieved for them. It is no source.
        - `wishes` say how the answer should be, such as in which language. They stand among the instructions, below the rules of the
          template, which hold whatever they say; a template that has no place for them leaves them out.
        - Without hits the messages say that there are no sources, and nothing about why.
        - Raises `QueryError` for a blank query, and where the limit leaves no room for the question or for any source.
        """
        question = query.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").strip()
        if not question:
            raise QueryError("the query is blank: say what to look for")
        earlier, spent = recent(cleaned(history), max_tokens=max_tokens, count=lambda text: self._count_tokens([text])[0])
        said = plain(wishes).strip()
        boundary = boundary_for(question, hits, [*([said] if said else []), *(message["content"] for message in earlier)])

        def render(found: Sequence[Passage]) -> Rendered:
            sources = number(found, boundary)
            contents = self._template.render(query=question, sources=sources, boundary=boundary, history=len(earlier), wishes=said)
            return Rendered(contents=contents, passages=tuple(found), tokens=spent + sum(self._count_tokens(contents)))

        filled = Budget(limit=max_tokens, render=render, count=lambda text: self._count_tokens([text])[0]).fill(hits)
        if filled.tokens > max_tokens:
            raise QueryError(f"instructions and question alone take {filled.tokens} tokens: raise max_tokens above {max_tokens}")
        if hits and not filled.passages:
            raise QueryError(f"max_tokens = {max_tokens} leaves no room for any source: raise it")
        system, user = filled.contents
        return Prompt(
            messages=({"role": "system", "content": system}, *earlier, {"role": "user", "content": user}),
            citations=cite(filled.passages),
            tokens=filled.tokens,
            texts=tuple(source.text for source in number(filled.passages, boundary)),
            chunks=tuple(chunk for passage in filled.passages for chunk in passage.chunks),
        )
