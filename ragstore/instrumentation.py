"""What a worker does in; log lines, Prometheus metrics and OpenTelemetry spans, as far as their packages are installed, out."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from ragstore import tracing
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

Scalar = str | int | float | bool | None

_NEVER: Final = frozenset({"acl", "chunk_text", "content", "metadata", "tags", "text"})
"""Fields that are not logged whatever they hold: what a blob says, and who may read it."""
_RESERVED: Final = frozenset({"event", "level", "timestamp"})
_SECRETS: Final = re.compile(
    r"(?i)(?P<name>\b(?:sig|AccountKey|SharedAccessKey|password|access_token|api[_-]?key)=)[^&;\s'\"]+"
    r"|(?P<bearer>\bBearer\s+)[\w.~+/=-]+"
    r"|(?P<user>://[^/\s:@]*:)[^/\s@]+(?=@)"
)
_LONGEST: Final = 1000
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")
"""A blob's name may hold what a terminal would obey."""
_LABELS: Final = 200
"""Values of one label, at most: a type of event that nobody knows is data of the service, and each value costs memory for ever."""
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0)
"""From a queue beside a small document to a change feed that lags by hours."""


class Instruments:
    """What a worker tells of itself. Built once; every method may be called from any thread, and none raises.

    - `json_lines`: log to stderr, as JSON lines or readably; None logs through `logging` (`ragstore.worker`), as a library does.
    - `verbose` adds what is told per blob, `quiet` leaves only what needs somebody.
    - `metrics_port`: serve `/metrics` there, 0 for any free port; `registry` collects without serving.
    - `tracer_provider`: where spans go; by default where OpenTelemetry is set up for this process.

    The packages of the extras `worker` and `otel` are used where they are installed. Raises `ConfigError` where metrics are asked for and
    cannot be served. Names of events are stable; no line holds content, tags, keys or signatures.
    """

    def __init__(
        self,
        *,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        json_lines: bool | None = None,
        verbose: bool = False,
        quiet: bool = False,
        stream: TextIO | None = None,
        registry: CollectorRegistry | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._least = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
        self._write = _through_logging if json_lines is None else _line_writer(stream, json_lines=json_lines)
        self._metrics = _Metrics(registry) if registry is not None or metrics_port is not None else None
        self._stop_serving = self._metrics.serve(metrics_host, metrics_port) if self._metrics and metrics_port is not None else None
        self._tracer = tracing.tracer_of(tracer_provider)

    @property
    def metrics_port(self) -> int | None:
        """Where metrics are served."""
        return self._metrics.port if self._metrics is not None else None

    def log(self, name: str, **fields: object) -> None:
        """One event, named `part.what_happened`. Values that are not plain, and fields that could hold content, are left out."""
        level = _level(name)
        if level >= self._least:
            self._write(level, name, {key: value for key, value in _cleaned(fields).items() if key not in _RESERVED})

    def event(self, feed: str, outcome: str, count: int = 1) -> None:
        """A record of a feed was taken in, or skipped."""
        if self._metrics is not None:
            self._metrics.events.labels(feed, self._metrics.bounded("events", outcome)).inc(count)

    def applied(self, kind: str, moment: datetime | None = None) -> None:
        """A change is searchable; `moment` is when it happened at the source, aware."""
        if self._metrics is not None:
            self._metrics.changes.labels(self._metrics.bounded("changes", kind)).inc()
            if moment is not None:
                self._metrics.to_searchable.observe(max(0.0, (datetime.now(UTC) - moment).total_seconds()))

    def access(self, moment: datetime) -> None:
        """What changed of a blob's access at `moment` (aware) counts in every answer from now on."""
        if self._metrics is not None:
            self._metrics.access.observe(max(0.0, (datetime.now(UTC) - moment).total_seconds()))

    def answered(self, kind: str, *, returned: int, refused: int, leaked: int) -> None:
        """A question was answered with so many chunks; the store proposed so many more that were refused, some past an exact filter."""
        if self._metrics is not None:
            self._metrics.answers.labels(self._metrics.bounded("answers", kind)).inc()
            self._metrics.returned.inc(returned)
            self._metrics.refused.inc(refused)
            self._metrics.leaked.inc(leaked)

    def lag(self, feed: str, seconds: float) -> None:
        """How far a feed was behind when its latest event came."""
        if self._metrics is not None:
            self._metrics.lag.labels(feed).set(seconds)

    def depth(self, changes: int, queue: str = "work") -> None:
        """How many changes wait."""
        if self._metrics is not None:
            self._metrics.depth.labels(queue).set(changes)

    def quarantined(self, blobs: int) -> None:
        """How many blobs are in quarantine."""
        if self._metrics is not None:
            self._metrics.quarantined.set(blobs)

    def embedded(self, chunks: int) -> None:
        """So many more chunks were embedded."""
        if self._metrics is not None:
            self._metrics.embedded.inc(chunks)

    @contextmanager
    def span(self, name: str, *, since: datetime | None = None, **attributes: object) -> Iterator[None]:
        """A span around the block, begun `since` (aware) where it began earlier. An error is noted by its type: its text may hold a URL."""
        if self._tracer is None:
            yield
            return
        started = int(since.timestamp() * 1e9) if since is not None else None
        known = {key: value for key, value in _cleaned(attributes).items() if value is not None}
        with tracing.spanning(self._tracer, name, start_time=started, attributes=known):
            yield

    def serving(self, *, method: str, route: str, headers: Mapping[str, str], id: str) -> AbstractContextManager[tracing.ServerSpan]:
        """A span around the answer to a request, whose `headers` (by lower-cased name) may tell of a trace that it belongs to."""
        return tracing.serving(self._tracer, method=method, route=route, headers=headers, id=id)

    def close(self) -> None:
        """Serve metrics no longer."""
        stop, self._stop_serving = self._stop_serving, None
        if stop is not None:
            stop()


class _Metrics:
    """The metrics by their names in Prometheus, in a registry of their own unless one is given."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        try:  # here, because a worker without metrics need not have it
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ModuleNotFoundError as error:
            raise ConfigError("metrics need a package that is not installed: pip install 'ragstore[worker]'") from error
        self.port: int | None = None
        self._registry = registry or CollectorRegistry()
        self._known: dict[str, set[str]] = {}
        to = self._registry
        self.events = Counter("ragstore_events_total", "Records of feeds, by what they were", ["feed", "outcome"], registry=to)
        self.changes = Counter("ragstore_changes_total", "Changes that were applied", ["kind"], registry=to)
        self.lag = Gauge("ragstore_lag_seconds", "From an event to its arrival, of each feed's latest", ["feed"], registry=to)
        self.depth = Gauge("ragstore_queue_depth", "Changes that wait to be applied", ["queue"], registry=to)
        self.quarantined = Gauge("ragstore_quarantined", "Blobs in quarantine", registry=to)
        self.embedded = Counter("ragstore_embedded_chunks_total", "Chunks that were embedded", registry=to)
        self.answers = Counter("ragstore_answers_total", "Questions that were answered", ["kind"], registry=to)
        self.returned = Counter("ragstore_returned_chunks_total", "Chunks that were shown", registry=to)
        self.refused = Counter("ragstore_refused_chunks_total", "Chunks that a store proposed and the check refused", registry=to)
        self.leaked = Counter("ragstore_filter_leaks_total", "Those that an exact filter should have kept back: an alarm", registry=to)
        self.access = Histogram(
            "ragstore_access_lag_seconds", "From a change of access to its counting in every answer", buckets=_SECONDS, registry=to
        )
        self.to_searchable = Histogram(
            "ragstore_event_to_searchable_seconds", "From an event to its change being searchable", buckets=_SECONDS, registry=to
        )

    def bounded(self, metric: str, value: str) -> str:
        """The label's value, or `other` where there are too many already."""
        known = self._known.setdefault(metric, set())
        if value not in known and len(known) >= _LABELS:
            return "other"
        known.add(value)
        return value

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Serve until the function that is returned is called."""
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {host}:{port}: {error.strerror or error}; choose another --metrics-port, or 0"
            ) from error
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop


def _level(name: str) -> int:
    """Per blob it is for whoever looks for a fault; what needs somebody is a warning; the rest happens rarely."""
    part, _, what = name.rpartition(".")
    if part == "blob" or what == "caught_up":
        return logging.DEBUG
    return logging.WARNING if what in {"down", "failed", "gap", "held_back"} else logging.INFO


def _cleaned(fields: Mapping[str, object]) -> dict[str, Any]:
    return {key: _without_secrets(value) for key, value in fields.items() if key not in _NEVER and isinstance(value, Scalar)}


def _without_secrets(value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    hidden = _SECRETS.sub(lambda found: f"{found['name'] or found['bearer'] or found['user']}***", value)
    return hidden if len(hidden) <= _LONGEST else f"{hidden[:_LONGEST]} (and {len(hidden) - _LONGEST} characters more)"


def _readable(name: str, fields: Mapping[str, Scalar]) -> str:
    """`name key=value ...` on one line; a text with blanks is quoted."""
    return " ".join([name, *(f"{key}={_shown(value)}" for key, value in fields.items())])


def _shown(value: Scalar) -> str:
    if not isinstance(value, str):
        return str(value)
    escaped = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), value)
    return f'"{escaped}"' if not escaped or " " in escaped or '"' in escaped else escaped


_Write = Callable[[int, str, Mapping[str, Scalar]], None]


def _through_logging(level: int, name: str, fields: Mapping[str, Scalar]) -> None:
    logging.getLogger("ragstore.worker").log(level, "%s", _readable(name, fields))


def _line_writer(stream: TextIO | None, *, json_lines: bool) -> _Write:
    render = _json if json_lines else _line
    try:
        import structlog
    except ModuleNotFoundError:

        def write(level: int, name: str, fields: Mapping[str, Scalar]) -> None:
            _put(stream, render({"event": name, **fields, "level": _severity(level), "timestamp": _now()}))

        return write
    logger = structlog.wrap_logger(
        _Out(stream),
        # What the application bound to its context is cleaned as well.
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _logger, _method, fields: _cleaned(fields),
            structlog.processors.add_log_level,
            lambda _logger, _method, fields: {**fields, "timestamp": _now()},
            lambda _logger, _method, fields: render(fields),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )

    def write_through_structlog(level: int, name: str, fields: Mapping[str, Scalar]) -> None:
        logger.log(level, name, **fields)

    return write_through_structlog


class _Out:
    """Where structlog writes."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        _put(self._stream, message)

    debug = info = warning = msg


def _put(stream: TextIO | None, line: str) -> None:
    """To what stderr is at that moment, unless a stream is given: a progress bar puts itself in between."""
    out = stream or sys.stderr
    if out is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more, which is no reason for the worker to end
            out.write(line + "\n")  # in one piece: several threads write
            out.flush()


def _json(fields: Mapping[str, Any]) -> str:
    """ASCII only, so that no encoding and no terminal can spoil it."""
    first = ("timestamp", "level", "event")
    return json.dumps({key: fields[key] for key in first} | dict(fields))


def _line(fields: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in fields.items() if key not in _RESERVED}
    mark = "" if fields["level"] in {"debug", "info"} else f"{fields['level']}: "
    moment = datetime.fromisoformat(fields["timestamp"]).astimezone()
    return f"{moment:%H:%M:%S} {mark}{_readable(fields['event'], rest)}"


def _severity(level: int) -> str:
    return logging.getLevelName(level).lower()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
