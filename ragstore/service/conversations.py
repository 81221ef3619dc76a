"""Requests about conversations that are kept here in; those of the caller, as far as the caller may still read what they rest on, out."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from ragstore.conversations import MOST_CONVERSATIONS, Conversation, Conversations
from ragstore.errors import OutageError
from ragstore.service.bodies import problems
from ragstore.service.chat import OpenAIRoute, asking, no_conversation, readable_turns
from ragstore.service.front import CONVERSATIONS
from ragstore.service.problems import Problem, RefusedError

if TYPE_CHECKING:
    from ragstore.index import AsyncIndex

Name = Annotated[str, Path(pattern=r"^conv_[0-9a-f]{32}$", description="Its id.")]
_ASKED: Final = (401, 403, 429, 501, 503, 504)


class NewConversation(BaseModel):
    """Nothing is said of it: what it is about, its turns say."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ConversationBody(BaseModel):
    """A conversation without its turns. Moments are seconds since the epoch."""

    id: str
    object: Literal["conversation"]
    created_at: int
    used_at: int
    expires_at: int


class CitedChunk(BaseModel):
    """What a number in an answer points to: the passage, at `/v1/chunks/{chunk}`."""

    number: int
    chunk: str


class TurnBody(BaseModel):
    """A question and its answer."""

    at: int
    question: str
    answer: str
    citations: list[CitedChunk]


class ConversationWithTurns(ConversationBody):
    """A conversation with those turns that rest on nothing but what may still be read."""

    turns: list[TurnBody]


class ConversationList(BaseModel):
    """The caller's own, the one used last first."""

    object: Literal["list"]
    data: list[ConversationBody]
    has_more: Literal[False]


class ConversationDeleted(BaseModel):
    """It is gone for good."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


def conversation_routes(index: AsyncIndex, kept: Conversations | None) -> APIRouter:
    """`/v1/conversations`. What was kept for too long goes now."""
    if kept is not None:
        with suppress(OutageError):  # each request about them will say so; whoever searches needs none of it
            kept.expire()
    talks = Talks(index, kept)
    router = APIRouter(route_class=OpenAIRoute, tags=["OpenAI"])
    one = f"{CONVERSATIONS}/{{conversation}}"
    made: dict[int | str, dict[str, Any]] = problems(400, 409, 413, 415, *_ASKED)
    router.add_api_route(CONVERSATIONS, talks.begin, methods=["POST"], status_code=201, response_model=ConversationBody, responses=made)
    router.add_api_route(CONVERSATIONS, talks.all, response_model=ConversationList, responses=problems(*_ASKED))
    absent = problems(400, 404, *_ASKED)
    router.add_api_route(one, talks.one, response_model=ConversationWithTurns, responses=absent)
    router.add_api_route(one, talks.delete, methods=["DELETE"], response_model=ConversationDeleted, responses=absent)
    return router


class Talks:
    """What the routes do. Whoever comes here has proved who asks (`Front`)."""

    def __init__(self, index: AsyncIndex, kept: Conversations | None) -> None:
        self._index = index
        self._conversations = kept

    @property
    def _kept(self) -> Conversations:
        if self._conversations is None:
            detail = "no conversation is kept here; its administrator can change that: [ask] base_url and model, [chat] keep_days"
            raise RefusedError(Problem(status=501, detail=detail, code="not_configured"), reason="no_conversations")
        return self._conversations

    async def begin(self, request: Request, body: NewConversation | None = None) -> JSONResponse:
        """Begin a conversation. Its id goes into the field `conversation` of `/v1/chat/completions`."""
        _ = body
        made = await self._kept.aside(self._kept.begin, asking(request).id)
        if made is None:
            detail = f"a caller has at most {MOST_CONVERSATIONS} conversations; delete one"
            raise RefusedError(Problem(status=409, detail=detail, code="too_many"), reason="too_many_conversations")
        return JSONResponse(self._shown(made), status_code=201)

    async def all(self, request: Request) -> JSONResponse:
        """The caller's own conversations, without their turns."""
        found = await self._kept.aside(self._kept.all, asking(request).id)
        return JSONResponse({"object": "list", "data": [self._shown(each) for each in found], "has_more": False})

    async def one(self, request: Request, conversation: Name) -> JSONResponse:
        """One of the caller's conversations. A turn that rests on what the caller may not read any more is left out."""
        principal = asking(request)
        found = await self._kept.aside(self._kept.find, principal.id, conversation)
        if found is None:
            raise no_conversation()
        turns = [
            {
                "at": int(turn.at),
                "question": turn.question,
                "answer": turn.answer,
                "citations": [{"number": number, "chunk": chunk} for number, chunk in turn.cited],
            }
            for turn in await readable_turns(self._index, found, principal)
        ]
        return JSONResponse({**self._shown(found), "turns": turns})

    async def delete(self, request: Request, conversation: Name) -> JSONResponse:
        """Forget one of the caller's conversations."""
        if not await self._kept.aside(self._kept.delete, asking(request).id, conversation):
            raise no_conversation()
        return JSONResponse({"id": conversation, "object": "conversation.deleted", "deleted": True})

    def _shown(self, conversation: Conversation) -> dict[str, Any]:
        return {
            "id": conversation.id,
            "object": "conversation",
            "created_at": int(conversation.created),
            "used_at": int(conversation.used),
            "expires_at": int(conversation.used + self._kept.keep),
        }
