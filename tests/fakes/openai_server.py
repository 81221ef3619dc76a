"""A small `/v1/embeddings` and `/v1/chat/completions` on 127.0.0.1 that keeps OpenAI's documented limits and fails on demand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from types import TracebackType
from typing import Any, Self

import numpy as np
from typing_extensions import override

from ragstore.embedding.hashing import HashEmbedder

CHAT = "/v1/chat/completions"
MOST_INPUTS = 2048
_ENDLESS = 10**9
MOST_TOKENS = 300_000
MOST_TOKENS_PER_INPUT = 8192


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An answer that is given instead of vectors."""

    status: int
    message: str = "injected"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent as it is instead of an error object."""


class OpenAIServer:
    """Vectors are those of the hash embedder. Used as a context manager; `base_url` says where it listens."""

    def __init__(self, *, dimensions: int = 64, key: str = "secret") -> None:
        self.native, self.key = dimensions, key
        self.failures: list[Failure] = []
        self.refused: set[str] = set()
        self.requests: list[dict[str, Any]] = []
        self.running = self.most_at_once = 0
        self.index_left_out = False
        self.component: float | None = None
        self.reply = ""
        """What the model says to any messages, streamed a few characters at a time."""
        self.replies: list[str] = []
        """What it says to the next messages, before `reply` is its answer to all."""
        self.silent = 0
        """So many of the next messages are taken, and nothing is said to them, not even a status."""
        self.trickles = 0
        """So many of the next ones are answered by a line without end, of which a byte comes each `pause`."""
        self.cut = False
        """The stream ends in the middle."""
        self.torn = False
        """The connection ends before the stream does."""
        self.streams = True
        self.finish: str | None = "stop"
        self.pause = 0.0
        """Seconds before each event of a stream."""
        self.gone = threading.Event()
        """Somebody left before the end of a stream."""
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.requests.append(body)
                    server.running += 1
                    server.most_at_once = max(server.most_at_once, server.running)
                    failure = server.failures.pop(0) if server.failures else None
                    silent, trickles = self.path == CHAT and server.silent > 0, self.path == CHAT and server.trickles > 0
                    server.silent -= silent
                    server.trickles -= trickles
                if silent:
                    server.left(self.connection)
                    return
                failure = failure or server.check(self.path, self.headers.get("Authorization"), body)
                chat = self.path == CHAT
                said = server.answer if not chat else server.said if not trickles else lambda _body: b""
                content = server.error(failure) if failure else said(body)
                with server._lock:
                    server.running -= 1
                self.send_response(200 if failure is None else failure.status)
                kind = "text/event-stream; charset=utf-8" if chat and failure is None and server.streams else "application/json"
                headers = {"Content-Type": kind, **(failure.headers if failure else {})}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(_ENDLESS if trickles else len(content) + server.torn))
                self.end_headers()
                parts = content.split(b"\r\n\r\n") if server.pause and chat and failure is None else [content]
                if trickles:
                    server.trickle(self.wfile)
                    return
                try:
                    for number, part in enumerate(parts):
                        time.sleep(server.pause)
                        self.wfile.write(part if number == len(parts) - 1 else part + b"\r\n\r\n")
                except OSError:
                    server.gone.set()
                self.close_connection = server.torn or server.gone.is_set()

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def left(self, connection: socket.socket) -> None:
        """Wait until who asks is gone."""
        with contextlib.suppress(OSError):
            connection.recv(1)
        self.running -= 1
        self.gone.set()

    def trickle(self, out: BufferedIOBase) -> None:
        """A byte, and another one, until who asks is gone."""
        with contextlib.suppress(OSError):
            while True:
                out.write(b":")
                time.sleep(self.pause)
        self.gone.set()

    def check(self, path: str, authorization: str | None, body: dict[str, Any]) -> Failure | None:
        """The failure that the documented rules demand, if any."""
        inputs = body["input"] if path != CHAT else [message["content"] for message in body["messages"]]
        tokens = [max(1, len(text.encode()) // 4) if isinstance(text, str) else 0 for text in inputs]
        bad_request = {
            "'$.input' is invalid": not inputs or not all(isinstance(text, str) and text for text in inputs),
            f"at most {MOST_INPUTS} inputs": len(inputs) > MOST_INPUTS,
            f"max {MOST_TOKENS} tokens per request": sum(tokens) > MOST_TOKENS,
            f"maximum context length is {MOST_TOKENS_PER_INPUT} tokens": max(tokens, default=0) > MOST_TOKENS_PER_INPUT,
            "This model does not support specifying dimensions.": body.get("dimensions", 0) > self.native,
            "the text is refused": any(word in text for word in self.refused for text in inputs),
        }
        if path not in {"/v1/embeddings", CHAT}:
            return Failure(status=404, message=f"Invalid URL (POST {path})")
        if authorization != f"Bearer {self.key}":
            return Failure(status=401, message="Incorrect API key provided", code="invalid_api_key")
        if body["model"] == "no-such-model":
            return Failure(status=404, message="The model does not exist", code="model_not_found")
        return next((Failure(status=400, message=message) for message, broken in bad_request.items() if broken), None)

    def answer(self, body: dict[str, Any]) -> bytes:
        """The vectors, last first: a client must look at `index`."""
        dimensions = body.get("dimensions", self.native)
        vectors = 3 * asyncio.run(HashEmbedder(dimensions=dimensions).embed(body["input"], purpose="document"))
        if self.component is not None:
            vectors[:] = self.component
        coded = [self._coded(vector, body.get("encoding_format", "float")) for vector in vectors]
        data = [{"object": "embedding", "index": index, "embedding": embedding} for index, embedding in enumerate(coded)]
        if self.index_left_out:
            data = [{name: value for name, value in item.items() if name != "index"} for item in data]
        else:
            data.reverse()
        usage = {"prompt_tokens": len(data), "total_tokens": len(data)}
        return json.dumps({"object": "list", "model": body["model"], "data": data, "usage": usage}).encode()

    def said(self, body: dict[str, Any]) -> bytes:
        """The reply as server-sent events with a comment and an empty choice between them, or whole."""
        with self._lock:
            reply = self.replies.pop(0) if self.replies else self.reply
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13} if body.get("stream_options") else {"total_tokens": 1}
        if not self.streams:
            choice = {"message": {"role": "assistant", "content": reply}, "finish_reason": self.finish}
            return json.dumps({"choices": [choice], "usage": usage}).encode()
        assert body["stream"] is True
        pieces = [reply[start : start + 5] for start in range(0, len(reply), 5)]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
        events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        last = [{"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]}, {"choices": [], "usage": usage}]
        lines = [
            f"data: {json.dumps(event, ensure_ascii=False)}\r\n\r\n"
            for event in (events[: len(events) // 2] if self.cut else [*events, *last])
        ]
        return "".join([": keep-alive\n\n", *lines, "" if self.cut else "data: [DONE]\n\n"]).encode()

    def error(self, failure: Failure) -> bytes:
        """An error object as the API sends it."""
        if failure.body is not None:
            return failure.body
        return json.dumps({"error": {"message": failure.message, "type": "error", "code": failure.code}}).encode()

    def _coded(self, vector: np.ndarray[tuple[int, ...], np.dtype[np.float32]], encoding: str) -> list[float] | str:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode() if encoding == "base64" else vector.tolist()
