"""What each type and api of the feed means, and what happens to fields that other readers stumble over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import Source
from ragstore.models import BlobId, BlobState, Event, FetchedBlob
from ragstore_azure.changefeed import events as mapping
from ragstore_azure.changefeed.avro import ChunkReader
from ragstore_azure.changefeed.events import EventMapper
from ragstore_azure.changefeed.outcomes import APIS, BY_TYPE
from tests.support.feed_schema import schema_of
from tests.support.feed_writer import START, FeedWriter, MemorySink, record


class Docs(Source):
    """Admits every path of the container `docs`."""

    def __init__(self) -> None:
        self.account = "acct"
        self.container = "docs"
        self.location = "memory"
        self.max_bytes = 1

    def admits(self, path: str) -> bool:
        return not path.startswith("private/")

    @override
    def list(self, *, below: str = "") -> AsyncIterator[BlobState]:
        raise NotImplementedError

    @override
    async def state(self, path: str) -> BlobState | None:
        raise NotImplementedError

    @override
    async def fetch(self, path: str, spool: Path) -> FetchedBlob | None:
        raise NotImplementedError

    @override
    async def close(self) -> None:
        raise NotImplementedError


def told(type: str, api: str, version: int = 8, **data: Any) -> tuple[list[Event], dict[str, int]]:
    """The events of one record, and what was left out."""
    writer = FeedWriter.of(MemorySink(), version=version, schema=schema_of(version, more_types=("Future",), more_apis=("FutureApi",)))
    reader = ChunkReader(offset=0, index=0)
    reader.add(0, writer.header() + writer.block([record("a.md", number=5, type=type, api=api, **data)]))
    mapper = EventMapper(Docs(), None)
    return mapper.events(reader.rows(10), START), mapper.take_skipped()


UPDATED = "blobPropertiesUpdated"
PAIR = {"current": "b", "previous": "a"}


@pytest.mark.parametrize(
    ("type", "api", "data", "hint"),
    [
        *(
            ("BlobCreated", api, {}, "content")
            for api in ("PutBlob", "PutBlockList", "CopyBlob", "UndeleteBlob", "UnspecifiedApi", "FutureApi")
        ),
        ("UnspecifiedEventType", "PutBlob", {}, "content"),
        ("BlobDeleted", "DeleteBlob", {}, "gone"),
        ("BlobDeleted", "DeleteBlob", {"snapshot": "2026-11-30T20:00:00.0000000Z"}, "gone"),
        ("BlobDeleted", "DeleteBlob", {"blobVersion": "2026-11-30T20:00:00.0000000Z"}, "gone"),
        ("BlobDeleted", "DeleteBlob", {"previousInfo": {"WasBlobSoftDeleted": "true", "SoftDeleteSnapshot": "x"}}, "gone"),
        *((type_, "UndeleteBlob", {}, "content") for type_ in ("BlobCreated", "BlobPropertiesUpdated", "BlobDeleted", "Future")),
        ("BlobPropertiesUpdated", "SetBlobMetadata", {}, "attributes"),
        ("BlobPropertiesUpdated", "SetBlobTags", {}, "attributes"),
        ("BlobPropertiesUpdated", "SetBlobTags", {"blobTagsUpdated": {"previous": {"k": "a"}, "current": {"k": "b"}}}, "attributes"),
        ("BlobPropertiesUpdated", "SetBlobProperties", {}, "content"),
        *(
            ("BlobPropertiesUpdated", "SetBlobProperties", {UPDATED: {name: PAIR, "CacheControl": PAIR}}, "content")
            for name in ("ContentType", "ContentEncoding", "ContentMD5")
        ),
        *(
            ("BlobPropertiesUpdated", "SetBlobProperties", {UPDATED: {name: PAIR}}, "attributes")
            for name in ("ContentLanguage", "CacheControl", "ContentDisposition", "SomethingNew")
        ),
        ("BlobPropertiesUpdated", "SetBlobMetadata", {UPDATED: {"ContentType": PAIR}}, "content"),
        ("BlobPropertiesUpdated", "FutureApi", {}, "content"),
        ("BlobTierChanged", "SetBlobTier", {"blobTier": "Archive"}, "attributes"),
        ("BlobTierChanged", "SetBlobTier", {"blobTier": "Cool", "previousInfo": {"PreviousTier": "Hot"}}, "attributes"),
        ("BlobTierChanged", "SetBlobTier", {"blobTier": "Hot", "previousInfo": {"PreviousTier": "Archive"}}, "content"),
        ("BlobTierChanged", "SetBlobTier", {}, "content"),
        ("BlobAsyncOperationInitiated", "SetBlobTier", {"asyncOperationInfo": {"WasAsyncOperation": "true"}}, "attributes"),
        ("BlobAsyncOperationInitiated", "CopyBlob", {}, "content"),
        ("AppendBlobDataUpdated", "AppendBlock", {"contentOffset": 17}, "content"),
        ("BlobSnapshotCreated", "SnapshotBlob", {"snapshot": "x"}, None),
        ("Control", "ControlEvent", {}, None),
        ("RestorePointMarkerCreated", "CreateRestorePointMarker", {"restorePointMarker": {"rpl": "x"}}, None),
        ("BlobLastAccessTimeUpdated", "UpdateLastAccessTime", {"lastAccessTime": "x"}, None),
        ("ContainerCreated", "ContainerCreated", {}, None),
        ("ContainerDeleted", "ContainerDeleted", {}, None),
        ("ContainerPropertiesUpdated", "SetContainerMetadata", {}, None),
        ("ContainerPropertiesUpdated", "RestoreContainer", {}, None),
        ("Future", "PutBlob", {}, None),
    ],
)
def test_each_type_and_api_has_an_outcome(type: str, api: str, data: dict[str, Any], hint: str | None) -> None:
    events, skipped = told(type, api, **data)
    if hint is None:
        assert (events, skipped) == ([], {type: 1})
    else:
        (event,) = events
        assert (event.hint, event.kind, skipped) == (hint, f"{type}/{api}", {})


def test_the_tables_have_every_symbol_of_every_known_schema() -> None:
    for field, known in (("eventType", set(BY_TYPE) - {"BlobMetadataUpdated"}), ("api", set(APIS))):
        data = schema_of(8)["fields"][-1]["type"]["fields"]
        (found,) = [one for one in [*schema_of(8)["fields"], *data] if one["name"] == field]
        assert set(found["type"]["symbols"]) == known


@pytest.mark.parametrize("type", sorted(BY_TYPE))
@pytest.mark.parametrize("api", sorted(APIS))
def test_any_type_with_any_api_is_an_event_or_counted(type: str, api: str) -> None:
    if type == "BlobMetadataUpdated":
        assert BY_TYPE[type] == "attributes"
        return
    events, skipped = told(type, api)
    assert len(events) + sum(skipped.values()) == 1


def test_an_event_has_every_field_that_its_constructor_would_set() -> None:
    # They are made without the constructor: a field that is added to `Event` must be added there.
    (event,), _skipped = told("BlobCreated", "PutBlob")
    assert {field.name for field in fields(Event)} == set(mapping._FIELDS)
    blob = BlobId(account="acct", container="docs", path="a.md")
    sequencer = f"{0:016X}{683:016X}{5:016x}"
    moment = START + timedelta(seconds=5)
    again = Event(blob=blob, hint="content", moment=moment, sequencer=sequencer, etag="0x8D0000000000005", kind="BlobCreated/PutBlob")
    assert event == again
    assert event.moment.tzinfo is UTC


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clientRequestId", "PowerShell, with text that is no GUID " + "x" * 20_000),
        ("blobType", "PageBlob"),
        ("blobType", "AppendBlob"),
        ("contentLength", 2**45),
        ("url", ""),
        ("previousInfo", {"WasBlobSoftDeleted": "true", "BlobVersion": "x" * 200}),
        ("asyncOperationInfo", {"WasAsyncOperation": "true"}),
        ("blobVersion", "2026-11-30T20:00:00.0000000Z"),
        ("storageDiagnostics", {f"key{number}": "value" for number in range(200)}),
    ],
)
def test_no_value_of_another_field_disturbs(field: str, value: Any) -> None:
    ((event,), _skipped) = told("BlobCreated", "PutBlob", **{field: value})
    assert (event.blob.path, event.sequencer) == ("a.md", f"{0:016X}{683:016X}{5:016x}")


@pytest.mark.parametrize("time", [b"", b"soon", b"2026-11-30", b"\xff"])
def test_a_time_that_cannot_be_read_is_taken_for_that_of_the_segment(time: bytes) -> None:
    row = (b"/blobServices/default/containers/docs/blobs/a", "BlobCreated", time, "PutBlob", b"", b"", None, None, None)
    (event,) = EventMapper(Docs(), None).events([row], START)
    assert event.moment == (START if time != b"2026-11-30" else datetime(2026, 11, 30, tzinfo=UTC))
    assert (event.sequencer, event.etag) == (None, None)
