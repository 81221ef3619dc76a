"""A small Azure AI Search on 127.0.0.1: strict about what it is asked, with the vendor's limits, and with failures on demand.

Every body is checked against `azure_search_contract`, both ways: what the real API would not know is answered with 400, and an answer that
it would not give fails the test (`broken`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import override

from tests.fakes.azure_search_contract import contract
from tests.fakes.azure_search_index import MOST_ACTIONS, Index, RefusedError

VERSION: Final = "2026-04-01"
MOST_BYTES: Final = 16_000_000
_PATH: Final = re.compile(r"/indexes(?:\('([^']*)'\)(/.*)?)?")
_OPERATIONS: Final = {
    ("POST", False, ""): "create",
    ("GET", False, ""): "list",
    ("GET", True, ""): "get",
    ("DELETE", True, ""): "delete",
    ("GET", True, "/search.stats"): "stats",
    ("GET", True, "/docs/$count"): "count",
    ("POST", True, "/docs/search.post.search"): "search",
    ("POST", True, "/docs/search.index"): "index",
}
_BODIES: Final = {"create": "SearchIndex", "search": "SearchRequest", "index": "IndexDocumentsBatch"}
_ANSWERS: Final = {
    "create": "SearchIndex",
    "get": "SearchIndex",
    "search": "SearchDocumentsResult",
    "index": "IndexDocumentsResult",
    "stats": "GetIndexStatisticsResult",
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one request."""

    operation: str = "index"
    """`create`, `list`, `get`, `delete`, `stats`, `count`, `search` or `index`."""
    status: int = 0
    """Answered instead of being carried out; 0 carries it out."""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "Service is busy"
    partial: Callable[[str], int] | None = None
    """The status with which each key of a batch is refused, or 0."""
    late: float = 0.0
    """Seconds before the answer."""
    dropped: bool = False
    """The connection ends without an answer, after all was carried out."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody asked."""

    operation: str
    index: str
    body: Any


class AzureSearch:
    """Used as a context manager; `url` says where it listens."""

    def __init__(self, *, key: str = "admin-key", delay: float = 0.0) -> None:
        self.key = key
        self.delay = delay
        self.loses_neighbours = False
        self.indexes: dict[str, Index] = {}
        self.faults: list[Fault] = []
        """Each meets one request, the first of its operation."""
        self.requests: list[Request] = []
        self.sizes: list[int] = []
        """Bytes of the batches of `index`."""
        self.broken: list[str] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.search = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, operation: str) -> list[Any]:
        """The bodies of all requests of this kind."""
        return [request.body for request in self.requests if request.operation == operation]

    def answer(self, method: str, target: str, headers: Mapping[str, str], raw: bytes) -> tuple[int, Any, Mapping[str, str], Fault | None]:
        """Status, body and headers for one request, and what is to go wrong with the answer."""
        fault = None
        try:
            operation, name = _operation(method, target)
            self._authorized(headers)
            body = self._body(operation, raw)
            with self._lock:
                self.requests.append(Request(operation=operation, index=name, body=body))
                fault = next((one for one in self.faults if one.operation == operation), None)
                if fault is not None:
                    self.faults.remove(fault)
                    if fault.status:
                        return fault.status, _error(fault.message), fault.headers, fault
                status, answer = self._carried_out(operation, name, body, fault)
        except RefusedError as error:
            return error.status, _error(str(error)), {}, fault
        if operation in _ANSWERS:
            self.broken += [f"{operation}: {said}" for said in contract().problems(_ANSWERS[operation], answer)]
        return status, answer, fault.headers if fault else {}, fault

    def _authorized(self, headers: Mapping[str, str]) -> None:
        if {name.lower(): value for name, value in headers.items()}.get("api-key") != self.key:
            raise RefusedError(403, "The api-key is not that of this service.")

    def _body(self, operation: str, raw: bytes) -> Any:
        if len(raw) > MOST_BYTES:
            raise RefusedError(413, "The page was not displayed because the request entity is too large.")
        if operation not in _BODIES:
            return None
        if operation == "index":
            self.sizes.append(len(raw))
        try:
            body = json.loads(raw)
            raw.decode()
            json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate is no text
        except ValueError as error:
            raise RefusedError(400, f"The request is invalid: {error}") from error
        problems = contract().problems(_BODIES[operation], body)
        if problems:
            raise RefusedError(400, f"The request is invalid: {'; '.join(problems[:5])}")
        return body

    def _carried_out(self, operation: str, name: str, body: Any, fault: Fault | None) -> tuple[int, Any]:
        if operation == "create":
            if body["name"] in self.indexes:
                raise RefusedError(409, f"Cannot create index '{body['name']}' because it already exists.")
            self.indexes[body["name"]] = Index(body)
            return 201, self.indexes[body["name"]].definition
        if operation == "list":
            return 200, {"value": [{"name": one} for one in self.indexes]}
        index = self.indexes.get(name)
        if index is None:
            raise RefusedError(404, f"The index '{name}' for service 'fake' was not found.")
        index.delay, index.loses_neighbours = self.delay, self.loses_neighbours
        match operation:
            case "get":
                return 200, index.definition
            case "delete":
                del self.indexes[name]
                return 204, None
            case "stats":
                return 200, {"documentCount": len(index.visible()), "storageSize": 1_000, "vectorIndexSize": 100}
            case "count":
                return 200, len(index.visible())
            case "search":
                return 200, index.search(body)
        return self._indexed(index, body["value"], fault)

    def _indexed(self, index: Index, actions: list[Mapping[str, Any]], fault: Fault | None) -> tuple[int, Any]:
        if not 0 < len(actions) <= MOST_ACTIONS:
            raise RefusedError(400, f"The batch holds {len(actions)} actions; it may hold 1 to {MOST_ACTIONS}.")
        results = []
        for action in actions:
            key = str(action.get("key"))
            refused = fault.partial(key) if fault and fault.partial else 0
            status, said = (refused, "refused on demand") if refused else index.act(action)
            results.append({"key": key, "status": status < 300, "errorMessage": said, "statusCode": status})
        return (200 if all(one["status"] for one in results) else 207), {"value": results}


def _operation(method: str, target: str) -> tuple[str, str]:
    parts = urlsplit(target)
    found = _PATH.fullmatch(unquote(parts.path))
    operation = _OPERATIONS.get((method, found[1] is not None, found[2] or "")) if found else None
    if found is None or operation is None:
        raise RefusedError(404, f"{method} {parts.path} is no operation")
    allowed: list[dict[str, list[str]]] = [{"api-version": [VERSION]}]
    allowed += [{"api-version": [VERSION], "$select": ["name"]}] if operation == "list" else []
    if parse_qs(parts.query) not in allowed:
        raise RefusedError(400, f"{parts.query} is not api-version={VERSION}")
    return operation, found[1] or ""


def _error(message: str) -> dict[str, Any]:
    return {"error": {"code": "", "message": message}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    search: AzureSearch


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body, headers, fault = self.server.search.answer(self.command, self.path, dict(self.headers), raw)
        if fault is not None:
            time.sleep(fault.late)
        if fault is not None and fault.dropped:
            self.close_connection = True
            return
        sent = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(sent)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    do_GET = do_POST = do_DELETE = do_PUT = _serve  # noqa: N815 - names that http.server asks for

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
