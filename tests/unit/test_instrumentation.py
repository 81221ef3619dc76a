"""What a worker does in; what a log, a scrape and a trace show of it out, through the real libraries."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from ragstore.errors import ConfigError
from ragstore.instrumentation import _LABELS, Instruments

SIGNATURE = "aB%2Fc3d4e5f6=="


def lines(*, verbose: bool = False, quiet: bool = False) -> tuple[Instruments, io.StringIO]:
    out = io.StringIO()
    return Instruments(json_lines=True, stream=out, verbose=verbose, quiet=quiet), out


def logged(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


# -- logs


def test_an_event_is_one_json_line_with_its_moment_level_and_name_first() -> None:
    instruments, out = lines()
    before = datetime.now(UTC) - timedelta(seconds=1)
    instruments.log("worker.started", feeds=2, source="handbook\nof \u202e the house")
    (line,) = logged(out)
    assert list(line) == ["timestamp", "level", "event", "feeds", "source"]
    assert (line["level"], line["event"], line["feeds"]) == ("info", "worker.started", 2)
    assert before <= datetime.fromisoformat(str(line["timestamp"])) <= datetime.now(UTC)
    assert out.getvalue().isascii()


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("worker.started", "info"),
        ("worker.stopped", "info"),
        ("feed.up", "info"),
        ("feed.down", "warning"),
        ("work.down", "warning"),
        ("feed.gap", "warning"),
        ("reconcile.held_back", "warning"),
        ("blob.indexed", "debug"),
        ("feed.caught_up", "debug"),
    ],
)
def test_each_event_has_its_level(name: str, level: str) -> None:
    instruments, out = lines(verbose=True)
    instruments.log(name)
    assert [line["level"] for line in logged(out)] == [level]


def test_normal_operation_is_quiet_and_quiet_leaves_what_needs_somebody() -> None:
    everything = ("worker.started", "blob.indexed", "feed.caught_up", "feed.down", "feed.up")
    for options, told in (({}, [0, 3, 4]), ({"quiet": True}, [3]), ({"verbose": True}, [0, 1, 2, 3, 4])):
        instruments, out = lines(**options)
        for name in everything:
            instruments.log(name)
        assert [line["event"] for line in logged(out)] == [everything[number] for number in told]


@pytest.mark.parametrize(
    "text",
    [
        f"https://a.blob.core.windows.net/c/b?sv=2026&sig={SIGNATURE}&se=2027",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SIGNATURE};EndpointSuffix=core.windows.net",
        f"postgresql+psycopg://ragstore:{SIGNATURE}@127.0.0.1:5432/ledger",
        f"401 for Authorization: Bearer {SIGNATURE}",
        f"the request failed: password={SIGNATURE}",
    ],
)
def test_no_line_and_no_span_holds_a_secret(text: str) -> None:
    instruments, out = lines()
    structlog.contextvars.bind_contextvars(where=text)
    try:
        instruments.log("feed.down", error=text)
    finally:
        structlog.contextvars.clear_contextvars()
    assert SIGNATURE not in out.getvalue()
    assert logged(out)[0]["where"] == logged(out)[0]["error"]
    assert text.partition(SIGNATURE)[0] in str(logged(out)[0]["error"])


def test_no_line_holds_content_or_tags_or_what_is_not_plain() -> None:
    instruments, out = lines()
    instruments.log(
        "feed.gap", text="salaries", content="salaries", tags="hr", acl="user::rwx", list=["salaries"], dict={"a": "hr"}, event="x"
    )
    assert set(logged(out)[0]) == {"timestamp", "level", "event"}


def test_a_line_has_an_end() -> None:
    instruments, out = lines()
    instruments.log("feed.down", error="x" * 100_000)
    assert len(out.getvalue()) < 1500


def test_a_line_for_people_obeys_no_name() -> None:
    out = io.StringIO()
    Instruments(json_lines=False, stream=out).log("feed.down", blob="docs/\x1b[2J\u202egnp.exe\n", feed="watch local/docs")
    text = out.getvalue()
    assert text.endswith('warning: feed.down blob=docs/\\x1b[2J\\u202egnp.exe\\n feed="watch local/docs"\n')
    assert text[2] == text[5] == ":"


def test_a_library_logs_through_logging(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO, "ragstore.worker"):
        Instruments().log("worker.started", feeds=1)
    assert caplog.messages == ["worker.started feeds=1"]
    assert capsys.readouterr().err == ""


def test_a_reader_that_went_away_does_not_end_the_worker() -> None:
    out = io.StringIO()
    instruments = Instruments(json_lines=True, stream=out)
    out.close()
    instruments.log("worker.started")


# -- metrics


def test_what_happens_is_counted_under_stable_names() -> None:
    registry = CollectorRegistry()
    instruments = Instruments(registry=registry)
    instruments.event("change-feed a/c", "BlobCreated/PutBlob")
    instruments.event("change-feed a/c", "skipped: Control", count=3)
    instruments.applied("content", datetime.now(UTC) - timedelta(seconds=20))
    instruments.applied("gone", datetime.now(UTC) + timedelta(hours=1))
    instruments.lag("change-feed a/c", 130.5)
    instruments.depth(7)
    instruments.quarantined(2)
    instruments.embedded(40)
    instruments.access(datetime.now(UTC) - timedelta(seconds=20))
    instruments.answered("search", returned=8, refused=3, leaked=1)
    feed = {"feed": "change-feed a/c"}
    for name, labels, value in [
        ("ragstore_events_total", {**feed, "outcome": "BlobCreated/PutBlob"}, 1),
        ("ragstore_events_total", {**feed, "outcome": "skipped: Control"}, 3),
        ("ragstore_changes_total", {"kind": "content"}, 1),
        ("ragstore_lag_seconds", feed, 130.5),
        ("ragstore_queue_depth", {"queue": "work"}, 7),
        ("ragstore_quarantined", {}, 2),
        ("ragstore_embedded_chunks_total", {}, 40),
        ("ragstore_access_lag_seconds_bucket", {"le": "30.0"}, 1),
        ("ragstore_access_lag_seconds_bucket", {"le": "10.0"}, 0),
        ("ragstore_answers_total", {"kind": "search"}, 1),
        ("ragstore_returned_chunks_total", {}, 8),
        ("ragstore_refused_chunks_total", {}, 3),
        ("ragstore_filter_leaks_total", {}, 1),
        ("ragstore_event_to_searchable_seconds_count", {}, 2),
        ("ragstore_event_to_searchable_seconds_bucket", {"le": "30.0"}, 2),
        ("ragstore_event_to_searchable_seconds_bucket", {"le": "10.0"}, 1),
    ]:
        assert registry.get_sample_value(name, labels) == value, name


def test_a_label_cannot_have_more_and_more_values() -> None:
    registry = CollectorRegistry()
    instruments = Instruments(registry=registry)
    for number in range(_LABELS + 50):
        instruments.event("queue", f"Unknown{number}")
    assert registry.get_sample_value("ragstore_events_total", {"feed": "queue", "outcome": "other"}) == 50


def test_metrics_are_served_on_loopback_until_closed() -> None:
    instruments = Instruments(metrics_port=0)
    instruments.applied("content")
    address = f"http://127.0.0.1:{instruments.metrics_port}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert 'ragstore_changes_total{kind="content"} 1.0' in answer.read().decode()
    with pytest.raises(ConfigError, match="--metrics-port"):
        Instruments(metrics_port=instruments.metrics_port)
    instruments.close()
    instruments.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)


def test_two_workers_of_one_process_have_metrics_of_their_own() -> None:
    one, two = CollectorRegistry(), CollectorRegistry()
    Instruments(registry=one).embedded(1)
    Instruments(registry=two).embedded(2)
    assert one.get_sample_value("ragstore_embedded_chunks_total") == 1


# -- traces


def traced() -> tuple[Instruments, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Instruments(tracer_provider=provider), exporter


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_span_of_a_blob_goes_from_the_event_to_the_commit() -> None:
    instruments, exporter = traced()
    moment = datetime.now(UTC) - timedelta(seconds=30)
    with instruments.span("blob", since=moment, blob="c/a.md", kind="content", tags={"allowed": "hr"}, missing=None):
        pass
    span = only(exporter)
    assert dict(span.attributes or {}) == {"blob": "c/a.md", "kind": "content"}
    assert span.start_time is not None
    assert span.end_time is not None
    assert 30 <= (span.end_time - span.start_time) / 1e9 < 60


def test_spans_lie_in_each_other() -> None:
    instruments, exporter = traced()
    with instruments.span("work"), instruments.span("blob"):
        pass
    inner, outer = exporter.get_finished_spans()
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id


def test_an_error_passes_through_a_span_which_names_only_its_type() -> None:
    instruments, exporter = traced()
    with pytest.raises(ConfigError), instruments.span("blob"):
        raise ConfigError(f"https://a/?sig={SIGNATURE}")
    span = only(exporter)
    assert (span.status.is_ok, span.status.description, span.events) == (False, "ConfigError", ())


# -- without the packages


def test_without_the_packages_everything_but_metrics_still_works() -> None:
    code = """
import sys
for name in ("structlog", "prometheus_client", "opentelemetry"):
    sys.modules[name] = None  # as where it is not installed
from ragstore.errors import ConfigError
from ragstore.instrumentation import Instruments
instruments = Instruments(json_lines=True)
instruments.log("worker.started", feeds=1)
instruments.event("f", "o"); instruments.applied("k"); instruments.lag("f", 1); instruments.depth(1); instruments.embedded(1)
with instruments.span("blob", blob="a"):
    instruments.log("worker.stopped")
try:
    Instruments(metrics_port=0)
except ConfigError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line)["event"] for line in ran.stderr.splitlines()] == ["worker.started", "worker.stopped"]
    assert "ragstore[worker]" in ran.stdout


def test_importing_it_loads_none_of_the_packages() -> None:
    code = (
        "import sys, ragstore.instrumentation; print([n for n in ('structlog', 'prometheus_client', 'opentelemetry') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
