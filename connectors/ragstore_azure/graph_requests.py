"""A question to Microsoft Graph in; its answer as JSON, None for an object that is not there, or an error that says what to do, out."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from azure.core import AsyncPipelineClient
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, UserAgentPolicy
from azure.core.rest import AsyncHttpResponse, HttpRequest

from ragstore.embedding.retry import RetryBudget, retry_after, with_retries
from ragstore.errors import AccessError, ConfigError, RagstoreError, TransientError

VERSION: Final = "/v1.0/"
_THROTTLED_OR_DOWN: Final = frozenset({408, 429, 500, 502, 503, 504})
_UNKNOWN: Final = "Request_ResourceNotFound"
_TOO_MANY: Final = "Directory_ResultSizeLimitExceeded"
_CLOUDS: Final = "https://graph.microsoft.com, https://graph.microsoft.us or https://microsoftgraph.chinacloudapi.cn"
_READ_SECONDS: Final = 10.0


class GraphRequests:
    """Sends requests with a bearer token. Neither follows redirects nor sends the token anywhere but to `url`.

    What Graph asks to do later (429, 503 and their like: https://learn.microsoft.com/graph/throttling) is done later, as `Retry-After`
    says, within `seconds` in all. Raises `ConfigError` for a URL that is not that of a Graph.
    """

    def __init__(self, url: str, credential: AsyncTokenCredential, *, seconds: float) -> None:
        self.url = checked_url(url)
        self._origin = _origin(self.url)
        self._budget = RetryBudget(attempts=8, seconds=seconds, first_wait=0.2, longest_wait=5.0)
        self._options: dict[str, Any] = {"connection_timeout": _READ_SECONDS, "read_timeout": _READ_SECONDS}
        if urlsplit(self.url).scheme == "http":
            self._options["enforce_https"] = False
        self._token = ""
        policies = [UserAgentPolicy("ragstore"), AsyncBearerTokenCredentialPolicy(credential, f"{self.url}/.default")]
        self._client: AsyncPipelineClient[HttpRequest, AsyncHttpResponse] = AsyncPipelineClient(self.url, policies=policies)

    async def ask(
        self, path: str, *, params: Mapping[str, str], right: str, body: Mapping[str, object] | None = None, advanced: bool = False
    ) -> Mapping[str, Any] | None:
        """The JSON object at a path such as `users/ID`, or None where Graph says that there is no such object.

        `right` names the permission for the message when it is missing. `advanced`: a query that Graph answers from its index only, which
        lags a little (https://learn.microsoft.com/graph/aad-advanced-queries).
        """
        headers = {"ConsistencyLevel": "eventual"} if advanced else {}
        method = "GET" if body is None else "POST"
        address = f"{self.url}{VERSION}{path}"
        return await self._patiently(lambda: HttpRequest(method, address, params=dict(params), headers=headers, json=body), right)

    async def follow(self, link: object, *, right: str, advanced: bool) -> Mapping[str, Any] | None:
        """The page that an `@odata.nextLink` leads to, as long as it stays with this Graph: the token goes nowhere else."""
        if not isinstance(link, str) or _origin(link) != self._origin or not urlsplit(link).path.startswith(VERSION):
            raise AccessError(f"an answer of {self.url} leads away from it, and is not followed; does something else answer in its place?")
        headers = {"ConsistencyLevel": "eventual"} if advanced else {}
        return await self._patiently(lambda: HttpRequest("GET", link, headers=headers), right)

    def app_permissions(self) -> frozenset[str]:
        """The application permissions in the token that was sent last; none where it cannot be read."""
        try:
            payload = self._token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, ValueError):
            return frozenset()
        roles = claims.get("roles") if isinstance(claims, dict) else None
        return frozenset(role for role in roles if isinstance(role, str)) if isinstance(roles, list) else frozenset()

    async def close(self) -> None:
        """Give back connections."""
        await self._client.close()

    async def _patiently(self, request: Callable[[], HttpRequest], right: str) -> Mapping[str, Any] | None:
        try:
            async with asyncio.timeout(self._budget.seconds + _READ_SECONDS):
                return await with_retries(partial(self._once, request, right), budget=self._budget)
        except TimeoutError as error:
            raise TransientError(f"{self.url} did not answer within {self._budget.seconds + _READ_SECONDS:.0f} s") from error

    async def _once(self, request: Callable[[], HttpRequest], right: str) -> Mapping[str, Any] | None:
        try:
            response = await self._client.send_request(request(), **self._options)
        except ClientAuthenticationError as error:
            raise ConfigError(
                f"no usable credential for {self.url}: {_first_line(error)}. Run `az login`, or give the machine a managed identity"
            ) from error
        except AzureError as error:
            raise TransientError(f"{self.url} cannot be reached: {_first_line(error)}; check the url and the network") from error
        self._token = str(response.request.headers.get("Authorization", "")).removeprefix("Bearer ")
        return self._read(response, right)

    def _read(self, response: AsyncHttpResponse, right: str) -> Mapping[str, Any] | None:
        try:
            found = response.json()
        except (ValueError, RecursionError):
            found = None
        body = found if isinstance(found, dict) else {}
        if response.status_code == HTTPStatus.OK:
            if not isinstance(found, dict):
                raise AccessError(f"the answer of {self.url} cannot be understood; does a proxy or firewall answer?")
            return found
        error = body.get("error")
        code = str(error.get("code", "")) if isinstance(error, dict) else ""
        if response.status_code == HTTPStatus.NOT_FOUND and code == _UNKNOWN:
            return None
        raise self._error(response, code, right)

    def _error(self, response: AsyncHttpResponse, code: str, right: str) -> RagstoreError:
        status = response.status_code
        where = f"{self.url} answered {status} {code}".rstrip()
        if status in _THROTTLED_OR_DOWN:
            return TransientError(where, retry_after=retry_after(response.headers.get("Retry-After")))
        if status == HTTPStatus.UNAUTHORIZED:
            return ConfigError(f"{where}: the token is not accepted; check that the identity is of this tenant and cloud ({_CLOUDS})")
        if status == HTTPStatus.FORBIDDEN:
            return ConfigError(f"{where}: the identity lacks a permission of Microsoft Graph: {right}; grant it, with admin consent")
        if status == HTTPStatus.NOT_FOUND:
            return TransientError(f"{where}: 404 without a code of Graph's; does a proxy or firewall answer?")
        if code == _TOO_MANY:
            return ConfigError(f"{where}: more groups than it gives at once; set membership = 'transitiveMemberOf'")
        return ConfigError(f"{where}, which is no answer to this question; check the url ({_CLOUDS})")


def checked_url(url: str) -> str:
    """Scheme and host of a Graph, without a slash. Raises `ConfigError`; a token goes over https only, but to this machine itself."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment or parts.path not in {"", "/"} or not parts.hostname:
        raise ConfigError(f"url = {url.partition('?')[0]!r} is not the address of a Microsoft Graph, such as {_CLOUDS}")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname)):
        raise ConfigError(f"url = {url!r}: tokens are sent over https only; write {_CLOUDS}")
    return f"{parts.scheme}://{parts.netloc}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Scheme, host and port; None for what is no URL, or names a user."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.password is not None:
        return None
    return parts.scheme, parts.hostname, port or {"https": 443, "http": 80}.get(parts.scheme)


def _first_line(error: AzureError) -> str:
    return (str(error.message or error).strip().splitlines() or [""])[0]
