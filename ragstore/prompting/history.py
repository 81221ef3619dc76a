"""Earlier messages of a conversation, as a client sends them, in; those that may stand before a question, as talk and no evidence, out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ragstore.errors import QueryError
from ragstore.prompting.sources import plain

Message = Mapping[str, str]

_ROLES: Final = ("user", "assistant")
_SOURCE: Final = re.compile(r"<source \[\d+\] [0-9a-f]{12}>.*?(?:</source \[\d+\] [0-9a-f]{12}>|\Z)", re.DOTALL)
"""What was retrieved for an earlier question, for whoever asked it, then."""
_MARK: Final = re.compile(r" ?\[\d{1,4}\]")
_SHARE: Final = 4
"""One part in so many of the budget is for the conversation, the rest for question and sources."""


def cleaned(history: Sequence[Message]) -> list[dict[str, str]]:
    """The messages without sources of earlier prompts, without the numbers of their citations, and without control tokens.

    Raises `QueryError` for a role other than user and assistant: instructions are not the client's to give.
    """
    found = []
    for message in history:
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES or not isinstance(content, str):
            raise QueryError("each message of the history has a role, 'user' or 'assistant', and a content, which is text")
        text = plain(_SOURCE.sub("", content))
        text = (_MARK.sub("", text) if role == "assistant" else text).strip()
        if text:
            found.append({"role": role, "content": text})
    return found


def recent(messages: Sequence[dict[str, str]], *, max_tokens: int, count: Callable[[str], int]) -> tuple[list[dict[str, str]], int]:
    """The last messages, beginning with one of the user, that fit into their share of the budget; and how many tokens they are."""
    kept: list[tuple[dict[str, str], int]] = []
    total = 0
    for message in reversed(messages):
        tokens = count(message["content"])
        if total + tokens > max_tokens // _SHARE:
            break
        kept.append((message, tokens))
        total += tokens
    while kept and kept[-1][0]["role"] != "user":
        total -= kept.pop()[1]
    return [message for message, _ in reversed(kept)], total
