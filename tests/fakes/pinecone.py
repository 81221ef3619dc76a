"""A small Pinecone on 127.0.0.1, both planes of it, that keeps the documented limits, checks the contract and fails on demand."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from tests.fakes.pinecone_contract import Contract
from tests.fakes.pinecone_errors import Refused
from tests.fakes.pinecone_index import FakeIndex

_LARGEST_REQUEST: Final = 2 * 2**20
_LONGEST_URL: Final = 8192
_VERSION: Final = "2026-07"
_WRITES: Final = {"/vectors/upsert", "/vectors/update", "/vectors/delete"}


@dataclass(kw_only=True)
class Fault:
    """What happens to the next request whose path starts so."""

    path: str = "/"
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    after_commit: bool = False
    """The request is carried out first."""
    dropped: bool = False
    """The connection is closed without an answer."""
    only: int | None = None
    """Of an upsert, so many records are written before it fails."""
    seconds: float = 0.0
    """The answer comes so much later; with status 200 it comes whole."""


class PineconeServer:
    """Used as a context manager; `host` says where it listens, for the control plane and for every index below `/i/NAME`.

    SDKs put the path behind the host of an index, so that one server serves them all.
    """

    def __init__(self, *, key: str = "secret", dimension: int | None = 8) -> None:
        self.key = key
        self.indexes = {} if dimension is None else {"ragstore": FakeIndex("ragstore", dimension)}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        """Path and body (or parameters) of each request that was carried out."""
        self.largest = 0
        self.running = self.most_at_once = 0
        self.pods = False
        folder = os.environ.get("RAGSTORE_SHARED")
        self.contract = Contract(Path(folder) / "specs" / "pinecone") if folder else None
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.host = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def index(self) -> FakeIndex:
        """The one that is there from the beginning."""
        return self.indexes["ragstore"]

    def index_host(self, name: str = "ragstore") -> str:
        """What `describe_index` gives as its host."""
        return f"{self.host}/i/{name}"

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """Of the requests to this path so far."""
        return [body for asked, body in self.requests if asked == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self.contract is not None and kind is None:
            assert self.contract.problems == []

    def answer(self, method: str, url: str, headers: Message, content: bytes) -> tuple[int, dict[str, str], object] | None:
        """Status, headers and JSON; None where the connection is to be dropped."""
        parts = urlsplit(url)
        control = not parts.path.startswith("/i/")
        name, _, rest = ("", "", "") if control else parts.path.removeprefix("/i/").partition("/")
        path = parts.path if control else f"/{rest}"
        parameters = parse_qs(parts.query, keep_blank_values=True)
        fault = self._fault(path)
        time.sleep(fault.seconds if fault else 0)
        if fault is not None and fault.status != 200 and not fault.after_commit and not fault.dropped and fault.only is None:
            return fault.status, dict(fault.headers), Refused("injected").body(control=control)
        try:
            self._check(headers, content, url)
            with self._lock:
                body = json.loads(content) if content else {}
                answered = self._control(method, path, body) if control else self._data(name, path, parameters, body, fault)
        except Refused as refused:
            return refused.status, {}, refused.body(control=control)
        if fault is not None and fault.dropped:
            return None
        if fault is not None and fault.status != 200:
            return fault.status, dict(fault.headers), Refused("injected").body(control=control)
        return answered

    def _fault(self, path: str) -> Fault | None:
        with self._lock:
            found = next((fault for fault in self.faults if path.startswith(fault.path)), None)
            if found is not None:
                self.faults.remove(found)
            return found

    def _check(self, headers: Message, content: bytes, url: str) -> None:
        if headers.get("Api-Key") != self.key:
            raise Refused("Invalid API Key", status=401, code=16)
        if headers.get("X-Pinecone-Api-Version") != _VERSION:
            raise Refused(f"this fake speaks {_VERSION}")
        if len(url) > _LONGEST_URL:
            raise Refused("URI Too Long", status=414)
        self.largest = max(self.largest, len(content))
        if len(content) > _LARGEST_REQUEST:
            raise Refused(f"Request size {len(content) // 2**20}MB exceeds the maximum supported size of 2MB")

    def _control(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, str], object]:
        self.requests.append((path, body))
        if (method, path) == ("POST", "/indexes"):
            return self._create(body)
        if (method, path) == ("GET", "/indexes"):
            return 200, {}, {"indexes": [self._model(name) for name in self.indexes]}
        name = path.removeprefix("/indexes/")
        if method != "GET" or name not in self.indexes:
            raise Refused(f"Resource {name} not found", status=404, code=5)
        model = self._model(name)
        if self.contract is not None:
            self.contract.answer(path, model)
        return 200, {}, model

    def _create(self, body: dict[str, Any]) -> tuple[int, dict[str, str], object]:
        if self.contract is not None:
            self.contract.request("/indexes", {}, body)
        if body["name"] in self.indexes:
            raise Refused("Resource already exists", status=409, code=6)
        ((_, vectors),) = body["schema"]["fields"].items()
        self.indexes[body["name"]] = FakeIndex(body["name"], vectors["dimension"], vectors["metric"])
        return 201, {}, self._model(body["name"])

    def _model(self, name: str) -> dict[str, Any]:
        index = self.indexes[name]
        pod = {"deployment_type": "pod", "environment": "e", "pod_type": "p1.x1", "replicas": 1, "shards": 1}
        return {
            "name": name,
            "host": self.index_host(name),
            "status": {"ready": True, "state": "Ready"},
            "schema": {"fields": {"_values": {"type": "dense_vector", "dimension": index.dimension, "metric": index.metric}}},
            "deployment": pod if self.pods else {"deployment_type": "managed", "cloud": "aws", "region": "us-east-1"},
            "deletion_protection": "disabled",
        }

    def _data(
        self, name: str, path: str, parameters: Mapping[str, list[str]], body: dict[str, Any], fault: Fault | None
    ) -> tuple[int, dict[str, str], object]:
        index = self.indexes.get(name)
        if index is None:
            raise Refused("no such host", status=404, code=5)
        if self.contract is not None:
            self.contract.request(path, parameters, body)
        plain = {key: values[0] for key, values in parameters.items()}
        namespace = str(body.get("namespace", plain.get("namespace", "")))
        if path == "/vectors/fetch":
            answered = index.fetch(parameters.get("ids", []), namespace)
        elif path == "/vectors/list":
            limit, token = int(plain.get("limit", 100)), plain.get("paginationToken")
            answered = index.listed(prefix=plain.get("prefix", ""), limit=limit, token=token, namespace=namespace)
        elif path == "/vectors/upsert":
            answered = index.upsert(body, only=fault.only if fault else None)
        else:
            routes = {"/query": index.query, "/vectors/update": index.update, "/vectors/delete": index.delete}
            route = routes.get(path, index.stats if path == "/describe_index_stats" else None)
            if route is None:
                raise Refused(f"no such path {path}", status=404, code=5)
            answered = route(body)
        self.requests.append((path, body or dict(parameters)))
        if self.contract is not None:
            self.contract.answer(path, answered)
        if path in _WRITES:
            return 200, {"x-pinecone-request-lsn": str(index.lsn)}, answered
        return 200, {"x-pinecone-max-indexed-lsn": str(index.indexed(namespace))}, answered


def _handler(server: PineconeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer in one piece: in two, each waits 40 ms for an acknowledgement
        disable_nagle_algorithm = True

        def handle_one(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with server._lock:
                server.running += 1
                server.most_at_once = max(server.most_at_once, server.running)
            try:
                answered = server.answer(self.command, self.path, self.headers, content)
            finally:
                with server._lock:
                    server.running -= 1
            if answered is None:
                self.close_connection = True
                return
            status, headers, body = answered
            encoded = json.dumps(body, ensure_ascii=False).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(encoded)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = handle_one  # noqa: N815 - the names are the server's

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
