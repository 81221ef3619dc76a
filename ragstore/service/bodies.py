"""What requests and answers look like, for checking the one and for documenting both."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ragstore.models import Citation, Hit
from ragstore.retrieval import Switches
from ragstore.retrieval.quality import MOST_NEIGHBOURS
from ragstore.retrieval.search import MAX_LIMIT
from ragstore.service.problems import MEDIA_TYPE

_LONGEST: Final = 8_192


def _storable(text: str) -> str:
    """Raises `ValueError` for what is no text to a database or a model: NUL and lone surrogates, which JSON can write."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a NUL or half of a character")
    return text


Text = Annotated[str, Field(min_length=1, max_length=_LONGEST), AfterValidator(_storable)]

_WHOLE: Final = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
"""JSON has one kind of number: 8.0 is a whole one. Text is none."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Question(_Body):
    """What a search and a prompt are asked alike."""

    query: Text
    filter: Text | None = Field(default=None, description="narrows what may be read: tag.department = 'hr' and path starts with 'reports/'")
    fusion: Literal["max-norm", "rrf"] | None = Field(default=None, description="this and what follows: default as in [retrieval]")
    vector_weight: float | None = Field(default=None, ge=0, le=1)
    near_duplicates: float | None = Field(default=None, gt=0, le=1)
    mmr: float | None = Field(default=None, ge=0, le=1)
    half_life_days: float | None = Field(default=None, ge=0, le=36_600)
    neighbours: Annotated[int, Field(ge=0, le=MOST_NEIGHBOURS), _WHOLE] | None = None

    @property
    def switches(self) -> Switches:
        """What was said of them."""
        said = self.model_dump(include=set(Switches.__annotations__), exclude_none=True)
        return cast("Switches", said)


class SearchQuery(_Question):
    """A question. Who asks is what the credential says: there is no field for it."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), _WHOLE] = 8
    per_blob: Annotated[int, Field(ge=1), _WHOLE] | None = Field(default=None, description="the most hits of one blob")


class PromptQuery(_Question):
    """A question to make a prompt for."""

    max_tokens: Annotated[int, Field(ge=256, le=10_000_000), _WHOLE] | None = Field(
        default=None, description="of the whole prompt; default: [prompt] max_tokens"
    )


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


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Answers of these statuses, for the OpenAPI document."""
    schema = ProblemBody.model_json_schema()
    return {status: {"description": "Problem", "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}
