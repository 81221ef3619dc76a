"""What somebody asks, over HTTP or MCP alike, in; checked keywords of `AsyncIndex.search` and `AsyncIndex.prompt` out."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ragstore.retrieval.quality import MOST_NEIGHBOURS
from ragstore.retrieval.search import MAX_LIMIT

LONGEST: Final = 8_192
"""Characters of what is looked up."""
_LONGEST_MESSAGE: Final = 65_536
_MOST_MESSAGES: Final = 200
_NO_NUL: Final[dict[str, Any]] = {"pattern": r"^[^\x00]*$"}
"""For the document: what `storable` wants. (Half of a character is no text of JSON's by itself.)"""


def storable(text: str) -> str:
    """Raises `ValueError` for what is no text to a database or a model: NUL and lone surrogates, which JSON can write."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a NUL or half of a character")
    return text


Text = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(storable)]

WHOLE: Final = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
"""JSON has one kind of number: 8.0 is a whole one. Text is none."""

Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT), WHOLE]


class Question(BaseModel):
    """What a search and a prompt are asked alike. Who asks is what the credential says: there is no field for it."""

    query: Text = Field(description="What to look for, in words.")
    filter: Text | None = Field(
        default=None,
        description="Narrows what may be read: tag.department = 'hr' and path starts with 'reports/'. "
        "Columns: account, container, path, media_type, tag.KEY, metadata.KEY.",
    )
    per_blob: Limit | None = Field(default=None, description="The most hits of one blob.")
    legs: Literal["both", "vector", "text"] = Field(default="both", description="What is searched: meaning, words, or both.")
    fusion: Literal["max-norm", "rrf"] | None = Field(
        default=None, description="How the two are brought together. This and what follows: by default as configured."
    )
    vector_weight: float | None = Field(default=None, ge=0, le=1, description="Share of meaning in a score; the words have the rest.")
    near_duplicates: float | None = Field(default=None, gt=0, le=1, description="Likeness from which on a text counts as one shown before.")
    mmr: float | None = Field(default=None, ge=0, le=1, description="How much relevance counts against variety; 1: alone.")
    half_life_days: float | None = Field(default=None, ge=0, le=36_600, description="In which half of a new blob's boost is gone; 0: none.")
    neighbours: Annotated[int, Field(ge=0, le=MOST_NEIGHBOURS), WHOLE] | None = Field(
        default=None, description="Chunks before and behind each hit that come with it."
    )
    rerank: bool | None = Field(default=None, description="Whether a model orders the hits. True is refused where there is none.")

    @property
    def keywords(self) -> dict[str, Any]:
        """What was said, as the index takes it."""
        return self.model_dump(exclude_none=True)


class Earlier(BaseModel):
    """A message of the conversation so far."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    role: Literal["user", "assistant"]
    content: Annotated[str, Field(max_length=_LONGEST_MESSAGE, json_schema_extra=_NO_NUL), AfterValidator(storable)]


class PromptQuestion(Question):
    """What a prompt is asked besides."""

    limit: Limit | None = Field(default=None, description="The most hits that are looked at; max_tokens decides how many go in.")
    template: Literal["answer", "summarise", "chat"] | None = Field(
        default=None, description="By default as configured, or else chat where there is a history and answer where there is none."
    )
    history: list[Earlier] = Field(
        default=[],
        max_length=_MOST_MESSAGES,
        description="Earlier messages, oldest first. They are talk and never evidence: the query alone is looked up, anew.",
    )
    wishes: Annotated[str, Field(max_length=LONGEST, json_schema_extra=_NO_NUL), AfterValidator(storable)] = Field(
        default="", description="How the answer should be, such as in which language. It stands below the rules, and changes none."
    )
    look_up: Text | None = Field(
        default=None, description="What is looked up instead of the query, such as a follow-up put so that it stands alone."
    )
    max_tokens: Annotated[int, Field(ge=256, le=10_000_000), WHOLE] | None = Field(
        default=None, description="The most tokens of all messages together. By default as configured."
    )
