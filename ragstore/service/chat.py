"""Messages of a client of OpenAI's API in; the answer of the configured model, from what the caller may read and with citations, out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from ragstore.answering import Endpoint, EndpointDownError, EndpointRefusedError, Piece, check, marks
from ragstore.assembly import conversations_file
from ragstore.config import Settings
from ragstore.conversations import Conversation, Conversations, Turn
from ragstore.errors import PoisonError, QueryError, RagstoreError
from ragstore.models import Principal, Prompt
from ragstore.prompting.history import cleaned
from ragstore.service.bodies import problems
from ragstore.service.chat_bodies import ChatQuery, misunderstood
from ragstore.service.completions import END, Answer, ChatCompletion, Completion, broken
from ragstore.service.front import CHAT, MODELS
from ragstore.service.problems import Problem, RefusedError, problem_of
from ragstore.service.rewriting import LONGEST_REWRITTEN, Rewritten, standing_alone
from ragstore.service.upstream import problem_of_model
from ragstore.service.waiting import until_gone, until_the_end

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from ragstore.index import AsyncIndex
    from ragstore.instrumentation import Instruments

_UNFORESEEN: Final = Problem(status=500, detail="something went wrong that nobody foresaw; the log says where", code="internal_error")
_PULSE: Final = 15.0
"""Seconds between two signs of life in a stream: proxies give up what is silent for a minute, and a model may think for longer."""
_STILL_THERE: Final = b": still there\n\n"
"""A comment, which every client leaves out."""
_CHARACTERS: Final = 16
"""For each token of the budget: what is before the last so many characters of earlier messages cannot fit, and is not looked at."""


class OpenAIRoute(APIRoute):
    """A route that tells of a body which is wrong as OpenAI's API does: by 400, with the field that is meant."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handling(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                raise RefusedError(misunderstood(error), reason="misunderstood") from None

        return handling


def open_conversations(settings: Settings) -> Conversations | None:
    """Where conversations are kept; None where no model answers, or none is to be kept."""
    if not settings.chat.keep_days or not settings.ask.base_url or not settings.ask.model:
        return None
    return Conversations(conversations_file(settings), keep_days=settings.chat.keep_days)


def chat_routes(index: AsyncIndex, instruments: Instruments, kept: Conversations | None, ending: asyncio.Event) -> APIRouter:
    """`/v1/chat/completions` and `/v1/models`. Raises `ConfigError` where a model is named that cannot be asked."""
    chat = Chat(index, instruments, kept, ending)
    router = APIRouter(route_class=OpenAIRoute, tags=["OpenAI"])
    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": ChatCompletion, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **problems(400, 401, 403, 404, 409, 413, 415, 429, 501, 502, 503, 504),
    }
    router.add_api_route(CHAT, chat.complete, methods=["POST"], response_model=None, responses=answers)
    router.add_api_route(MODELS, chat.models, response_model=None, responses=problems(401, 403, 429, 501, 503, 504))
    absent = problems(400, 401, 403, 404, 429, 501, 503, 504)
    router.add_api_route(f"{MODELS}/{{model:path}}", chat.model, response_model=None, responses=absent)
    return router


class Chat:
    """What the routes do. Whoever comes here has proved who asks (`Front`)."""

    def __init__(self, index: AsyncIndex, instruments: Instruments, kept: Conversations | None, ending: asyncio.Event) -> None:
        section = index.settings.ask
        self.index = index
        self.instruments = instruments
        self.kept = kept
        self.ending = ending
        """Set when the service ends and waits for no answer any more."""
        self._endpoint: Endpoint | None = None
        if section.base_url and section.model:
            key, seconds = section.api_key_env, section.timeout
            self._endpoint = Endpoint(base_url=section.base_url, model=section.model, api_key_env=key, timeout=seconds)

    @property
    def endpoint(self) -> Endpoint:
        """Who answers. Raises `RefusedError` where nobody does."""
        if self._endpoint is None:
            detail = "no model answers here; its administrator can name one: [ask] base_url and model"
            raise RefusedError(Problem(status=501, detail=detail, code="not_configured"), reason="no_model")
        return self._endpoint

    async def complete(self, request: Request, body: ChatQuery) -> Response:
        """Answer the last message from what the caller may read, with citations; as a whole or as a stream of server-sent events."""
        _ = self.endpoint
        return _Answering(self, body, asking(request), request.state.request_id)

    async def models(self) -> JSONResponse:
        """The model that answers."""
        return JSONResponse({"object": "list", "data": [_listed(self.endpoint.model)]})

    async def model(self, model: str) -> JSONResponse:
        """The model of this name, where it is the one that answers."""
        if model != self.endpoint.model:
            raise RefusedError(Problem(status=404, detail="no such model answers here", code="model_not_found"), reason="no_model")
        return JSONResponse(_listed(model))


class _Answering(Response):
    """One answer: it is asked for, given piece by piece and checked while the caller listens, and given up when the caller is gone."""

    def __init__(self, chat: Chat, body: ChatQuery, principal: Principal, request_id: str) -> None:
        super().__init__()
        self._chat = chat
        self._body = body
        self._principal = principal
        self._request_id = request_id
        self._completion = Completion(model=chat.endpoint.model)
        self._began = False
        self._speaking = asyncio.Lock()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = self._chat.index.settings.chat.timeout
        try:
            async with asyncio.timeout(seconds) as timer:
                answer = await until_the_end(self._chat.ending, self._answered(send))
        except Exception as error:
            told = self._told(error, late=isinstance(error, TimeoutError) and timer.expired())
            if self._began:  # the status is said already
                problem = told.problem if isinstance(told, RefusedError) else _problem(told)
                await self._send(send, broken(problem), end=True)
            if told is error:
                raise
            raise told from None
        if not self._body.stream:
            await JSONResponse(self._completion.whole(answer))(scope, receive, send)
            return
        usage = b"" if answer.usage is None or not self._body.counts else self._completion.usage(answer.usage)
        await self._send(send, self._completion.last(answer) + usage + END, end=True)

    async def _answered(self, send: Send) -> Answer:
        """Retrieve, ask, and give what comes where a stream is wanted."""
        body, chat = self._body, self._chat
        if len(body.wishes) > _CHARACTERS * chat.index.settings.prompt.max_tokens:
            raise QueryError("the instructions are longer than the whole prompt may be: shorten the messages of the role 'system'")
        conversation = await self._conversation()
        turns = await _readable(chat.index, conversation, self._principal)
        rewritten = await self._rewritten(turns)
        if rewritten is not None and turns != (now := await _readable(chat.index, conversation, self._principal)):
            turns, rewritten = now, replace(rewritten, query=None)  # what is not to be read any more since the model was asked, it has read
        looked_up = None if rewritten is None else rewritten.query
        built, looked_up = await self._built(turns, looked_up)
        with chat.instruments.span("chat.model", model=chat.endpoint.model, tokens=built.tokens, sources=len(built.citations)):
            spoken = await self._spoken(send, built)
        text = spoken.text
        found = await asyncio.to_thread(marks, text)
        answer = Answer(
            text=text,
            finish=spoken.finish,
            usage=spoken.usage if rewritten is None else _together(spoken.usage, rewritten.usage),
            built=built,
            grounding=await asyncio.to_thread(check, text, built.texts),
            marks=found,
            conversation=body.conversation,
            kept=await self._keep(conversation, turns, built, text, found),
            looked_up=looked_up,
        )
        if body.stream:
            await self._say(send, "")  # also where the model said nothing
        return answer

    async def _spoken(self, send: Send, built: Prompt) -> Piece:
        """All that the model says, as one piece."""
        pulse = asyncio.create_task(self._pulse(send)) if self._body.stream else None
        try:
            return await self._listened(send, built)
        finally:
            if pulse is not None:
                pulse.cancel()
                await asyncio.gather(pulse, return_exceptions=True)

    async def _listened(self, send: Send, built: Prompt) -> Piece:
        texts: list[str] = []
        finish, usage = None, None
        async with aclosing(self._chat.endpoint.stream(built.messages, self._body.options)) as pieces:
            async for piece in pieces:
                texts.append(piece.text)
                finish, usage = piece.finish or finish, piece.usage or usage
                if self._body.stream:
                    await self._say(send, piece.text)
        return Piece(text="".join(texts), finish=finish, usage=usage)

    async def _rewritten(self, turns: Sequence[Turn]) -> Rewritten | None:
        """The question so that it stands alone, by what the prompt will hold before it; None where nobody need be asked for that."""
        body, chat, section = self._body, self._chat, self._chat.index.settings.chat
        question, history = body.question, self._history(turns)
        wanted = section.rewrite and history and len(question) <= LONGEST_REWRITTEN
        earlier = await chat.index.earlier(history) if wanted else []
        if not earlier:
            return None
        with chat.instruments.span("chat.rewrite", model=chat.endpoint.model):
            found = await standing_alone(chat.endpoint, question, earlier, seconds=section.rewrite_timeout, counts=body.counts)
        if found.why:
            chat.instruments.log("chat.not_rewritten", id=self._request_id, kind=found.why, status=found.status)
        return found

    def _history(self, turns: Sequence[Turn]) -> list[dict[str, str]]:
        said = [message for turn in turns for message in _messages(turn)] or self._body.earlier
        return _last(said, characters=_CHARACTERS * self._chat.index.settings.prompt.max_tokens)

    async def _built(self, turns: Sequence[Turn], looked_up: str | None) -> tuple[Prompt, str | None]:
        """The prompt, and what was looked up for it where that was not the question itself."""
        body, index = self._body, self._chat.index
        asked: dict[str, Any] = {"filter": body.filter, "history": self._history(turns), "wishes": body.wishes}
        if body.rerank is not None:
            asked["rerank"] = body.rerank
        try:
            return await index.prompt(body.question, principal=self._principal, look_up=looked_up, **asked), looked_up
        except (PoisonError, QueryError) as error:
            if looked_up is None:
                raise
            self._chat.instruments.log("chat.not_rewritten", id=self._request_id, kind=type(error).__name__)
        return await index.prompt(body.question, principal=self._principal, **asked), None

    async def _conversation(self) -> Conversation | None:
        """The conversation that is meant. Raises `RefusedError` where there is none of this caller's, or no turn can be added to it."""
        name, kept = self._body.conversation, self._chat.kept
        if name is None:
            return None
        if self._body.earlier:
            detail = "a conversation that is kept here has its earlier messages: send the new one alone, after instructions"
            raise RefusedError(Problem(status=400, detail=detail, code="invalid_value", param="messages"), reason="messages")
        found = None if kept is None else await kept.aside(kept.find, self._principal.id, name)
        if found is None:
            raise no_conversation()
        if found.full:
            raise RefusedError(Problem(status=409, detail="this conversation is full; begin another one", code="full"), reason="full")
        return found

    async def _keep(
        self,
        conversation: Conversation | None,
        turns: Sequence[Turn],
        built: Prompt,
        text: str,
        found: Sequence[tuple[int, int, tuple[int, ...]]],
    ) -> bool:
        """Put the turn into the conversation, unless it says nothing, or something that it rests on has gone while the model spoke."""
        if conversation is None or self._chat.kept is None or not text.strip():
            return False
        before = _heard(turns, len(built.messages) - 2)
        rests_on = {*built.chunks, *(chunk for turn in before for chunk in turn.chunks)}
        if await self._chat.index.readable(rests_on, principal=self._principal) != rests_on:
            return False
        sources = {citation.number: citation.chunk for citation in built.citations}
        numbers = dict.fromkeys(number for _, _, each in found for number in each if number in sources)
        turn = Turn(
            question=self._body.question,
            answer=text,
            cited=tuple((number, sources[number]) for number in numbers),
            chunks=built.chunks,
            after=tuple(turn.number for turn in before),
        )
        return await self._chat.kept.aside(self._chat.kept.add, self._principal.id, conversation.id, turn)

    async def _pulse(self, send: Send) -> None:
        while True:
            await asyncio.sleep(_PULSE)
            await self._say(send, "", besides=_STILL_THERE)

    async def _say(self, send: Send, text: str, *, besides: bytes = b"") -> None:
        async with self._speaking:
            if not self._began:
                headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                self._began = True
                await self._send(send, self._completion.first())
            if text or besides:
                await self._send(send, self._completion.piece(text) if text else besides)

    @staticmethod
    async def _send(send: Send, content: bytes, *, end: bool = False) -> None:
        await send({"type": "http.response.body", "body": content, "more_body": not end})

    def _told(self, error: Exception, *, late: bool) -> Exception:
        """The error as the caller may hear it: what the model's service says may quote documents, keys and addresses."""
        if late:
            problem = Problem(status=504, detail="the model took too long; ask for less", code="timeout")
            return RefusedError(problem, reason="timeout")
        if isinstance(error, (EndpointDownError, EndpointRefusedError)):
            told = {"error": type(error).__name__, "kind": error.kind, "status": error.status}
            self._chat.instruments.log("chat.down", id=self._request_id, **told)
            return RefusedError(problem_of_model(error), reason=f"model_{error.status or error.kind}")
        return error


def asking(request: Request) -> Principal:
    """As the credential proved it. Without one it is an error, and never an answer."""
    principal = request.state.principal
    if not isinstance(principal, Principal):
        raise TypeError("a request came past its authentication")
    return principal


def no_conversation() -> RefusedError:
    """One answer for what is not there, what is another's, and what cannot be."""
    return RefusedError(Problem(status=404, detail="there is no such conversation", code="not_found"), reason="no_conversation")


async def _readable(index: AsyncIndex, conversation: Conversation | None, principal: Principal) -> tuple[Turn, ...]:
    return () if conversation is None else await readable_turns(index, conversation, principal)


async def readable_turns(index: AsyncIndex, conversation: Conversation, principal: Principal) -> tuple[Turn, ...]:
    """Its turns without those that rest on what this principal may not read now, or what is not there any more."""
    chunks = conversation.chunks
    return conversation.readable(await index.readable(chunks, principal=principal) if chunks else frozenset())


def _messages(turn: Turn) -> list[dict[str, str]]:
    return [{"role": "user", "content": turn.question}, {"role": "assistant", "content": turn.answer}]


def _heard(turns: Sequence[Turn], messages: int) -> list[Turn]:
    """The last turns, of which so many messages stood in the prompt."""
    heard: list[Turn] = []
    for turn in reversed(turns):
        if messages <= 0:
            break
        messages -= len(cleaned(_messages(turn)))
        heard.insert(0, turn)
    return heard


def _last(messages: Sequence[dict[str, str]], *, characters: int) -> list[dict[str, str]]:
    kept: list[dict[str, str]] = []
    for message in reversed(messages):
        characters -= len(message["content"])
        if characters < 0:
            break
        kept.insert(0, message)
    return kept


def _together(one: Mapping[str, int] | None, other: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """The tokens of both; None where the answer's own are not known."""
    return one if one is None or other is None else {name: count + other.get(name, 0) for name, count in one.items()}


def _listed(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "ragstore"}


def _problem(error: Exception) -> Problem:
    return problem_of(error) if isinstance(error, RagstoreError) else _UNFORESEEN
