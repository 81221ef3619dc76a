"""Names of environment variables in; the address of a container and a credential for it out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

from ragstore.errors import ConfigError
from ragstore_azure.address import ContainerAddress, checked_container, parse_container_url

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_LOG = logging.getLogger("ragstore.azure")


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialVariables:
    """The environment variables that hold a secret; at most one is named."""

    connection_string: str | None = None
    sas: str | None = None
    account_key: str | None = None

    def __post_init__(self) -> None:
        named = [option for option in ("connection_string", "sas", "account_key") if getattr(self, option) is not None]
        if len(named) > 1:
            raise ConfigError(f"name one credential, not {len(named)}: {', '.join(f'{option}_env' for option in named)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A container and what opens it."""

    address: ContainerAddress
    credential: AzureNamedKeyCredential | AzureSasCredential | None = field(repr=False)
    """None: ask azure-identity."""


def open_access(url: str, variables: CredentialVariables, *, account: str | None = None) -> Access:
    """Where the container is and the secret that opens it, read from the environment; without one, azure-identity will be asked.

    With a connection string `url` may be the bare name of the container; a whole URL must agree with the string. Raises `ConfigError`
    for a variable that is not set, and for what does not fit together.
    """
    if variables.connection_string is not None:
        return _from_connection_string(url, variables.connection_string, account)
    address = parse_container_url(url, account=account)
    if variables.account_key is not None:
        key = secret("account_key_env", variables.account_key)
        return Access(address=address, credential=AzureNamedKeyCredential(address.account, key))
    if variables.sas is not None:
        return Access(address=address, credential=AzureSasCredential(secret("sas_env", variables.sas).lstrip("?")))
    if address.sas is not None:
        _LOG.warning(
            "azure.sas_in_url: the url of %s carries a SAS, which is a secret; put it in a variable and name that as sas_env", address.name
        )
        return Access(address=address, credential=AzureSasCredential(address.sas))
    if address.endpoint.startswith("http:"):
        raise ConfigError(
            f"azure-identity sends tokens over https only; for {address.endpoint} name connection_string_env, account_key_env or sas_env"
        )
    return Access(address=address, credential=None)


def identity_credential() -> AsyncTokenCredential:
    """Whatever azure-identity finds: environment, workload identity, managed identity, Azure CLI. To be closed by the caller."""
    try:
        from azure.identity.aio import DefaultAzureCredential
    except ModuleNotFoundError as error:
        raise ConfigError("without a secret azure-identity is asked, which is not installed: pip install 'ragstore[azure]'") from error
    return DefaultAzureCredential()


def _from_connection_string(url: str, variable: str, account: str | None) -> Access:
    parts = parse_connection_string(secret("connection_string_env", variable), variable)
    name = parts.get("accountname", "")
    endpoint = parts.get("blobendpoint", "").rstrip("/")
    if not endpoint:
        if not name:
            raise ConfigError(
                f"the connection string in {variable} names neither AccountName nor BlobEndpoint; copy it again from the portal"
            )
        endpoint = f"{parts.get('defaultendpointsprotocol', 'https')}://{name}.blob.{parts.get('endpointsuffix', 'core.windows.net')}"
    container = url if "/" not in url else parse_container_url(url, account=account or name or None).container
    address = parse_container_url(f"{endpoint}/{checked_container(container)}", account=account or name or None)
    if "/" in url:
        given = parse_container_url(url, account=account or name or None)
        if (given.account, given.endpoint) != (address.account, address.endpoint):
            raise ConfigError(
                f"the url is at {given.endpoint}, the connection string in {variable} at {address.endpoint}; correct one of them"
            )
    if "sharedaccesssignature" in parts:
        return Access(address=address, credential=AzureSasCredential(parts["sharedaccesssignature"].lstrip("?")))
    if "accountkey" not in parts:
        raise ConfigError(
            f"the connection string in {variable} has neither AccountKey nor SharedAccessSignature; copy it again from the portal"
        )
    return Access(address=address, credential=AzureNamedKeyCredential(address.account, parts["accountkey"]))


def parse_connection_string(text: str, variable: str) -> Mapping[str, str]:
    """The parts of a connection string, keys in lower case.

    Raises `ConfigError` for what is none; the message names the variable and never shows the string.
    """
    pairs = [part.partition("=") for part in text.strip().split(";") if part.strip()]
    parts = {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    if len(parts) != len(pairs):
        raise ConfigError(f"{variable} does not hold a connection string (Key=Value;Key=Value); copy it again from the portal")
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return {
            "accountname": "devstoreaccount1",
            # The emulator's published key: it is the same for everybody and opens nothing else.
            "accountkey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
            "blobendpoint": "http://127.0.0.1:10000/devstoreaccount1",
            "queueendpoint": "http://127.0.0.1:10001/devstoreaccount1",
        }
    return parts


def secret(option: str, variable: str) -> str:
    """What the variable holds, which `option` names. Raises `ConfigError` where it is not set."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"{option} names the environment variable {variable!r}, which is not set")
    return value
