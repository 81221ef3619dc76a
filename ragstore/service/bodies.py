"""What requests and answers look like, for checking the one and for documenting both."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ragstore.models import Citation, Hit
from ragstore.service.problems import MEDIA_TYPE
from ragstore.service.questions import Limit, PromptQuestion, Question, Text

_SAYS_SOMETHING: Final = (
    r"^[^\x00]*[^\x00\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\x00]*$"  # what `str.strip` leaves
)
"""For the document: what is blank has no answer."""


class _Body(Question):
    model_config = ConfigDict(extra="forbid", strict=True)

    query: Text = Field(description="What to look for, in words.", json_schema_extra={"pattern": _SAYS_SOMETHING})
    filter: Text | None = Field(
        default=None, description=Question.model_fields["filter"].description, json_schema_extra={"format": "ragstore-filter"}
    )


class SearchQuery(_Body):
    """A question."""

    limit: Limit = Field(default=8, description="The most hits.")


class PromptQuery(_Body, PromptQuestion):
    """A question to make a prompt for."""


class SearchAnswer(BaseModel):
    """The best chunks that the caller may read, best first."""

    hits: list[Hit]


class PromptAnswer(BaseModel):
    """Messages for a chat model, and what their `[n]` marks point to."""

    messages: list[dict[str, str]]
    citations: list[Citation]
    tokens: int


class ProblemBody(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[dict[str, str]] = []
    error: dict[str, str | None] | None = Field(
        default=None, description="message, type, param and code, on the routes that clients of OpenAI's API ask"
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers of these statuses, for the OpenAPI document."""
    schema = ProblemBody.model_json_schema()
    return {status: {"description": "Problem", "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}
