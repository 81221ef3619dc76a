"""The address of a search service and the name of a variable in; clients of the SDK out, made when they are first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from azure.core.credentials import AzureKeyCredential
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.search.documents.aio import SearchClient
    from azure.search.documents.indexes.aio import SearchIndexClient

_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_CONNECT_SECONDS: Final = 10.0


class Connection:
    """One search service. `timeout`: seconds to wait for an answer."""

    def __init__(self, *, endpoint: str, key_env: str | None, timeout: float) -> None:
        self.endpoint = checked_endpoint(endpoint, with_key=key_env is not None)
        self._key_env = key_env
        self._timeout = timeout
        self._credential: AzureKeyCredential | AsyncTokenCredential | None = None
        self._indexes: SearchIndexClient | None = None
        self._documents: dict[str, SearchClient] = {}

    def indexes(self) -> SearchIndexClient:
        """The client that makes and drops indexes. Raises `ConfigError` where the SDK or the key is missing."""
        if self._indexes is None:
            try:
                from azure.search.documents.indexes.aio import SearchIndexClient
            except ModuleNotFoundError as error:
                raise ConfigError(
                    "the store 'azure-search' needs a package that is not installed: pip install 'ragstore[azure-search]'"
                ) from error
            self._indexes = SearchIndexClient(self.endpoint, **self._options())
        return self._indexes

    def documents(self, index: str) -> SearchClient:
        """The client that reads and writes an index."""
        if index not in self._documents:
            from azure.search.documents.aio import SearchClient

            self._documents[index] = SearchClient(self.endpoint, index, **self._options())
        return self._documents[index]

    async def close(self) -> None:
        """Give back the connections."""
        clients = [*self._documents.values(), self._indexes, self._credential]
        self._documents, self._indexes, self._credential = {}, None, None
        for client in clients:
            if client is not None and hasattr(client, "close"):
                await client.close()

    def _options(self) -> dict[str, Any]:
        if self._credential is None:
            self._credential = self._opened()
        return {
            "credential": self._credential,
            "retry_total": 0,
            "connection_timeout": min(_CONNECT_SECONDS, self._timeout),
            "read_timeout": self._timeout,
            "user_agent": "ragstore",
        }

    def _opened(self) -> AzureKeyCredential | AsyncTokenCredential:
        from azure.core.credentials import AzureKeyCredential

        from ragstore_azure.credentials import identity_credential, secret

        return identity_credential() if self._key_env is None else AzureKeyCredential(secret("key_env", self._key_env))


def checked_endpoint(endpoint: str, *, with_key: bool) -> str:
    """The address without a trailing slash. Raises `ConfigError` for one that would send a credential in the clear."""
    parts = urlsplit(endpoint)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL and with_key)
    if safe and parts.hostname and not parts.query and not parts.username:
        return endpoint.rstrip("/")
    raise ConfigError(
        "[store] endpoint must be the address of a search service, such as https://NAME.search.windows.net, and nothing more; "
        "http is for this machine only, with a key"
    )
