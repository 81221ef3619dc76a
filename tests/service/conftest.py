"""A small index with secrets of different people, an application over it, and an issuer of tokens."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from typing_extensions import override

from ragstore.config import ServiceSettings, TokenSettings
from ragstore.index import AsyncIndex
from ragstore.instrumentation import Instruments
from ragstore.service.app import build
from ragstore.service.auth import Authenticator
from ragstore.service.keys import new_key
from ragstore.service.metrics import Metrics
from ragstore.service.signing import SigningKeys
from ragstore.service.tokens import Tokens
from tests.fakes.openai_server import OpenAIServer
from tests.support.certificates import without_authorities
from tests.support.workspace import Workspace

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

ISSUER = "https://login.example/tenant/v2.0"
AUDIENCE = "api://ragstore"
ADA_CANARY, BOB_CANARY = "zirconium-ada-7261", "obsidian-bob-5539"


@cache
def rsa_key(name: str = "first") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public(kid: str, key: Any, **extra: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **extra}


@dataclass(slots=True)
class Issuer:
    """Signs, and publishes its keys; counts how often it was asked for them."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [public("one", rsa_key()), public("curve", ec_key())])
    asked: int = 0
    now: float = 1000.0
    failing: Exception | None = None

    async def fetch(self, _url: str) -> bytes:
        self.asked += 1
        if self.failing is not None:
            raise self.failing
        return json.dumps({"keys": self.keys}).encode()

    def signing_keys(self) -> SigningKeys:
        return SigningKeys(issuer=ISSUER, jwks_url="https://login.example/keys", fetch=self.fetch, clock=lambda: self.now)

    def tokens(self, **settings: Any) -> Tokens:
        return Tokens(self.settings(**settings), self.signing_keys())

    def settings(self, **settings: Any) -> TokenSettings:
        return TokenSettings(**{"issuer": ISSUER, "audience": AUDIENCE, "groups_claim": "always", "ids": "any", **settings})


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "nbf": now - 5, "iat": now - 5, "oid": "ada", "groups": ["staff", "board"]}
    return {key: value for key, value in {**made, **changes}.items() if value is not None}


def token(
    *, key: Any = None, kid: str | None = "one", algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: Any
) -> str:
    head = {**({} if kid is None else {"kid": kid}), **(headers or {})}
    return jwt.encode(claims(**changes), key or rsa_key(), algorithm=algorithm, headers=head)


@dataclass(slots=True, kw_only=True)
class Served:
    """An application in this process, with a client and the keys of its callers."""

    index: AsyncIndex
    app: FastAPI
    http: httpx.AsyncClient
    keys: dict[str, str]
    log: io.StringIO
    issuer: Issuer
    workspace: Workspace

    def bearer(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[who]}"}

    async def post(self, route: str, who: str, **body: Any) -> httpx.Response:
        return await self.http.post(f"/v1/{route}", json=body, headers=self.bearer(who))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@dataclass(slots=True, kw_only=True)
class Chatting:
    """An application that listens at 127.0.0.1, and the model that it asks."""

    served: Served
    model: OpenAIServer
    url: str

    def client(self, who: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.served.keys[who], max_retries=0)

    def sync_client(self, who: str) -> OpenAI:
        from openai import OpenAI

        return OpenAI(base_url=f"{self.url}/v1", api_key=self.served.keys[who], max_retries=0)

    @property
    def asked(self) -> str:
        """All that the model was ever told."""
        return json.dumps(self.model.requests, ensure_ascii=False)


class _Quiet(uvicorn.Server):
    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """A server of this application in this loop; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        options: dict[str, Any] = {"lifespan": "off", "ws": "none", "log_config": None, "access_log": False}
        server = _Quiet(uvicorn.Config(app, timeout_graceful_shutdown=5, **options))
        running = asyncio.create_task(server.serve(sockets=[place]))
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


Serving = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For all clients, and for what they speak to."""
    without_authorities(monkeypatch, tmp_path_factory.getbasetemp())


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    made.write("ada.md", f"# Board\n\nThe board meets on Friday. {ADA_CANARY}\n", allow="ada")
    made.write("bob.md", f"# Staff\n\nThe staff meets on Monday. {BOB_CANARY}\n", allow="bob")
    made.write("both.md", "# Menu\n\nEverybody meets for soup at noon.\n", allow="staff")
    return made


@pytest.fixture
def serving(workspace: Workspace) -> Serving:
    """`async with serving(rate=...) as served`: with a key for each principal, one for metrics, and an issuer."""

    @asynccontextmanager
    async def start(
        *, local: bool = False, with_keys: bool = True, tokens: bool = True, tracer_provider: Any = None, **service: Any
    ) -> AsyncIterator[Served]:
        made = {name: new_key() for name in ("ada", "bob", "eve", "metrics")}
        issuer = Issuer()
        section: dict[str, Any] = {"rate": 0, **service}
        if with_keys:
            section["keys"] = [{"principal": None if name == "metrics" else name, "hash": digest} for name, (_, digest) in made.items()]
        if tokens:
            section["tokens"] = issuer.settings().model_dump()
        workspace.sections["service"] = section
        async with workspace.open() as index:
            await index.sync()
            settings: ServiceSettings = index.settings.service
            log, registry = io.StringIO(), CollectorRegistry()
            instruments = Instruments(json_lines=True, stream=log, registry=registry, tracer_provider=tracer_provider)
            gate = Authenticator(index, settings, tokens=issuer.tokens() if tokens else None)
            app = build(index, authenticator=gate, instruments=instruments, metrics=Metrics(registry), local=local)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://ragstore.test") as http:
                keys = {name: key for name, (key, _) in made.items()}
                yield Served(index=index, app=app, http=http, keys=keys, log=log, issuer=issuer, workspace=workspace)

    return start


@pytest.fixture
def chatting(serving: Serving, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Serving:
    """`async with chatting(chat={"timeout": 1}, ask={}) as talk`: `serving` with a model to ask, at an address of this machine."""
    monkeypatch.setenv("MODEL_KEY", "secret")

    @asynccontextmanager
    async def start(*, chat: dict[str, Any] | None = None, ask: dict[str, Any] | None = None, **service: Any) -> AsyncIterator[Chatting]:
        with OpenAIServer() as model:
            workspace.sections["ask"] = {"base_url": model.base_url, "model": "wise", "api_key_env": "MODEL_KEY", **(ask or {})}
            workspace.sections["chat"] = chat or {}
            async with serving(**service) as served, listening(served.app) as url:
                yield Chatting(served=served, model=model, url=url)

    return start
