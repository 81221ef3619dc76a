"""`/rerank` of four vendors on 127.0.0.1, each with its documented fields and limits; scores are shares of words; fails on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from ragstore.terms import row_terms


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An answer that is given instead of scores."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"detail": "injected"}'


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """What one of them takes and gives."""

    path: str
    fields: frozenset[str]
    needed: frozenset[str]
    most_texts: int
    score: str = "relevance_score"
    envelope: str | None = "results"
    error: str = "detail"


VENDORS = {
    "cohere": Vendor(
        path="/v2/rerank",
        fields=frozenset({"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"}),
        needed=frozenset({"model", "query", "documents"}),
        most_texts=1000,
        error="message",
    ),
    "jina": Vendor(
        path="/v1/rerank",
        fields=frozenset({"model", "query", "documents", "top_n", "return_documents"}),
        needed=frozenset({"model", "query", "documents"}),
        most_texts=2048,
    ),
    "voyage": Vendor(
        path="/v1/rerank",
        fields=frozenset({"model", "query", "documents", "top_k", "return_documents", "truncation"}),
        needed=frozenset({"model", "query", "documents"}),
        most_texts=1000,
        envelope="data",
    ),
    "tei": Vendor(
        path="/rerank",
        fields=frozenset({"query", "texts", "truncate", "raw_scores", "return_text", "truncation_direction"}),
        needed=frozenset({"query", "texts"}),
        most_texts=32,
        score="score",
        envelope=None,
        error="error",
    ),
}
_MOST_TOKENS = 600_000
_QUERY_TOKENS = {"cohere": 2_048, "voyage": 8_000}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of those who waited and have left."""


class RerankServer:
    """Used as a context manager; `base_url` is what stands before `/rerank`."""

    def __init__(self, style: str, *, key: str | None = "secret", most_texts: int | None = None) -> None:
        self.style, self.vendor, self.key = style, VENDORS[style], key
        self.most_texts = most_texts or self.vendor.most_texts
        self.failures: list[Failure] = []
        self.refused: set[str] = set()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.running = self.most_at_once = 0
        self.pause = 0.0
        self.tamper: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda ranks: ranks
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.requests.append(body)
                    server.headers.append({name.lower(): value for name, value in self.headers.items()})
                    server.running += 1
                    server.most_at_once = max(server.most_at_once, server.running)
                    failure = server.failures.pop(0) if server.failures else None
                time.sleep(server.pause)
                failure = failure or server.check(self.path, self.headers.get("Authorization"), body)
                content = failure.body if failure else server.answer(body)
                with server._lock:
                    server.running -= 1
                self.send_response(failure.status if failure else 200)
                for name, value in {"Content-Type": "application/json", **(failure.headers if failure else {})}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}{self.vendor.path.removesuffix('/rerank')}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def texts(self) -> list[str]:
        """Every text that was ever sent here."""
        return [text for request in self.requests for text in self._texts(request)]

    def check(self, path: str, authorization: str | None, body: dict[str, Any]) -> Failure | None:
        """The failure that the documented rules demand, if any."""
        vendor, texts = self.vendor, self._texts(body)
        if path != vendor.path:
            return self._failure(404, "no such page")
        if self.key is not None and authorization != f"Bearer {self.key}":
            return self._failure(401, "invalid api token")
        if body.get("model") == "no-such-model":
            return self._failure(404 if self.style == "cohere" else 400, "model 'no-such-model' is not supported")
        if not vendor.needed <= set(body) <= vendor.fields:
            return self._failure(422, f"fields {sorted(set(body) ^ vendor.needed)}")
        if len(texts) > self.most_texts:
            return self._failure(413 if self.style == "tei" else 400, f"batch size {len(texts)} > maximum {self.most_texts}")
        query, lengths = len(body["query"].encode()), [len(text.encode()) for text in texts]
        broken = {
            "documents must not be empty": not texts or not all(texts),
            "query must not be empty": not body["query"].strip(),
            "too many tokens in the query": query > _QUERY_TOKENS.get(self.style, 10_000),
            "too many tokens": self.style == "voyage" and len(texts) * query + sum(lengths) > _MOST_TOKENS,
            "must be truncated": self.style == "tei" and not body.get("truncate") and max(lengths) > 512,
            "the text is refused": any(word in text for word in self.refused for text in texts),
        }
        return next((self._failure(422, message) for message, so in broken.items() if so), None)

    def answer(self, body: dict[str, Any]) -> bytes:
        """Scores, best first."""
        asked = set(row_terms(body["query"]))
        ranks: list[dict[str, Any]] = []
        for index, text in enumerate(self._texts(body)):
            words = set(row_terms(text))
            share = len(asked & words) / (len(asked | words) or 1)
            echo = {"document": {"text": text}} if self.style == "jina" and body.get("return_documents", True) else {}
            ranks.append({"index": index, self.vendor.score: share, **echo})
        ranks = self.tamper(sorted(ranks, key=lambda rank: -rank[self.vendor.score]))
        return json.dumps(ranks if self.vendor.envelope is None else {self.vendor.envelope: ranks, "id": "x"}).encode()

    def _texts(self, body: Mapping[str, Any]) -> list[str]:
        found: list[str] = body.get("texts" if self.style == "tei" else "documents", [])
        return found

    def _failure(self, status: int, message: str) -> Failure:
        return Failure(status=status, body=json.dumps({self.vendor.error: message}).encode())
