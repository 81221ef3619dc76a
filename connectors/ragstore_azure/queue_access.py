"""A source's options and those of a queue in; the queue service and what opens it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from ragstore.errors import ConfigError
from ragstore_azure.address import ContainerAddress, account_of_host, is_path_style
from ragstore_azure.credentials import CredentialVariables, parse_connection_string, secret

POISON_SUFFIX: Final = "-poison"
_QUEUE_NAME: Final = re.compile(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*")
"""https://learn.microsoft.com/rest/api/storageservices/naming-queues-and-metadata."""
_EXAMPLES: Final = "https://ACCOUNT.queue.core.windows.net, or http://127.0.0.1:10001/devstoreaccount1 for Azurite"

Credential = AzureNamedKeyCredential | AzureSasCredential


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAccess:
    """A queue service and what opens it."""

    account: str | None
    """None where a domain of one's own hides it."""
    endpoint: str
    """Without a slash at the end."""
    credential: Credential | None = field(repr=False)
    """None: ask azure-identity."""


def open_queue_access(
    queue: str, queue_url: str | None, own: CredentialVariables, source_options: Mapping[str, Any], source: ContainerAddress
) -> QueueAccess:
    """Where the queue is: as its own options say; else in the account of the source, opened with the secret of the source.

    The secret of one account opens no other: for a queue elsewhere, azure-identity is asked unless the queue has a secret of its own.
    Raises `ConfigError` for a variable that is not set, and for what does not fit together.
    """
    checked_queue(queue)
    shared = CredentialVariables(**{kind: source_options.get(f"{kind}_env") for kind in ("connection_string", "sas", "account_key")})
    by_url = parse_queue_url(queue_url, queue) if queue_url is not None else None
    if own.connection_string is not None:
        return _from_connection_string(own.connection_string, by_url)
    if shared.connection_string is not None and own == CredentialVariables() and (by_url is None or by_url[0] == source.account):
        return _from_connection_string(shared.connection_string, by_url)
    account, endpoint = by_url or (source.account, _beside(source))
    variables = shared if own == CredentialVariables() and account == source.account else own
    credential = _credential(variables, account) or (_of_url(source) if account == source.account else None)
    if credential is None and endpoint.startswith("http:"):
        raise ConfigError(
            f"azure-identity sends tokens over https only; for {endpoint} name connection_string_env, account_key_env or sas_env"
        )
    return QueueAccess(account=account, endpoint=endpoint, credential=credential)


def parse_queue_url(url: str, queue: str) -> tuple[str | None, str]:
    """Account and endpoint of a queue service; the queue's own name may stand at the end. Raises `ConfigError`, which shows no secret."""
    parts = urlsplit(url)
    shown = url.partition("?")[0]
    if parts.query:
        raise ConfigError(f"queue_url = {shown!r} carries a SAS, which is a secret: put it into a variable and name that as sas_env")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.fragment:
        raise ConfigError(f"queue_url = {shown!r} is not the URL of a queue service; expected {_EXAMPLES}")
    path_style = is_path_style(parts.hostname)
    segments = [unquote(segment) for segment in parts.path.strip("/").split("/") if segment]
    if len(segments) == (2 if path_style else 1) and segments[-1] == queue:
        del segments[-1]
    if len(segments) != (1 if path_style else 0):
        raise ConfigError(f"queue_url = {shown!r} must be that of a queue service, with no name but that of `queue` after it; {_EXAMPLES}")
    if path_style:
        return segments[0], f"{parts.scheme}://{parts.netloc}/{segments[0]}"
    return account_of_host(parts.hostname.replace(".queue.", ".blob.", 1)), f"{parts.scheme}://{parts.netloc}"


def checked_queue(name: str) -> str:
    """The name, where a queue and its poison queue can have it; else `ConfigError`."""
    if not _QUEUE_NAME.fullmatch(name) or len(name + POISON_SUFFIX) > 63:  # noqa: PLR2004 - see _QUEUE_NAME
        raise ConfigError(
            f"queue = {name!r}: 3 to {63 - len(POISON_SUFFIX)} lower-case letters, digits and single hyphens, with no hyphen at either end "
            f"(a queue's name has at most 63, and what cannot be read goes to a second queue with {POISON_SUFFIX!r} appended)"
        )
    return name


def _from_connection_string(variable: str, by_url: tuple[str | None, str] | None) -> QueueAccess:
    parts = parse_connection_string(secret("connection_string_env", variable), variable)
    name = parts.get("accountname")
    endpoint = parts.get("queueendpoint", "").rstrip("/")
    if not endpoint and by_url is not None:
        endpoint = by_url[1]
    if not endpoint and name:
        endpoint = f"{parts.get('defaultendpointsprotocol', 'https')}://{name}.queue.{parts.get('endpointsuffix', 'core.windows.net')}"
    if not endpoint:
        raise ConfigError(f"the connection string in {variable} names neither AccountName nor QueueEndpoint; copy it again from the portal")
    if by_url is not None and by_url[1] != endpoint:
        raise ConfigError(f"queue_url is {by_url[1]}, the connection string in {variable} says {endpoint}; correct one of them")
    account = name or parse_queue_url(endpoint, "")[0]
    if "sharedaccesssignature" in parts:
        return QueueAccess(account=account, endpoint=endpoint, credential=AzureSasCredential(parts["sharedaccesssignature"].lstrip("?")))
    if "accountkey" not in parts or not account:
        raise ConfigError(
            f"the connection string in {variable} has neither SharedAccessSignature nor AccountName with AccountKey; "
            "copy it again from the portal"
        )
    return QueueAccess(account=account, endpoint=endpoint, credential=AzureNamedKeyCredential(account, parts["accountkey"]))


def _credential(variables: CredentialVariables, account: str | None) -> Credential | None:
    if variables.account_key is not None:
        if not account:
            raise ConfigError("account_key_env needs the name of the account, which the domain of queue_url hides: use sas_env instead")
        return AzureNamedKeyCredential(account, secret("account_key_env", variables.account_key))
    if variables.sas is not None:
        return AzureSasCredential(secret("sas_env", variables.sas).lstrip("?"))
    return None


def _of_url(source: ContainerAddress) -> Credential | None:
    return AzureSasCredential(source.sas) if source.sas else None


def _beside(source: ContainerAddress) -> str:
    """The queue service of the account whose blob service is known."""
    host = urlsplit(source.endpoint).hostname or ""
    for service in (".blob.", ".dfs."):
        if service in host and account_of_host(host):
            return source.endpoint.replace(service, ".queue.", 1).replace("-secondary.", ".", 1)
    raise ConfigError(f"{source.endpoint} does not tell where the account's queues are: set queue_url, for example {_EXAMPLES}")
