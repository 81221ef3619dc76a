"""What happened to a blob in; the queue message that Event Grid would write of it out. For tests and soaks: no Event Grid runs here."""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

Schema = Literal["event-grid", "cloud-events"]


def topic_of(account: str) -> str:
    """The resource id of a storage account."""
    return f"/subscriptions/{uuid.UUID(int=1)}/resourceGroups/test/providers/Microsoft.Storage/storageAccounts/{account}"


def subject_of(container: str, path: str) -> str:
    return f"/blobServices/default/containers/{container}/blobs/{path}"


def as_message(events: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, base64_encoded: bool = True) -> str:
    """The text of a queue message: an object, as Event Grid writes it, or a list."""
    text = json.dumps(events)
    return base64.b64encode(text.encode()).decode() if base64_encoded else text


@dataclass(slots=True, kw_only=True)
class EventGridWriter:
    """Makes the events of one container, each with a later sequencer than the one before."""

    account: str
    container: str
    schema: Schema = "event-grid"
    endpoint: str | None = None
    """The blob or dfs endpoint that urls begin with."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, path: str) -> str:
        return f"{self.endpoint or f'https://{self.account}.blob.core.windows.net'}/{self.container}/{quote(path)}"

    def created(self, path: str, *, api: str = "PutBlob", etag: str = "0x8D0", size: int = 10, **data: Any) -> dict[str, Any]:
        more: dict[str, Any] = {
            "eTag": etag,
            "contentType": "text/plain",
            "contentLength": size,
            "blobType": "BlockBlob",
            "url": self.url(path),
        }
        return self.event("BlobCreated", path, api=api, **more, **data)

    def deleted(self, path: str, *, api: str = "DeleteBlob", **data: Any) -> dict[str, Any]:
        return self.event("BlobDeleted", path, api=api, contentType="text/plain", blobType="BlockBlob", url=self.url(path), **data)

    def renamed(self, old: str, new: str, *, api: str = "RenameFile", **data: Any) -> dict[str, Any]:
        return self.event("BlobRenamed", new, api=api, sourceUrl=self.url(old), destinationUrl=self.url(new), **data)

    def folder_renamed(self, old: str, new: str, *, api: str = "RenameDirectory", **data: Any) -> dict[str, Any]:
        return self.event("DirectoryRenamed", new, api=api, sourceUrl=self.url(old), destinationUrl=self.url(new), **data)

    def folder_deleted(self, folder: str, *, api: str = "DeleteDirectory", recursive: bool = True, **data: Any) -> dict[str, Any]:
        return self.event("DirectoryDeleted", folder, api=api, recursive=str(recursive).lower(), url=self.url(folder), **data)

    def event(self, type_: str, path: str, *, api: str | None, moment: datetime | None = None, **data: Any) -> dict[str, Any]:
        """Any event of a blob. What is given as None is left out of `data`."""
        number = next(self.numbers)
        request = uuid.UUID(int=number)
        body = {
            "api": api,
            "clientRequestId": str(request),
            "requestId": str(request),
            "sequencer": f"{number:032X}{0:016x}",
            "storageDiagnostics": {"batchId": str(request)},
            **data,
        }
        return self.envelope(f"Microsoft.Storage.{type_}", subject_of(self.container, path), body, moment=moment, id=str(request))

    def envelope(
        self, type_: str, subject: str, data: Mapping[str, object], *, id: str = "1", moment: datetime | None = None
    ) -> dict[str, Any]:
        """An event of any type and subject."""
        time = (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"
        topic = topic_of(self.account)
        body = {name: value for name, value in data.items() if value is not None}
        if self.schema == "cloud-events":
            return {"source": topic, "subject": subject, "type": type_, "time": time, "id": id, "specversion": "1.0", "data": body}
        return {
            "topic": topic,
            "subject": subject,
            "eventType": type_,
            "eventTime": time,
            "id": id,
            "data": body,
            "dataVersion": "",
            "metadataVersion": "1",
        }
