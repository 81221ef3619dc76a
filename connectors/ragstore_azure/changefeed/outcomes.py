"""An event's type and api in; what it means for an index out. This is the table of all types and apis that are known.

The names: https://learn.microsoft.com/azure/storage/blobs/storage-blob-change-feed (schema versions 1 to 5), and the SDKs' sources for 6
to 8. Whatever an event says, the engine looks at the blob before it acts: a hint only says how closely.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from ragstore.models import Hint

Outcome = Hint | Literal["skip", "properties", "tier"]
"""A hint; `skip`: nothing happened to a current blob; `properties`, `tier`: it depends on what the event says besides."""

BY_TYPE: Final[Mapping[str, Outcome]] = {
    "UnspecifiedEventType": "content",  # something happened: look
    "BlobCreated": "content",
    "BlobDeleted": "gone",  # perhaps only of a snapshot or an old version: the engine looks
    "BlobPropertiesUpdated": "properties",
    "BlobMetadataUpdated": "attributes",  # in the typings of the JavaScript SDK only
    "BlobSnapshotCreated": "skip",  # of the past, which is not indexed
    "Control": "skip",  # the service's own
    "BlobTierChanged": "tier",
    "BlobAsyncOperationInitiated": "attributes",  # a rehydration began; its end is a BlobTierChanged
    "RestorePointMarkerCreated": "skip",  # names a point to which one can go back; nothing changes by it
    "AppendBlobDataUpdated": "content",
    "BlobLastAccessTimeUpdated": "skip",  # somebody read it
    "ContainerCreated": "skip",  # empty as it is
    "ContainerDeleted": "skip",  # the next listing finds out, under the guard against mass deletes
    "ContainerPropertiesUpdated": "skip",
}
BY_API: Final[Mapping[str, Outcome]] = {
    "UndeleteBlob": "content",  # the documentation does not say with which type it comes
}
"""Whatever the type."""
BY_BOTH: Final[Mapping[tuple[str, str], Outcome]] = {
    ("BlobAsyncOperationInitiated", "CopyBlob"): "content",  # a blob is being written
}
"""Where both together say more than the type."""
APIS: Final = frozenset(
    {
        "UnspecifiedApi",
        "PutBlob",
        "PutBlockList",
        "CopyBlob",
        "DeleteBlob",
        "SetBlobMetadata",
        "ControlEvent",
        "UndeleteBlob",
        "SetBlobProperties",
        "SnapshotBlob",
        "SetBlobTier",
        "AbortCopyBlob",
        "SetBlobTags",
        "CreateRestorePointMarker",
        "AppendBlock",
        "UpdateLastAccessTime",
        "ContainerCreated",
        "ContainerDeleted",
        "RestoreContainer",
        "SetContainerMetadata",
    }
)
"""All that are known. An unknown one of a known type is as that type says."""
_OF_CONTENT: Final = frozenset({b"ContentType", b"ContentEncoding", b"ContentMD5"})
_TELL_NOTHING: Final = frozenset({"SetBlobMetadata", "SetBlobTags"})
_ARCHIVE: Final = "Archive"


def outcome_of(event_type: str, api: str) -> Outcome | None:
    """What the tables say; None for a type that they do not have, unless the api alone tells."""
    return BY_API.get(api) or BY_BOTH.get((event_type, api)) or BY_TYPE.get(event_type)


def hint_of_properties(api: str, updated: Collection[bytes] | None) -> Hint:
    """`updated`: the names of the properties that the event lists; None where it lists none, as before schema version 3.

    A changed type or encoding is another text from the same bytes. What is not told is taken for the larger change.
    """
    if updated is None:
        return "attributes" if api in _TELL_NOTHING else "content"
    return "attributes" if _OF_CONTENT.isdisjoint(updated) else "content"


def hint_of_tier(tier: str | None, previous: str | None) -> Hint:
    """`tier` is that after the event, `previous` that before it; None where it is not told.

    A blob that came out of the archive can be read now. Other tiers differ in price only.
    """
    if tier == _ARCHIVE or previous not in {None, _ARCHIVE}:
        return "attributes"
    return "content"
