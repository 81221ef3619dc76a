"""What the Azure SDK says of a blob in; its `BlobState` out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from azure.storage.blob import BlobProperties

from ragstore.models import AccessAttributes, BlobId, BlobState

ACL_HEADER: Final = "x-ms-acl"
"""Sent by accounts with a hierarchical namespace only (Get Blob Properties, version 2020-06-12 and later)."""
_FOLDER_MARK: Final = "hdi_isfolder"
_LONGEST_NAME: Final = 1024
_IN_NO_NAME: Final = re.compile(r"[\0\ud800-\udfff]")
_CHANGED_ON_THE_WAY: Final = re.compile(r"(^|/)\.{1,2}(/|\Z)|\\")


def state_of(properties: BlobProperties, path: str, *, account: str, container: str, tags: Mapping[str, str], acl: str | None) -> BlobState:
    """The state of a blob from a listing or a HEAD, which agree but for `version`: a listing of current blobs does not name it."""
    settings = properties.content_settings
    return BlobState(
        id=BlobId(account=account, container=container, path=path),
        etag=str(properties.etag).strip('"'),  # in quotes in headers, without in listings
        size=properties.size,
        modified=properties.last_modified,
        content_type=settings.content_type or None,
        content_md5=bytes(settings.content_md5).hex() if settings.content_md5 else None,
        version=properties.version_id,
        access=AccessAttributes(
            account=account,
            container=container,
            path=path,
            # An empty value is None in what the SDK makes of a listing.
            tags={key: value or "" for key, value in tags.items()},
            metadata={key.lower(): value or "" for key, value in (properties.metadata or {}).items()},
            is_current_version=properties.is_current_version is not False,
            encryption_scope=properties.encryption_scope,
            acl=acl,
        ),
        archived=properties.blob_tier == "Archive",
    )


def is_folder(properties: BlobProperties) -> bool:
    """Whether this is a folder of a hierarchical namespace, which the blob API shows as an empty blob."""
    return any(key.lower() == _FOLDER_MARK and (value or "").lower() == "true" for key, value in (properties.metadata or {}).items())


def is_possible(path: str) -> bool:
    """Whether any blob can have this name."""
    return 0 < len(path) <= _LONGEST_NAME and not _IN_NO_NAME.search(path)


def is_addressable(path: str) -> bool:
    """Whether a request can name this path unchanged.

    `.` and `..` as segments are resolved by HTTP clients, and backslashes become slashes in the service: a request for such a path is
    answered with another blob.
    """
    return not _CHANGED_ON_THE_WAY.search(path)
