"""ACLs by path in; a small dfs endpoint that tells them as the service does, with the faults that a test asked for, out.

It speaks as much of the protocol as `get_access_control` needs: HEAD with `action=getAccessControl`
(https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/get-properties). Blobs are Azurite's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from tests.fakes.azure_proxy import AzureProxy, Response, refusal

MOST_ENTRIES = 32
"""In the access ACL of one path, and as many again in its default ACL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAcl:
    """What the service knows of one path."""

    owner: str
    group: str
    entries: tuple[str, ...]

    def headers(self) -> dict[str, str]:
        rights = {
            kind: entry.rsplit(":", 1)[1] for entry in self.entries for kind in ("user", "group", "other") if entry.startswith(kind + "::")
        }
        mask = [entry.rsplit(":", 1)[1] for entry in self.entries if entry.startswith("mask::")]
        # With a mask the second triple shows it, and a `+` says that there are named entries.
        permissions = rights["user"] + (mask[0] if mask else rights["group"]) + rights["other"] + ("+" if mask else "")
        return {
            "x-ms-owner": self.owner,
            "x-ms-group": self.group,
            "x-ms-permissions": permissions,
            "x-ms-acl": ",".join(self.entries),
            "Last-Modified": "Tue, 01 Dec 2026 00:00:00 GMT",
            "ETag": '"0x1"',
            "x-ms-version": "2023-11-03",
        }


class DfsFake(AzureProxy):
    """Listens on a free port of 127.0.0.1; a source uses `url` as its `dfs_url`. Every file system has a root."""

    def __init__(self, account: str = "devstoreaccount1") -> None:
        super().__init__(upstream_port=0)
        self._account = account
        self._paths: dict[tuple[str, str], PathAcl] = {}
        self.refused: set[str] = set()
        """Paths whose ACL the identity may not read."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self._account}"

    @property
    def asked(self) -> list[str]:
        """The paths that were asked for, in order; the root is empty."""
        return [request.path.split("/", 3)[3].strip("/") for request in self.requests]

    def set(self, container: str, path: str, entries: str, *, owner: str = "$superuser", group: str = "$superuser") -> None:
        """Give a path this ACL, as `Set Access Control` would. Raises `ValueError` where the service would refuse."""
        found = tuple(entries.split(","))
        access = [entry for entry in found if not entry.startswith("default:")]
        named = [entry for entry in access if entry.split(":")[1] and entry.split(":")[0] in {"user", "group"}]
        if len(access) > MOST_ENTRIES or len(found) - len(access) > MOST_ENTRIES:
            raise ValueError(f"an ACL has at most {MOST_ENTRIES} access and {MOST_ENTRIES} default entries")
        if any(not any(entry.startswith(kind) for entry in access) for kind in ("user::", "group::", "other::")):
            raise ValueError("an ACL needs the entries of the owner, the owning group and all others")
        if named and not any(entry.startswith("mask::") for entry in access):
            found += ("mask::rwx",)
        self._paths[container, path] = PathAcl(owner=owner, group=group, entries=found)

    def remove(self, container: str, path: str) -> None:
        del self._paths[container, path]

    @override
    async def _ask(self, first: str, headers: Mapping[str, str], body: bytes, method: str) -> Response:
        target = urlsplit(first.split(" ")[1])
        query = parse_qs(target.query)
        account, container, path = (*unquote(target.path).lstrip("/").split("/", 2), "")[:3]
        path = path.strip("/")
        if account != self._account or method != "HEAD" or query.get("action") != ["getAccessControl"]:
            return refusal(400, "UnsupportedOperation")
        if "authorization" not in headers and "sig" not in query:
            return refusal(401, "NoAuthenticationInformation")
        if query.get("upn", ["false"]) != ["false"]:
            return refusal(400, "InvalidQueryParameterValue", "this fake knows object ids alone")
        if path in self.refused:
            return refusal(403, "AuthorizationPermissionMismatch")
        known = self._paths.get((container, path))
        return refusal(404, "PathNotFound") if known is None else Response(status=200, headers=known.headers())
