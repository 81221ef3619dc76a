from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.globs import Globs
from ragstore.models import Event
from ragstore_azure.address import BlobAddress, parse_blob_url
from ragstore_azure.event_grid import OUTCOMES, Outcome, Reading, Scope, read_message
from tests.support.event_grid import EventGridWriter, Schema, as_message, subject_of, topic_of

INSERTED = datetime(2026, 1, 2, tzinfo=UTC)
SCOPE = Scope(account="acme", container="docs")
GRID = EventGridWriter(account="acme", container="docs")
CLOUD = EventGridWriter(account="acme", container="docs", schema="cloud-events")
DFS = EventGridWriter(account="acme", container="docs", endpoint="https://acme.dfs.core.windows.net")


def read(event: Mapping[str, Any], scope: Scope = SCOPE) -> Reading:
    return read_message(as_message(event), scope, INSERTED)


def only(reading: Reading) -> Event:
    assert not reading.faults
    (event,) = reading.events
    return event


def brief(reading: Reading) -> list[tuple[str, str, str | None]]:
    return [(event.hint, event.blob.path, event.came_from) for event in reading.events]


# -- the envelope


@pytest.mark.parametrize("writer", [GRID, CLOUD], ids=["event grid", "cloud events"])
@pytest.mark.parametrize("encoded", [True, False], ids=["base64", "plain"])
def test_both_schemas_are_read_in_base64_and_plain(*, writer: EventGridWriter, encoded: bool) -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 123456, tzinfo=UTC)
    message = as_message(writer.created("a/b.md", etag="0x8D1", moment=moment), base64_encoded=encoded)
    event = only(read_message(message, SCOPE, INSERTED))
    assert (event.blob.account, event.blob.container, event.blob.path) == ("acme", "docs", "a/b.md")
    assert (event.hint, event.etag, event.kind, event.moment) == ("content", "0x8D1", "BlobCreated/PutBlob", moment)
    assert event.sequencer is not None
    assert len(event.sequencer) == 48


def test_a_list_of_events_is_read_one_by_one() -> None:
    reading = read_message(as_message([GRID.created("a.md"), CLOUD.deleted("b.md")]), SCOPE, INSERTED)
    assert brief(reading) == [("content", "a.md", None), ("gone", "b.md", None)]


def test_base64_may_be_broken_into_lines_and_text_may_begin_with_a_byte_order_mark() -> None:
    text = base64.encodebytes(json.dumps(GRID.created("a.md")).encode()).decode()
    assert "\n" in text.strip()
    assert only(read_message(text, SCOPE, INSERTED)).blob.path == "a.md"
    assert only(read_message("\ufeff" + json.dumps(GRID.created("a.md")), SCOPE, INSERTED)).blob.path == "a.md"


@pytest.mark.parametrize("etag", ["0x8D1", '"0x8D1"'])
@pytest.mark.parametrize("key", ["eTag", "etag"])
def test_etags_lose_their_quotes(etag: str, key: str) -> None:
    data: dict[str, Any] = {key: etag}
    assert only(read(GRID.event("BlobCreated", "a.md", api="PutBlob", **data))).etag == "0x8D1"


@pytest.mark.parametrize("sequencer", ["00000000000004420000000000028963", "0" * 31 + "A" + "0" * 15 + "b"])
def test_sequencers_of_either_length_are_kept(sequencer: str) -> None:
    assert only(read(GRID.created("a.md", sequencer=sequencer))).sequencer == sequencer


@pytest.mark.parametrize("sequencer", ["zzz", "", 7, None, "f" * 65])
def test_a_sequencer_that_is_none_never_holds_back_later_events(sequencer: object) -> None:
    assert only(read(GRID.created("a.md", sequencer=sequencer))).sequencer is None


@pytest.mark.parametrize("time", [None, "yesterday", 12, "0001-01-01T00:00:00+23:59"])
def test_an_event_whose_time_cannot_be_read_happened_when_its_message_came(time: object) -> None:
    assert only(read({**GRID.created("a.md"), "eventTime": time})).moment == INSERTED


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert only(read({**GRID.created("a.md"), "eventTime": "2026-03-04T05:06:07"})).moment == datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


# -- types and apis

EXPECTED: dict[Outcome, list[tuple[str, str, str | None]]] = {
    "content": [("content", "a/b", None)],
    "content unless empty": [("content", "a/b", None)],
    "gone": [("gone", "a/b", None)],
    "attributes": [("attributes", "a/b", None)],
    "blob moved": [("content", "a/b", "old/b"), ("gone", "old/b", None)],
    "folder": [("folder", "a/b/", None)],
    "folder moved": [("folder", "a/b/", "old/b/"), ("folder", "old/b/", None)],
    "nothing": [],
}


@pytest.mark.parametrize("schema", ["event-grid", "cloud-events"])
@pytest.mark.parametrize(("type_", "api"), list(OUTCOMES), ids="/".join)
def test_every_type_and_api_has_its_outcome(type_: str, api: str, schema: Schema) -> None:
    writer = EventGridWriter(account="acme", container="docs", schema=schema)
    moved: dict[str, Any] = {"sourceUrl": writer.url("old/b"), "destinationUrl": writer.url("a/b")}
    data = moved if "Renamed" in type_ else {"url": writer.url("a/b"), "contentLength": 5}
    reading = read(writer.event(type_, "a/b", api=api or None, **data))
    assert brief(reading) == EXPECTED[OUTCOMES[type_, api]]
    assert reading.skipped == ({f"{type_}/{api}".rstrip("/"): 1} if OUTCOMES[type_, api] == "nothing" else {})
    assert not reading.faults


def test_the_table_is_that_of_the_documentation() -> None:
    # https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage
    of_type = {type_: {api for one, api in OUTCOMES if one == type_} for type_, _api in OUTCOMES}
    assert of_type == {
        "BlobCreated": {"PutBlob", "PutBlockList", "CopyBlob", "CreateFile", "FlushWithClose", "SftpCreate", "SftpCommit"},
        "BlobDeleted": {"DeleteBlob", "DeleteFile", "SftpRemove"},
        "BlobRenamed": {"RenameFile", "SftpRename"},
        "DirectoryCreated": {"CreateDirectory", "SftpMakeDir"},
        "DirectoryRenamed": {"RenameDirectory", "SftpRename"},
        "DirectoryDeleted": {"DeleteDirectory", "SftpRemoveDir"},
        "BlobTierChanged": {"SetBlobTier"},
        "AsyncOperationInitiated": {"SetBlobTier", "CopyBlob"},
        "BlobInventoryPolicyCompleted": {""},
        "LifecyclePolicyCompleted": {""},
    }


@pytest.mark.parametrize(("first", "second"), [("CreateFile", "FlushWithClose"), ("SftpCreate", "SftpCommit")])
def test_of_an_upload_in_two_steps_the_second_is_acted_on(first: str, second: str) -> None:
    empty = read(DFS.created("a.md", api=first, size=0))
    assert (empty.events, empty.skipped) == ((), {f"BlobCreated/{first} (empty)": 1})
    assert only(read(DFS.created("a.md", api=second, size=10))).hint == "content"


@pytest.mark.parametrize("size", [3, None, "0", False])
def test_a_created_file_that_is_not_surely_empty_is_looked_at(size: object) -> None:
    # Some writers send CreateFile only.
    assert only(read(DFS.event("BlobCreated", "a.md", api="CreateFile", contentLength=size))).hint == "content"


def test_an_empty_blob_that_is_complete_is_looked_at() -> None:
    assert only(read(GRID.created("a.md", size=0))).hint == "content"


@pytest.mark.parametrize("api", ["AppendFile", None])
def test_an_api_newer_than_the_table_has_the_outcome_of_its_type(api: str | None) -> None:
    assert only(read(GRID.event("BlobCreated", "a.md", api=api))).hint == "content"
    assert only(read(GRID.event("BlobDeleted", "a.md", api=api))).hint == "gone"


def test_an_unknown_type_is_counted_by_its_name() -> None:
    assert read(GRID.event("BlobPondered", "a.md", api="X")).skipped == {"BlobPondered": 1}
    other = GRID.envelope("Contoso.Things", "anything", {})
    assert read(other).skipped == {"Contoso.Things": 1}


@pytest.mark.parametrize("type_", ["BlobInventoryPolicyCompleted", "LifecyclePolicyCompleted"])
def test_reports_of_the_account_are_no_events_of_blobs(type_: str) -> None:
    report = GRID.envelope(f"Microsoft.Storage.{type_}", "BlobDataManagement/LifeCycleManagement/SummaryReport", {"scheduleTime": "now"})
    assert read(report) == Reading(skipped={type_: 1})


# -- names


@pytest.mark.parametrize("name", ["a b.md", "a%20b.md", "100%.md", "a//b", "/a", "ä/ö.md", "x/blobs/y", "a?b#c", "new\nline", "a+b"])
@pytest.mark.parametrize("writer", [GRID, DFS], ids=["blob", "dfs"])
def test_names_are_verbatim_in_subjects_and_unescaped_once_in_urls(writer: EventGridWriter, name: str) -> None:
    assert brief(read(writer.created(name))) == [("content", name, None)]
    assert brief(read(writer.renamed(f"old/{name}", name))) == [("content", name, f"old/{name}"), ("gone", f"old/{name}", None)]


def test_where_subject_and_url_disagree_both_are_looked_at() -> None:
    reading = read({**GRID.created("a b.md"), "subject": subject_of("docs", "a%20b.md")})
    assert brief(reading) == [("content", "a%20b.md", None), ("content", "a b.md", None)]
    assert [event.sequencer is None for event in reading.events] == [False, True]


def test_the_path_of_an_emulator_begins_with_the_account() -> None:
    local = EventGridWriter(account="acme", container="docs", endpoint="http://127.0.0.1:10000/acme")
    assert brief(read(local.renamed("a.md", "b.md"))) == [("content", "b.md", "a.md"), ("gone", "a.md", None)]


def test_a_domain_of_ones_own_is_accepted() -> None:
    own = EventGridWriter(account="acme", container="docs", endpoint="https://files.example.org")
    assert brief(read(own.folder_renamed("a", "b"))) == [("folder", "b/", "a/"), ("folder", "a/", None)]


@pytest.mark.parametrize("name", ["n" * 1025, "nul\0", "lone\ud800"])
def test_names_that_no_blob_can_have_are_passed_over(name: str) -> None:
    assert read({**GRID.created("a"), "subject": subject_of("docs", name), "data": {"api": "PutBlob"}}).skipped == {"not admitted": 1}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "docs/a.md",
        "ftp://acme.blob.core.windows.net/docs/a",
        "https://acme.blob.core.windows.net/docs",
        "https://[",
        "https://acme.blob.core.windows.net/docs/%ff",
    ],
)
def test_what_is_no_url_of_a_blob_is_none(url: str) -> None:
    assert parse_blob_url(url) is None


def test_the_url_of_a_blob_tells_its_parts() -> None:
    expected = BlobAddress(account="acme", container="docs", path="a b/c")
    assert parse_blob_url("https://acme.blob.core.windows.net/docs/a%20b/c?sv=1") == expected
    assert parse_blob_url("https://acme.dfs.core.windows.net/docs/a%20b%2Fc") == expected
    assert parse_blob_url("https://acme.z12.dfs.storage.azure.net/docs/a%20b/c") == expected
    assert parse_blob_url("http://localhost:10000/acme/docs/a%20b/c") == expected
    assert parse_blob_url("https://example.org/docs/a%20b/c") == replace(expected, account=None)


# -- what is not of the source


def test_the_events_of_another_account_are_refused() -> None:
    assert read(EventGridWriter(account="other", container="docs").created("a.md")) == Reading(skipped={"another account": 1})


def test_a_topic_of_the_account_does_not_vouch_for_the_url_of_another() -> None:
    forged = {**EventGridWriter(account="other", container="docs").created("a.md"), "topic": topic_of("acme")}
    assert read(forged) == Reading(skipped={"another account": 1})


def test_account_names_in_topics_have_no_case() -> None:
    assert only(read({**GRID.created("a.md"), "topic": topic_of("acme").upper()})).blob.account == "acme"


@pytest.mark.parametrize("topic", ["/subscriptions/1", "storageAccounts/acme", "/x/storageAccounts/acme", "acme"])
def test_a_topic_that_is_no_storage_account_is_refused(topic: str) -> None:
    assert read({**GRID.created("a.md"), "topic": topic}).skipped == {"another topic": 1}


def test_only_the_topics_that_are_named_are_listened_to() -> None:
    scope = replace(SCOPE, topics=frozenset({"my-topic"}))
    assert only(read({**GRID.created("a.md"), "topic": "My-Topic"}, scope)).hint == "content"
    assert read(GRID.created("a.md"), scope).skipped == {"another topic": 1}


def test_other_containers_and_paths_that_the_source_does_not_admit_are_passed_over() -> None:
    scope = replace(SCOPE, prefix="in/", globs=Globs(include=("**/*.md",), exclude=("in/drafts/**",)))
    assert only(read(GRID.created("in/a.md"), scope)).hint == "content"
    for name in ("out/a.md", "in/a.txt", "in/drafts/a.md"):
        assert read(GRID.created(name), scope) == Reading(skipped={"not admitted": 1})
    assert read(EventGridWriter(account="acme", container="docs2").created("in/a.md"), scope).skipped == {"another container": 1}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("in/a", "in/b", [("content", "in/b", "in/a"), ("gone", "in/a", None)]),
        ("out/a", "in/b", [("content", "in/b", None)]),
        ("in/a", "out/b", [("gone", "in/a", None)]),
        ("out/a", "out/b", []),
    ],
)
def test_a_move_across_the_border_of_the_source_is_half_a_move(old: str, new: str, expected: list[tuple[str, str, str | None]]) -> None:
    assert brief(read(DFS.renamed(old, new), replace(SCOPE, prefix="in/"))) == expected


def test_a_move_to_another_container_leaves_this_one() -> None:
    elsewhere = EventGridWriter(account="acme", container="archive", endpoint="https://acme.dfs.core.windows.net")
    event = {**elsewhere.renamed("a", "b"), "data": {"api": "RenameFile", "sourceUrl": DFS.url("a"), "destinationUrl": elsewhere.url("b")}}
    assert brief(read(event)) == [("gone", "a", None)]
    back = {**DFS.renamed("a", "b"), "data": {"api": "RenameFile", "sourceUrl": elsewhere.url("a"), "destinationUrl": DFS.url("b")}}
    assert brief(read(back)) == [("content", "b", None)]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("in", [("folder", "in/", None)]),
        ("in/deep", [("folder", "in/deep/", None)]),
        ("in/deep/er/", [("folder", "in/deep/er/", None)]),
        ("out", []),
        ("inn", []),
        ("in/drafts", []),
    ],
)
def test_a_folder_counts_where_blobs_of_the_source_may_be_below_it(folder: str, expected: list[tuple[str, str, str | None]]) -> None:
    scope = replace(SCOPE, prefix="in/", globs=Globs(exclude=("in/drafts/**",)))
    assert brief(read(DFS.folder_deleted(folder), scope)) == expected


@pytest.mark.parametrize("recursive", [True, False])
def test_a_deleted_folder_is_looked_at_whatever_it_says_of_recursion(*, recursive: bool) -> None:
    assert brief(read(DFS.folder_deleted("a", recursive=recursive))) == [("folder", "a/", None)]


# -- hostile input


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("hello world!", "neither JSON nor base64"),
        ("aGVsbG8=", "not JSON"),
        ("{", "not JSON"),
        ("[]", "a list without events"),
        ("[1]", "an event is an object"),
        ("[[" * 5000, "not JSON"),
        ('{"a": ' * 5000, "not JSON"),
        ("[" + "9" * 5000 + "]", "not JSON"),
        ("{}", "'topic' is not a text"),
        ('{"specversion": "0.3"}', "only 1.0"),
        ('{"specversion": "1.0"}', "'source' is not a text"),
        (json.dumps({**GRID.created("a"), "subject": "/blobServices/default/containers/docs"}), "names no blob"),
        (json.dumps({**DFS.renamed("a", "b"), "data": {"api": "RenameFile"}}), "'sourceUrl' is not the URL of a blob"),
    ],
)
def test_what_cannot_be_understood_is_told_with_its_reason(text: str, reason: str) -> None:
    reading = read_message(text, SCOPE, INSERTED)
    assert not reading.events
    assert len(reading.faults) == 1
    assert reason in reading.faults[0]
    assert len(reading.faults[0]) < 300


def test_an_event_beside_one_that_cannot_be_understood_is_read() -> None:
    reading = read_message(as_message([{}, GRID.created("a.md")]), SCOPE, INSERTED)
    assert brief(reading) == [("content", "a.md", None)]
    assert len(reading.faults) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@given(st.text(st.characters()) | st.binary().map(lambda raw: base64.b64encode(raw).decode()))
def test_no_text_is_hostile_enough_to_raise(text: str) -> None:
    reading = read_message(text, SCOPE, INSERTED)
    assert reading.faults or reading.skipped or reading.events


@given(
    st.sampled_from([GRID, CLOUD]),
    st.sampled_from(sorted({type_ for type_, _ in OUTCOMES})),
    st.dictionaries(st.sampled_from(["subject", "data", "topic", "source", "type", "eventType", "time", "eventTime", "specversion"]), JSON),
    st.dictionaries(st.sampled_from(["api", "url", "sourceUrl", "destinationUrl", "sequencer", "eTag", "contentLength"]), JSON),
)
def test_no_value_in_an_event_is_hostile_enough_to_raise(
    writer: EventGridWriter, type_: str, fields: dict[str, object], data: dict[str, object]
) -> None:
    event = writer.event(type_, "a/b", api="X", url=writer.url("a/b"), sourceUrl=writer.url("c"), destinationUrl=writer.url("a/b"))
    event["data"].update(data)
    reading = read_message(json.dumps({**event, **fields}), SCOPE, INSERTED)
    assert reading.faults or reading.skipped or reading.events
    for told in (*reading.faults, *reading.skipped):
        assert told.encode("utf-8")
    for found in reading.events:
        assert (found.blob.account, found.blob.container) == ("acme", "docs")
        assert found.moment.tzinfo is not None


@given(NAMES, NAMES, st.sampled_from([GRID, CLOUD, DFS]))
def test_every_name_comes_through(old: str, new: str, writer: EventGridWriter) -> None:
    assert only(read(writer.created(new))).blob.path == new
    assert only(read(writer.deleted(new))).blob.path == new
    assert brief(read(writer.renamed(old, new))) == [("content", new, old), ("gone", old, None)]
