"""A schema version in; the Avro schema of its records, as far as it is known, and an encoder for records of it out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_TYPES = {
    1: ["UnspecifiedEventType", "BlobCreated", "BlobDeleted", "BlobPropertiesUpdated", "BlobSnapshotCreated", "Control"],
    4: ["BlobTierChanged", "BlobAsyncOperationInitiated", "RestorePointMarkerCreated"],
    6: ["AppendBlobDataUpdated"],
    7: ["BlobLastAccessTimeUpdated"],
    8: ["ContainerCreated", "ContainerDeleted", "ContainerPropertiesUpdated"],
}
_APIS = {
    1: [
        *("UnspecifiedApi", "PutBlob", "PutBlockList", "CopyBlob", "DeleteBlob", "SetBlobMetadata", "ControlEvent", "UndeleteBlob"),
        *("SetBlobProperties", "SnapshotBlob"),
    ],
    4: ["SetBlobTier", "AbortCopyBlob", "SetBlobTags", "CreateRestorePointMarker"],
    6: ["AppendBlock"],
    7: ["UpdateLastAccessTime"],
    8: ["ContainerCreated", "ContainerDeleted", "RestoreContainer", "SetContainerMetadata"],
}
_TEXTS = {"type": "map", "values": "string"}


def _known(table: Mapping[int, list[str]], version: int) -> list[str]:
    return [name for since, names in table.items() if since <= version for name in names]


def _text(name: str) -> Schema:
    return {"name": name, "type": "string", "default": ""}


def _maybe(name: str, kind: object = "string") -> Schema:
    return {"name": name, "type": ["null", kind], "default": None}


def _enum(name: str, symbols: list[str]) -> Schema:
    return {"type": "enum", "name": name, "symbols": symbols, "default": symbols[0]}


def schema_of(version: int, *, more_types: tuple[str, ...] = (), more_apis: tuple[str, ...] = ()) -> Schema:
    """The writer schema of a version; `more_types` and `more_apis` are those of a service that is ahead of us."""
    api = _enum("ApiEnum", _known(_APIS, version) + list(more_apis))
    blob_types = _enum("BlobTypeEnum", ["UnspecifiedBlobType", "BlockBlob", "PageBlob", "AppendBlob"])
    tiers = _enum("BlobTierEnum", ["UnspecifiedBlobTier", "Hot", "Cool", "Archive"])
    pair = {"type": "record", "name": "values", "fields": [_text("current"), _text("previous")]}
    data: list[tuple[int, Schema]] = [
        (1, {"name": "api", "type": api, "default": "UnspecifiedApi"}),
        *((1, _text(name)) for name in ("clientRequestId", "requestId", "etag", "contentType")),
        (1, {"name": "contentLength", "type": "long", "default": 0}),
        (1, {"name": "blobType", "type": blob_types, "default": "UnspecifiedBlobType"}),
        (4, _maybe("blobVersion")),
        (4, _maybe("containerVersion")),
        (4, _maybe("blobTier", tiers)),
        (1, _text("url")),
        (1, _text("sequencer")),
        (3, _maybe("previousInfo", _TEXTS)),
        (3, _maybe("snapshot")),
        (3, _maybe("blobPropertiesUpdated", {"type": "map", "values": pair})),
        (4, _maybe("asyncOperationInfo", _TEXTS)),
        (5, _maybe("blobTagsUpdated", {"type": "map", "values": _TEXTS})),
        (5, _maybe("restorePointMarker", _TEXTS)),
        (6, _maybe("contentOffset", "long")),
        (6, _maybe("createTime")),
        (7, _maybe("lastAccessTime")),
        (8, _maybe("restoredContainerVersion")),
        (1, {"name": "storageDiagnostics", "type": _TEXTS, "default": {}}),
    ]
    record = {"type": "record", "name": "BlobChangeEventData", "fields": [field for since, field in data if since <= version]}
    return {
        "type": "record",
        "name": "BlobChangeEvent",
        "namespace": "Microsoft.Storage",
        "fields": [
            {"name": "schemaVersion", "type": "long", "default": 4},
            _text("topic"),
            _text("subject"),
            {"name": "eventType", "type": _enum("EventTypeEnum", _known(_TYPES, version) + list(more_types))},
            _text("eventTime"),
            _text("id"),
            {"name": "data", "type": record},
        ],
    }


def varint(number: int, *, padded: bool = False) -> bytes:
    """Zig-zag. The service pads the counts and sizes of blocks to ten bytes."""
    left = (number << 1) ^ (number >> 63)
    groups = bytearray()
    while left > 127:
        groups.append(left & 127 | 128)
        left >>= 7
    groups.append(left)
    while padded and len(groups) < 10:
        groups[-1] |= 128
        groups.append(0)
    return bytes(groups)


def encode(schema: Any, value: Any) -> bytes:
    """One value in Avro's binary form; what a record lacks has the schema's default."""
    if isinstance(schema, list):
        branch = 0 if value is None else 1
        return varint(branch) + (b"" if value is None else encode(schema[branch], value))
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "record":
            return b"".join(encode(field["type"], value.get(field["name"], field.get("default"))) for field in schema["fields"])
        case "enum":
            return varint(schema["symbols"].index(value))
        case "map":
            entries = b"".join(encode("string", key) + encode(schema["values"], item) for key, item in value.items())
            return (varint(len(value)) + entries if value else b"") + b"\0"
        case "string":
            text = value if isinstance(value, bytes) else value.encode()
            return varint(len(text)) + text
        case "long":
            return varint(value)
        case _:
            raise ValueError(f"no encoder for {kind!r}")


def file_header(schema: Schema, codec: str, sync: bytes) -> bytes:
    """The begin of an object container file."""
    text = json.dumps(schema, separators=(",", ":")).encode()
    metadata = {"avro.codec": codec.encode(), "avro.schema": text}
    entries = b"".join(encode("string", key) + encode("string", value) for key, value in metadata.items())
    return b"Obj\x01" + varint(len(metadata)) + entries + b"\0" + sync
