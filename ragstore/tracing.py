"""Pieces of work in; OpenTelemetry spans around them, where its package is installed and somebody traces, out.

No attribute holds what was asked or found, a blob, or who asked: a trace goes to more people than a log.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

Plain = str | int | float | bool

_NAME: Final = "ragstore"
_FAULT: Final = 500
_under_way: ContextVar[Tracer | None] = ContextVar("ragstore_tracer", default=None)
"""Of the request, or the blob, that this is done for."""


def tracer_of(provider: TracerProvider | None) -> Tracer | None:
    """Whose spans go to this provider, by default to the one of this process; None where the package is missing."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return trace.get_tracer(_NAME, tracer_provider=provider)


@contextmanager
def spanning(tracer: Tracer, name: str, *, start_time: int | None = None, attributes: Mapping[str, Plain]) -> Iterator[None]:
    """A span around the block, and around the steps within. An error is noted by its type: its text may hold a URL."""
    before = _under_way.set(tracer)
    try:
        with tracer.start_as_current_span(
            name, start_time=start_time, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as error:
                _note(span, error)
                raise
    finally:
        _under_way.reset(before)


@contextmanager
def step(name: str, **attributes: Plain) -> Iterator[None]:
    """A span around a part of what is under way; or else of the application's own trace, where it has set up OpenTelemetry."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    with spanning(tracer, name, attributes=attributes):
        yield


@asynccontextmanager
async def asking(name: str, **attributes: Plain) -> AsyncIterator[dict[str, str]]:
    """A span of what another service is asked, and the headers that say so to it (https://www.w3.org/TR/trace-context/).

    It is nobody's current span: the block may be that of a generator, which goes on and ends wherever it is asked to.
    """
    tracer = _tracer()
    if tracer is None:
        yield {}
        return
    from opentelemetry.trace import SpanKind, set_span_in_context

    span = tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False)
    try:
        yield _carried(set_span_in_context(span))
    except GeneratorExit:  # enough was heard, which is no fault
        raise
    except BaseException as error:
        _note(span, error)
        raise
    finally:
        span.end()


def carried() -> dict[str, str]:
    """The headers by which whoever is asked now can go on with this trace; none where nobody traces."""
    if _tracer() is None:
        return {}
    return _carried(None)


class ServerSpan:
    """The span of a request that is answered, as https://opentelemetry.io/docs/specs/semconv/http/http-spans/ has it."""

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def answered(self, status: int, reason: str | None) -> None:
        """With this status; `reason` is a word of ours."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("http.response.status_code", status)
        if reason is not None:
            self._span.set_attribute("error.type", reason)
        if status >= _FAULT:
            self._span.set_status(StatusCode.ERROR)


@contextmanager
def serving(tracer: Tracer | None, *, method: str, route: str, headers: Mapping[str, str], id: str) -> Iterator[ServerSpan]:
    """A span around an answer, which goes on with the trace that `headers` (by lower-cased name) speak of."""
    if tracer is None:
        yield ServerSpan(None)
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # Of what a caller sends along, this alone: baggage would go on to whom we ask.
    context = TraceContextTextMapPropagator().extract({key: headers[key] for key in ("traceparent", "tracestate") if key in headers})
    attributes: dict[str, Plain] = {"http.request.method": method, "http.route": route, "ragstore.request_id": id}
    before = _under_way.set(tracer)
    try:
        with tracer.start_as_current_span(
            f"{method} {route}",
            context=context,
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield ServerSpan(span)
    finally:
        _under_way.reset(before)


def _tracer() -> Tracer | None:
    under_way = _under_way.get()
    if under_way is not None or "opentelemetry.trace" not in sys.modules:
        return under_way
    return tracer_of(None)


def _carried(context: object) -> dict[str, str]:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, context if isinstance(context, Context) else None)
    return headers


def _note(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, type(error).__name__)
