"""Options in, a LanceDB connection out: to a folder, or to Azure with credentials from the environment."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from ragstore.errors import ConfigError
from ragstore_lancedb.allocation import bound_read_ahead, bound_text_partitions, give_back_large_blocks

if TYPE_CHECKING:
    from lancedb.db import AsyncConnection

P = ParamSpec("P")
T = TypeVar("T")

_IMPORTING: Final = threading.Lock()
_FROM_CONNECTION_STRING: Final = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "azure_storage_endpoint",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where the index lies, and the names of the environment variables that open it."""

    uri: str
    account: str | None = None
    endpoint: str | None = None
    connection_string_env: str | None = None
    account_key_env: str | None = None
    sas_token_env: str | None = None

    @classmethod
    def of(
        cls,
        path: str,
        base: Path,
        *,
        account: str | None,
        endpoint: str | None,
        connection_string_env: str | None,
        account_key_env: str | None,
        sas_token_env: str | None,
    ) -> Location:
        """`path` is `az://container/prefix`, or a folder, relative to `base`. Raises `ConfigError` for any other scheme."""
        scheme, separator, _rest = path.partition("://")
        if separator and scheme not in {"az", "abfs", "abfss"}:
            raise ConfigError(f"[store] path = {path!r}: a LanceDB index lies in a folder or at az://container/prefix")
        return cls(
            uri=path if separator else str(base / path),
            account=account,
            endpoint=endpoint,
            connection_string_env=connection_string_env,
            account_key_env=account_key_env,
            sas_token_env=sas_token_env,
        )

    @property
    def remote(self) -> bool:
        """Whether it is in Azure."""
        return "://" in self.uri

    def storage_options(self) -> dict[str, str]:
        """What the object store needs to know. Without a key, a SAS or a connection string it looks for an identity.

        Raises `ConfigError` where a named variable is not set.
        """
        options: dict[str, str] = {}
        if self.connection_string_env is not None:
            options |= _parsed(_environment(self.connection_string_env, "connection_string_env"), self.connection_string_env)
        if self.account is not None:
            options["account_name"] = self.account
        if self.endpoint is not None:
            options["azure_storage_endpoint"] = self.endpoint
        if self.account_key_env is not None:
            options["account_key"] = _environment(self.account_key_env, "account_key_env")
        if self.sas_token_env is not None:
            options["sas_token"] = _environment(self.sas_token_env, "sas_token_env").lstrip("?")
        if options.get("azure_storage_endpoint", "").startswith("http://"):
            options["allow_http"] = "true"
        return options

    async def connect(self) -> AsyncConnection:
        """A connection whose every call sees the latest commit of any process."""
        lancedb = await asyncio.to_thread(load_lancedb)
        if not self.remote:
            await asyncio.to_thread(os.makedirs, self.uri, mode=0o700, exist_ok=True)
        options = self.storage_options() if self.remote else None
        connection: AsyncConnection = await lancedb.connect_async(self.uri, read_consistency_interval=timedelta(0), storage_options=options)
        return connection


def load_lancedb() -> ModuleType:
    """The module `lancedb`, imported at a third of its usual cost (0.6 s instead of 1.7 s of processor time).

    Nearly all of that time goes into building the validators of a REST client that is not used here. While the import runs, those of
    functions are replaced by ones that are built on their first call and then do the same, and those of models wait for their first use.
    """
    with _IMPORTING:
        if "lancedb" in sys.modules:
            return sys.modules["lancedb"]
        import pydantic

        # Its own log goes straight to stderr, hundreds of lines about empty partitions; whatever fails is raised as well.
        os.environ.setdefault("LANCEDB_LOG", "error")
        eager, plain = pydantic.validate_call, pydantic.BaseModel.model_config
        pydantic.validate_call = cast("Any", _deferring(eager))
        pydantic.BaseModel.model_config = {**plain, "defer_build": True}  # each class takes it over as it is made
        try:
            import lancedb
        finally:
            pydantic.validate_call, pydantic.BaseModel.model_config = eager, plain
        give_back_large_blocks()
        bound_read_ahead()
        bound_text_partitions()
        return lancedb


def _deferring(validate_call: Callable[..., Callable[P, T]]) -> Callable[..., Callable[P, T]]:
    """A decorator that does what `validate_call` does, on the first call of what it decorates."""

    def decorate(function: Callable[P, T], /) -> Callable[P, T]:
        validated: list[Callable[P, T]] = []

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not validated:
                validated.append(validate_call(function))
            return validated[0](*args, **kwargs)

        return call

    def either(function: Callable[P, T] | None = None, /, **options: object) -> Callable[..., Callable[P, T]] | Callable[P, T]:
        return decorate(function) if function is not None and not options else validate_call(function, **options)

    return cast("Callable[..., Callable[P, T]]", either)


def _environment(variable: str, option: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(f"[store] {option} names the environment variable {variable!r}, which is not set")
    return value


def _parsed(connection_string: str, variable: str) -> dict[str, str]:
    """The parts of an Azure connection string. Raises `ConfigError`, without quoting the secret, where it names no account."""
    parts: Mapping[str, str] = {
        key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in connection_string.split(";")) if value
    }
    options = {option: parts[name] for name, option in _FROM_CONNECTION_STRING.items() if name in parts}
    if "account_name" not in options and "azure_storage_endpoint" in options:
        options["account_name"] = options["azure_storage_endpoint"].split("//", 1)[-1].split(".", 1)[0]
    if "account_name" not in options:
        raise ConfigError(f"the connection string in {variable!r} has neither AccountName nor BlobEndpoint")
    return options
