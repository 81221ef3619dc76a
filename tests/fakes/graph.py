"""A small Microsoft Graph on 127.0.0.1 that keeps its documented rules (token, permissions, pages, queries) and fails on demand."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from typing_extensions import override

GROUPS: Final = "GroupMember.Read.All"
ATTRIBUTES: Final = "CustomSecAttributeAssignment.Read.All"
LARGEST_PAGE: Final = 999
DEFAULT_PAGE: Final = 100
MOST_MEMBER_GROUPS: Final = 11_000


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user or a service principal."""

    groups: Sequence[str] = ()
    attributes: Mapping[str, Any] | None = None
    """As Graph writes them; None where none are assigned."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Given instead of the right answer."""

    status: int = 200
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent as it is instead of an error object."""


class TokenSource(AsyncTokenCredential):
    """Gives one token, and remembers for what it was asked."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.scopes: list[str] = []
        self.closed = False

    @override
    async def get_token(
        self, *scopes: str, claims: str | None = None, tenant_id: str | None = None, enable_cae: bool = False, **kwargs: Any
    ) -> AccessToken:
        self.scopes += scopes
        return AccessToken(self.token, int(time.time()) + 3600)

    @override
    async def close(self) -> None:
        self.closed = True

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.close()


def token(*roles: str, audience: str) -> str:
    """What an access token of an app looks like; nobody checks its signature here."""
    parts = [{"alg": "none"}, {"aud": audience, "roles": list(roles)}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".signature"


class GraphServer:
    """Used as a context manager; `url` says where it listens. Page sizes are cut to `largest_page`."""

    def __init__(self) -> None:
        self.users: dict[str, Account] = {}
        self.service_principals: dict[str, Account] = {}
        self.answers: list[Answer] = []
        """Given first, each to one request."""
        self.requests: list[str] = []
        """Method, path and query of each."""
        self.largest_page = LARGEST_PAGE
        self.next_links: list[str] = []
        """Given instead of the right ones, each to one page."""
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for each answer, or the other side waits 40 ms for the second

            def do_GET(self) -> None:
                self._answer("GET", {})

            def do_POST(self) -> None:
                self._answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, method: str, body: dict[str, Any]) -> None:
                with server._lock:
                    server.requests.append(f"{method} {self.path}")
                    answer = server.answers.pop(0) if server.answers else None
                answer = answer or server.answer(method, self.path, dict(self.headers), body)
                content = answer.body if answer.body is not None else json.dumps({"error": {"code": answer.code, "message": "."}}).encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def credential(self, *roles: str) -> TokenSource:
        """Of an app with these permissions."""
        return TokenSource(token(*roles, audience=self.url))

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """What the documented rules demand."""
        roles = self._roles(headers.get("Authorization", ""))
        if roles is None:
            return Answer(status=401, code="InvalidAuthenticationToken")
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match (method, parts.path.strip("/").split("/")):
            case ("GET", ["v1.0", ("users" | "servicePrincipals") as kind, who]):
                return self._object(self._account(kind, who), who, query, roles)
            case ("GET", ["v1.0", ("users" | "servicePrincipals") as kind, who, "transitiveMemberOf", "microsoft.graph.group"]):
                advanced = headers.get("ConsistencyLevel") == "eventual" and query.get("$count") == "true"
                return self._page(self._account(kind, who), parts.path, query, roles, advanced=advanced)
            case ("POST", ["v1.0", ("users" | "servicePrincipals") as kind, who, "getMemberGroups"]):
                return self._member_groups(self._account(kind, who), roles, body)
        return Answer(status=400, code="BadRequest")

    def _account(self, kind: str, who: str) -> Account | None:
        return (self.users if kind == "users" else self.service_principals).get(who)

    def _roles(self, authorization: str) -> list[str] | None:
        """The permissions in the token; None where there is no token for this Graph."""
        try:
            payload = authorization.removeprefix("Bearer ").split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
        except (IndexError, ValueError):
            return None
        return list(claims["roles"]) if claims["aud"] == self.url and authorization.startswith("Bearer ") else None

    def _object(self, account: Account | None, who: str, query: Mapping[str, str], roles: Sequence[str]) -> Answer:
        if account is None:
            return Answer(status=404, code="Request_ResourceNotFound")
        found: dict[str, Any] = {"id": who}
        if "customSecurityAttributes" in query.get("$select", "").split(","):
            # Who may not see them gets the same answer as for somebody who has none.
            found["customSecurityAttributes"] = account.attributes if ATTRIBUTES in roles else None
        return Answer(body=json.dumps(found).encode())

    def _page(self, account: Account | None, path: str, query: Mapping[str, str], roles: Sequence[str], *, advanced: bool) -> Answer:
        size = int(query.get("$top", DEFAULT_PAGE))
        if GROUPS not in roles:
            return Answer(status=403, code="Authorization_RequestDenied")
        if account is None:
            return Answer(status=404, code="Request_ResourceNotFound")
        if not advanced or not 1 <= size <= LARGEST_PAGE:
            return Answer(status=400, code="Request_UnsupportedQuery")
        start = int(query.get("$skiptoken", 0))
        end = start + min(size, self.largest_page)
        page: dict[str, Any] = {"value": [{"id": group} for group in account.groups[start:end]]}
        if end < len(account.groups):
            page["@odata.nextLink"] = f"{self.url}{path}?{urlencode({**query, '$skiptoken': end}, safe='$')}"
        if self.next_links:
            page["@odata.nextLink"] = self.next_links.pop(0)
        return Answer(body=json.dumps(page).encode())

    def _member_groups(self, account: Account | None, roles: Sequence[str], body: Mapping[str, Any]) -> Answer:
        if GROUPS not in roles:
            return Answer(status=403, code="Authorization_RequestDenied")
        if account is None:
            return Answer(status=404, code="Request_ResourceNotFound")
        if not isinstance(body.get("securityEnabledOnly"), bool):
            return Answer(status=400, code="Request_BadRequest")
        if len(account.groups) > MOST_MEMBER_GROUPS:
            return Answer(status=400, code="Directory_ResultSizeLimitExceeded")
        return Answer(body=json.dumps({"value": list(account.groups)}).encode())
