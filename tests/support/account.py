"""Changes of blobs in; the blobs in a container, and what the change feed and Event Grid tell of each change, out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from azure.storage.blob import ContainerClient

from tests.support.azurite import Azurite
from tests.support.event_grid import EventGridWriter, Schema
from tests.support.feed_writer import record


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a storage account tells of one change."""

    record: dict[str, Any]
    """Of the change feed."""
    event: dict[str, Any] | None = None
    """Of Event Grid, which is silent about index tags and metadata."""


@dataclass(slots=True, kw_only=True)
class Account:
    """Changes the blobs of a container, one at a time; both feeds give a change the same sequencer."""

    azurite: Azurite
    client: ContainerClient
    schema: Schema = "event-grid"
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def of(cls, azurite: Azurite, container: str) -> Account:
        return cls(azurite=azurite, client=ContainerClient.from_connection_string(azurite.connection_string, container))

    def put(self, path: str, text: str, *, allow: str = "staff", api: str = "PutBlob") -> Told:
        """Content and who may read it, at once."""
        written = self.client.upload_blob(path, text.encode(), overwrite=True, tags={"allow": allow} if allow else None)
        etag = str(written.get_blob_properties().etag).strip('"')
        return self._told(path, type_="BlobCreated", api=api, etag=etag, size=len(text.encode()))

    def retag(self, path: str, allow: str) -> Told:
        """Change who may read it, and nothing else."""
        blob = self.client.get_blob_client(path)
        before = blob.get_blob_tags()
        blob.set_blob_tags({"allow": allow} if allow else {})
        tags = {"previous": dict(before), "current": {"allow": allow} if allow else {}}
        return self._told(path, type_="BlobPropertiesUpdated", api="SetBlobTags", blobPropertiesUpdated={}, blobTagsUpdated=tags)

    def delete(self, path: str) -> Told:
        self.client.delete_blob(path)
        return self._told(path, type_="BlobDeleted", api="DeleteBlob")

    def rename(self, old: str, new: str) -> tuple[Told, Told]:
        """As clients do it on a flat account: copy, then delete; tags go along."""
        blob = self.client.get_blob_client(old)
        text = blob.download_blob().readall().decode()
        return self.put(new, text, allow=blob.get_blob_tags().get("allow", ""), api="CopyBlob"), self.delete(old)

    def paths(self) -> set[str]:
        """All that is there."""
        return set(self.client.list_blob_names())

    def close(self) -> None:
        self.client.close()

    def _told(self, path: str, *, type_: str, api: str, etag: str = "", size: int = 0, **data: Any) -> Told:
        container = self.client.container_name
        known = record(path, number=next(self._numbers), type=type_, api=api, container=container, etag=etag, contentLength=size, **data)
        if type_ == "BlobPropertiesUpdated":
            return Told(record=known)
        grid = EventGridWriter(
            account=self.azurite.account_name, container=container, schema=self.schema, endpoint=self.azurite.blob_endpoint
        )
        sequencer = known["data"]["sequencer"]
        event = (
            grid.created(path, api=api, etag=etag, size=size, sequencer=sequencer)
            if type_ == "BlobCreated"
            else grid.deleted(path, api=api, sequencer=sequencer)
        )
        return Told(record=known, event=event)
