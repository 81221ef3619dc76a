"""A container's URL in; account, endpoint and container out. A blob's URL in; account, container and path out."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from ragstore.errors import ConfigError

_CONTAINER_NAME: Final = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*|\$[a-zA-Z]+")
"""https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata; also `$web` and its like."""
_EXAMPLES: Final = "https://ACCOUNT.blob.core.windows.net/CONTAINER, or http://127.0.0.1:10000/devstoreaccount1/CONTAINER for Azurite"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAddress:
    """Where a container is."""

    account: str
    endpoint: str
    """The blob service of the account, without a slash at the end."""
    container: str
    sas: str | None = field(default=None, repr=False)
    """A SAS that stood in the URL; a secret."""

    @property
    def name(self) -> str:
        """For messages: `account/container`."""
        return f"{self.account}/{self.container}"


def parse_container_url(url: str, *, account: str | None = None) -> ContainerAddress:
    """The parts of a container's URL. `account` is needed where a domain of one's own does not tell the account's name.

    Raises `ConfigError` for what is no such URL; the message never shows the query, which may be a SAS.
    """
    parts = urlsplit(url)
    shown = url.partition("?")[0]
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.fragment:
        raise ConfigError(f"{shown!r} is not the URL of a container; expected {_EXAMPLES}")
    segments = [unquote(segment) for segment in parts.path.strip("/").split("/")]
    path_style = is_path_style(parts.hostname)
    if len(segments) != (2 if path_style else 1) or not all(segments):
        raise ConfigError(f"{shown!r} must end with the container's name and nothing after it (see `prefix`); expected {_EXAMPLES}")
    endpoint = f"{parts.scheme}://{parts.netloc}" + (f"/{segments[0]}" if path_style else "")
    found = segments[0] if path_style else account_of_host(parts.hostname)
    if account and found and account != found:
        raise ConfigError(f"account = {account!r} is not the account of the url, which is {found!r}; leave `account` out")
    name = account or found
    if not name:
        raise ConfigError(f"{parts.hostname!r} does not tell the storage account's name, which access decisions need; set `account`")
    return ContainerAddress(account=name, endpoint=endpoint, container=checked_container(segments[-1]), sas=parts.query or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobAddress:
    """What a blob's URL names."""

    account: str | None
    """None where a domain of one's own does not tell."""
    container: str
    path: str


def parse_blob_url(url: str) -> BlobAddress | None:
    """What the URL of a blob or folder names, at the blob or the dfs endpoint, its path unescaped once; None for what is no such URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        path = unquote(parts.path.removeprefix("/"), errors="strict")
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host:
        return None
    account = account_of_host(host.replace(".dfs.", ".blob.", 1))
    if is_path_style(host):
        account, _, path = path.partition("/")
    container, _, path = path.partition("/")
    return BlobAddress(account=account or None, container=container, path=path) if container and path else None


def checked_container(name: str) -> str:
    """The name, where a container can have it; else `ConfigError`."""
    if not _CONTAINER_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a container's name: 3 to 63 lower-case letters, digits and single hyphens, with no hyphen at either end"
        )
    return name


def dfs_endpoint(blob_endpoint: str) -> str | None:
    """The endpoint of the same account for hierarchical namespaces; None where an emulator or a domain of one's own does not tell."""
    parts = urlsplit(blob_endpoint)
    host = parts.hostname or ""
    if is_path_style(host) or ".blob." not in host:
        return None
    return f"{parts.scheme}://{parts.netloc.replace('.blob.', '.dfs.', 1)}"


def is_path_style(host: str) -> bool:
    """Emulators have the account's name in the path, because it cannot stand before an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or "." not in host
    return True


def account_of_host(host: str) -> str | None:
    """`ACCOUNT.blob.core.windows.net`, the same of other clouds, of private links and of DNS zones; None for a domain of one's own."""
    account, _, rest = host.partition(".")
    is_blob_service = rest.startswith(("blob.", "privatelink.blob.", "dfs.")) or ".blob.storage." in f".{rest}"
    return account.removesuffix("-secondary") if is_blob_service else None
