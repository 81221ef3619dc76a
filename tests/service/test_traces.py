"""Requests in, spans out: what lies in what, whose trace it belongs to, and that none says what was asked or found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from ragstore import tracing
from ragstore.answering import Endpoint
from ragstore.instrumentation import Instruments
from tests.service.conftest import ADA_CANARY, BOB_CANARY, Serving

_TRACE, _PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_TRACEPARENT = f"00-{_TRACE}-{_PARENT}-01"


class Spans:
    """Where spans go."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def take(self) -> list[ReadableSpan]:
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def _below(span: ReadableSpan, found: list[ReadableSpan]) -> list[str]:
    """The names of what lies directly within it, in order."""
    return [
        each.name
        for each in sorted(found, key=lambda each: each.start_time or 0)
        if each.parent and each.parent.span_id == span.context.span_id
    ]


def _server(found: list[ReadableSpan]) -> ReadableSpan:
    (span,) = [each for each in found if each.kind is SpanKind.SERVER]
    return span


async def test_a_search_is_one_span_with_its_steps_within(serving: Serving, spans: Spans) -> None:
    async with serving(tracer_provider=spans.provider) as served:
        answer = await served.post("search", "ada", query="who meets when?")
        found = spans.take()
        span = _server(found)
        assert span.name == "POST /v1/search"
        assert dict(span.attributes or {}) == {
            "http.request.method": "POST",
            "http.route": "/v1/search",
            "http.response.status_code": 200,
            "ragstore.request_id": answer.headers["x-request-id"],
        }
        assert sorted(_below(span, found)) == ["access.check", "embed", "store.search", "store.search"]
        legs = {str((each.attributes or {})["leg"]) for each in found if each.name == "store.search"}
        assert legs == {"vector", "text"}
        await served.post("prompt", "ada", query="who meets when?")
        found = spans.take()
        assert _below(_server(found), found)[-1] == "prompt.build"


async def test_a_trace_that_the_caller_began_goes_on(serving: Serving, spans: Spans) -> None:
    async with serving(tracer_provider=spans.provider) as served:
        await served.http.get("/healthz", headers={"traceparent": _TRACEPARENT, "baggage": "secret=word"})
        span = _server(spans.take())
        assert f"{span.context.trace_id:032x}" == _TRACE
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == _PARENT
        for wrong in (
            "",
            "00",
            _TRACEPARENT.replace("00-", "ff-", 1),
            f"00-{'0' * 32}-{_PARENT}-01",
            "\udcff",
            _TRACEPARENT + ", " + _TRACEPARENT,
        ):
            await served.http.get("/healthz", headers={"traceparent": wrong.encode("utf-8", "surrogateescape")})
            alone = _server(spans.take())
            assert alone.parent is None, wrong


async def test_no_span_says_what_was_asked_who_asked_or_what_was_found(serving: Serving, spans: Spans) -> None:
    async with serving(tracer_provider=spans.provider) as served:
        hits = (await served.post("search", "ada", query=f"board {ADA_CANARY}")).json()["hits"]
        await served.post("search", "bob", query="secret-word", filter="path = 'ada.md'", neighbours=1, mmr=0.5)
        await served.post("search", "bob", query="secret-word", filter="secret-word =")
        await served.post("prompt", "ada", query="secret-word")
        await served.http.get(f"/v1/chunks/{hits[0]['chunk']}", headers=served.bearer("bob"))
        await served.http.get("/v1/chunks/secret-word?q=secret-word", headers=served.bearer("ada"))
        await served.http.get("/secret-word")
        await served.http.post("/v1/search", json={"query": "x"}, headers={"Authorization": "Bearer secret-word"})
        found = spans.take()
    everything = " ".join(span.to_json() for span in found)
    for word in ("secret-word", ADA_CANARY, BOB_CANARY, "ada.md", "docs/", hits[0]["chunk"], '"ada"', '"bob"', *served.keys.values()):
        assert word not in everything
    names = {span.name for span in found if span.kind is SpanKind.SERVER}
    assert names == {"POST /v1/search", "POST /v1/prompt", "GET /v1/chunks/{id}", "GET other"}


async def test_what_fails_is_an_error_by_its_type_and_what_is_refused_is_none(
    serving: Serving, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ValueError(ADA_CANARY)

    async with serving(tracer_provider=spans.provider) as served:
        await served.http.post("/v1/search", json={"query": "x"})
        refused = _server(spans.take())
        assert (refused.status.is_ok, dict(refused.attributes or {})["error.type"]) == (True, "no_credential")
        monkeypatch.setattr(served.index, "search", fails)
        await served.post("search", "ada", query="x")
        failed = _server(spans.take())
        assert not failed.status.is_ok
        told = dict(failed.attributes or {})
        assert (told["http.response.status_code"], told["error.type"]) == (500, "ValueError")
        assert (failed.events, ADA_CANARY in failed.to_json()) == ((), False)


async def test_requests_at_once_keep_their_spans_apart(serving: Serving, spans: Spans) -> None:
    import asyncio

    async with serving(tracer_provider=spans.provider) as served:
        await asyncio.gather(*(served.post("search", who, query=f"meets {number}") for number in range(4) for who in ("ada", "bob")))
        found = spans.take()
    servers = [span for span in found if span.kind is SpanKind.SERVER]
    assert len({span.context.trace_id for span in servers}) == 8
    assert all("embed" in _below(span, found) and "access.check" in _below(span, found) for span in servers)


async def test_whom_we_ask_is_told_the_trace_and_no_baggage(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        event = json.dumps({"choices": [{"delta": {"content": "Friday"}}]})
        return httpx.Response(200, text=f"data: {event}\n\ndata: [DONE]\n\n", headers={"Content-Type": "text/event-stream"})

    client = httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=httpx.MockTransport(answer)))
    instruments = Instruments(tracer_provider=spans.provider)
    endpoint = Endpoint(model="m", base_url="http://model.example/v1")
    headers = {"traceparent": _TRACEPARENT, "tracestate": "a=b", "baggage": "secret=word"}
    with instruments.serving(method="POST", route="/v1/chat/completions", headers=headers, id="x"):
        pieces = [piece async for piece in endpoint.answer([{"role": "user", "content": "When?"}])]
        stopped = endpoint.stream([{"role": "user", "content": "When?"}])
        await anext(stopped)
        await stopped.aclose()
        also = tracing.carried()
    found = spans.take()
    assert pieces == ["Friday"]
    models = [span for span in found if span.name == "model.answer"]
    assert [span.kind for span in models] == [SpanKind.CLIENT] * 2
    assert all(span.status.is_ok for span in models)
    sent = [request.headers["traceparent"] for request in asked]
    assert sent == [f"00-{_TRACE}-{span.context.span_id:016x}-01" for span in models]
    assert also["traceparent"] == f"00-{_TRACE}-{_server(found).context.span_id:016x}-01"
    assert all(request.headers["tracestate"] == "a=b" and "baggage" not in request.headers for request in asked)


async def test_without_a_trace_nobody_is_told_of_one() -> None:
    assert tracing.carried() == {}


def test_without_the_package_a_request_is_answered_without_a_span() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None  # as where it is not installed
from ragstore import tracing
from ragstore.instrumentation import Instruments
with Instruments().serving(method="GET", route="/", headers={"traceparent": "x"}, id="1") as span, tracing.step("embed"):
    span.answered(200, None)
    print(tracing.carried())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "{}\n"


def test_the_applications_own_trace_holds_the_steps_of_a_search(tmp_path: Any) -> None:
    code = """
import asyncio, pathlib, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.workspace import Workspace
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
async def main():
    workspace = Workspace(pathlib.Path(sys.argv[1]))
    workspace.write("a.md", "soup at noon")
    async with workspace.open() as index:
        await index.sync()
        with trace.get_tracer("mine").start_as_current_span("mine"):
            await index.search("soup", principal=index.principal("bob"))
asyncio.run(main())
print(*sorted({span.name for span in exporter.get_finished_spans() if span.parent}))
"""
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.stdout == "access.check embed store.search\n", ran.stderr
