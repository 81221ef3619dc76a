"""A request as clients of OpenAI's API write it in; the question, what was said before it and the options of the model out."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ragstore.errors import QueryError
from ragstore.service.problems import Problem
from ragstore.service.questions import LONGEST, WHOLE, Text, storable

_LONGEST_MESSAGE: Final = 65_536
_MOST_MESSAGES: Final = 1_000
_MOST_PARTS: Final = 100
_LARGEST: Final = 2**31
_CONVERSATION: Final = r"^conv_[0-9a-f]{32}$"
_FORWARDED: Final = (
    "frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "presence_penalty", "reasoning_effort", "seed", "stop",
    "temperature", "top_p", "verbosity",
)  # fmt: skip
_UNSUPPORTED: Final = {
    "audio": "sound",
    "function_call": "functions",
    "functions": "functions",
    "logprobs": "log probabilities",
    "modalities": "anything but text",
    "n": "more than one answer",
    "response_format": "a format other than text",
    "tool_calls": "tools",
    "tool_choice": "tools",
    "tools": "tools",
    "top_logprobs": "log probabilities",
    "web_search_options": "a search of the web",
}
"""What the field asks for."""
_ROLES: Final = ("system", "developer", "user", "assistant")

Words = Annotated[str, Field(max_length=_LONGEST_MESSAGE), AfterValidator(storable)]
Whole = Annotated[int, Field(ge=1, le=_LARGEST), WHOLE]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Said(BaseModel):
    """What is not named here does no harm, and is not looked at."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)


class TextPart(_Said):
    """A part of a message. There are no others: what a picture shows cannot be looked up."""

    type: Literal["text"]
    text: Words


class ChatMessage(_Said):
    """One message. Instructions (`system`, `developer`) may say how the answer should be; the rules about sources stay as they are."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Words | Annotated[list[TextPart], Field(max_length=_MOST_PARTS)] | None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None
    function_call: None = None
    audio: None = None

    @property
    def text(self) -> str:
        """All of it."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(_Said):
    """Of a stream."""

    include_usage: bool | None = None


class TextFormat(_Said):
    """The only form of an answer."""

    type: Literal["text"]


class ChatQuery(_Said):
    """A conversation whose last message is the question. Who asks is what the credential says: there is no field for it.

    The question alone is looked up, anew for each request; with earlier messages before it, as the model puts it so that it stands alone
    (`search_query` of the answer). Earlier messages show what it is about, and are never evidence: a client may have made them up.
    """

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=_MOST_MESSAGES)]
    model: Annotated[str, Field(max_length=256)] = Field(
        default="", description="Taken, whatever it says: the model that answers is the configured one, and named in the answer."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    filter: Text | None = Field(
        default=None,
        description="An extension: narrows what may be read, as in `/v1/search`.",
        json_schema_extra={"format": "ragstore-filter"},
    )
    conversation: Annotated[str, Field(pattern=_CONVERSATION)] | None = Field(
        default=None, description="An extension: the id of a conversation that is kept here. Then `messages` are the new ones only."
    )
    rerank: bool | None = Field(
        default=None,
        description="An extension: whether a model orders what was found, as in `/v1/search`. True is refused where there is none.",
    )
    # For the model.
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[Finite, Field(ge=-2, le=2)] | None = None
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    seed: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST), WHOLE] | None = None
    stop: Annotated[str, Field(max_length=256), AfterValidator(storable)] | Annotated[list[Text], Field(max_length=4)] | None = None
    logit_bias: dict[Annotated[str, AfterValidator(storable)], Annotated[Finite, Field(ge=-100, le=100)]] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    # Of these there is nothing but what they mean when they are left out.
    n: Annotated[Literal[1], WHOLE] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    functions: Annotated[list[Any], Field(max_length=0)] | None = None
    function_call: Literal["none", "auto"] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Annotated[Literal[0], WHOLE] | None = None
    response_format: TextFormat | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None
    audio: None = None
    web_search_options: None = None

    @property
    def question(self) -> str:
        """The last message. Raises `QueryError` where that is not of the user, is blank, or is too long to be looked up."""
        last = self.messages[-1]
        if last.role != "user" or not last.text.strip():
            raise QueryError("the last message must be of the role 'user', with a text: it is what is looked up")
        if len(last.text) > LONGEST:
            raise QueryError(f"the last message has {len(last.text)} characters; what is looked up has at most {LONGEST}")
        return last.text

    @property
    def earlier(self) -> list[dict[str, str]]:
        """What user and model said before, oldest first."""
        said = [message for message in self.messages[:-1] if message.role in {"user", "assistant"}]
        return [{"role": message.role, "content": message.text} for message in said]

    @property
    def wishes(self) -> str:
        """What the application would like, in all its instructions."""
        return "\n\n".join(message.text for message in self.messages if message.role in {"system", "developer"})

    @property
    def counts(self) -> bool:
        """Whether the tokens are to be told: always, but for a stream that does not ask for them."""
        return not self.stream or bool(self.stream_options and self.stream_options.include_usage)

    @property
    def options(self) -> dict[str, Any]:
        """What goes on to the model."""
        options = self.model_dump(include=set(_FORWARDED), exclude_none=True)
        return {**options, "stream_options": {"include_usage": True}} if self.counts else options


def misunderstood(error: ValidationError | Any) -> Problem:  # noqa: ANN401 - FastAPI has an error of its own, with the same method
    """What is wrong with a request first, in words that never quote it."""
    first = error.errors()[0]
    place = [part for part in first["loc"] if part != "body"]
    param = ".".join(map(str, place))[:100] or None
    unsupported = next((_UNSUPPORTED[part] for part in reversed(place) if part in _UNSUPPORTED), None)
    if unsupported is not None and len(place) in {1, 2, 3}:
        return Problem(status=400, detail=f"{param}: there is no support for {unsupported}", code="unsupported_parameter", param=param)
    if place[2:3] == ["content"] and "type" in place:
        return Problem(status=400, detail=f"{param}: there are no parts but text", code="unsupported_content", param=param)
    if place[2:] == ["role"]:
        return Problem(status=400, detail=f"{param}: the roles are {', '.join(_ROLES)}", code="unsupported_role", param=param)
    why = "no JSON" if first["type"] == "json_invalid" else str(first["msg"])
    return Problem(status=400, detail=f"{param or 'the body'}: {why}", code="invalid_value", param=param)
