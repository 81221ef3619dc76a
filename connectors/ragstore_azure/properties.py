"""What Azure says of a blob, in a HEAD or in a listing, in; its `BlobState`, which is the same from both, out."""

from __future__ import annotations

import base64
import email.utils
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from azure.storage.blob import BlobProperties

from ragstore.access.acl import acl_text
from ragstore.models import AccessAttributes, BlobId, BlobState

_HEADERS: Final = ("x-ms-owner", "x-ms-group", "x-ms-permissions", "x-ms-acl")
"""Sent by accounts with a hierarchical namespace only (Get Blob Properties; `x-ms-acl` in version 2023-11-03 and later)."""
_ELEMENTS: Final = ("Owner", "Group", "Permissions", "Acl")
"""In a listing with `include=permissions`, version 2020-06-12 and later, of such accounts."""
_ARCHIVE: Final = "Archive"
_LONGEST_NAME: Final = 1024
_IN_NO_NAME: Final = re.compile(r"[\0\ud800-\udfff]")
_CHANGED_ON_THE_WAY: Final = re.compile(r"(^|/)\.{1,2}(/|\Z)|\\")


def state_of_head(
    properties: BlobProperties, path: str, *, account: str, container: str, tags: Mapping[str, str], acl: str | None
) -> BlobState:
    """The state of a blob from a HEAD. With versioning, `version` is told here only: a listing of current blobs may not name it."""
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
            tags=dict(tags),
            metadata=_metadata((properties.metadata or {}).items()),
            is_current_version=properties.is_current_version is not False,
            encryption_scope=properties.encryption_scope,
            acl=acl,
        ),
        archived=properties.blob_tier == _ARCHIVE,
    )


def state_of_listed(blob: Element, path: str, *, account: str, container: str) -> BlobState:
    """The state of a blob from its `<Blob>` in a listing. An element without text stands for an empty value."""
    said = {field.tag: field.text for field in blob.iterfind("Properties/*")}
    tags = {tag.findtext("Key") or "": tag.findtext("Value") or "" for tag in blob.iterfind("Tags/TagSet/Tag")}
    md5 = said.get("Content-MD5")
    return BlobState(
        id=BlobId(account=account, container=container, path=path),
        etag=(said.get("Etag") or "").strip('"'),
        size=int(said.get("Content-Length") or 0),
        modified=email.utils.parsedate_to_datetime(said["Last-Modified"] or ""),
        content_type=said.get("Content-Type"),
        content_md5=base64.b64decode(md5).hex() if md5 else None,
        version=blob.findtext("VersionId") or None,
        access=AccessAttributes(
            account=account,
            container=container,
            path=path,
            tags=tags,
            metadata=_metadata((field.tag, field.text) for field in blob.iterfind("Metadata/*")),
            encryption_scope=said.get("EncryptionScope"),
            acl=_told(said, _ELEMENTS),
        ),
        archived=said.get("AccessTier") == _ARCHIVE,
    )


def listed_path(blob: Element) -> str:
    """The blob's name. What XML cannot hold is percent-encoded and marked as such."""
    name = blob.find("Name")
    text = (name.text or "") if name is not None else ""
    return unquote(text) if name is not None and name.get("Encoded") == "true" else text


def tells_of_acls(headers: Mapping[str, str]) -> bool:
    """Whether a response to a HEAD shows that the account has a hierarchical namespace."""
    return any(headers.get(name) for name in _HEADERS)


def acl_of_headers(headers: Mapping[str, str]) -> str | None:
    """The ACL that a response to a HEAD tells, as `ragstore.access.acl` writes it; None where it does not tell all that is needed."""
    return _told(headers, _HEADERS)


def _told(said: Mapping[str, str | None], names: tuple[str, str, str, str]) -> str | None:
    owner, group, permissions, acl = (said.get(name) for name in names)
    # What cannot be read is asked for once more, at the endpoint that is made for it.
    return acl_text(owner=owner, group=group, permissions=permissions, acl=acl) or None


def is_folder(state: BlobState) -> bool:
    """Whether this is a folder of a hierarchical namespace, which the blob API shows as an empty blob with a mark in its metadata."""
    return state.access.metadata.get("hdi_isfolder", "").lower() == "true"


def _metadata(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    return {key.lower(): value or "" for key, value in pairs}


def is_possible(path: str) -> bool:
    """Whether any blob can have this name."""
    return 0 < len(path) <= _LONGEST_NAME and not _IN_NO_NAME.search(path)


def is_addressable(path: str) -> bool:
    """Whether a request can name this path unchanged.

    `.` and `..` as segments are resolved by HTTP clients, and backslashes become slashes in the service: a request for such a path is
    answered with another blob.
    """
    return not _CHANGED_ON_THE_WAY.search(path)
