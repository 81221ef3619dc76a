"""OpenAIEmbedder against a server that keeps the documented limits: the suite, batching, throttling, refusals, wrong set-ups."""

from __future__ import annotations

import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator
from email.utils import formatdate
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragstore import plugins
from ragstore.contracts import Embedder
from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.testing.embedders import EmbedderSuite
from tests.fakes.openai_server import Failure, OpenAIServer

openai = pytest.importorskip("openai", reason="the SDK is not installed (extra `openai`)")

if TYPE_CHECKING:
    from ragstore_openai import OpenAIEmbedder

Make = Callable[..., "OpenAIEmbedder"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("TEST_KEY", "secret")
    with OpenAIServer() as running:
        yield running


@pytest.fixture
async def make(server: OpenAIServer) -> AsyncIterator[Make]:
    """Makes embedders that talk to the server, and closes them."""
    made: list[OpenAIEmbedder] = []

    def build(**options: object) -> OpenAIEmbedder:
        defaults = {"model": "some-model", "base_url": server.base_url, "api_key_env": "TEST_KEY", "dimensions": 64}
        made.append(plugins.build("embedders", "openai", {**defaults, **options}))
        return made[-1]

    yield build
    for embedder in made:
        await embedder.close()


class TestOpenAIEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self, make: Make) -> Embedder:
        return make()


async def embed(embedder: OpenAIEmbedder, *texts: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return await embedder.embed(texts, purpose="document")


async def test_no_request_breaks_the_limits_on_inputs_and_tokens(make: Make, server: OpenAIServer) -> None:
    embedder = make(max_batch=5000)
    assert (await embed(embedder, *["x"] * 3000)).shape == (3000, 64)
    assert (await embed(embedder, *["long text " * 500] * 300)).shape == (300, 64)
    assert max(len(request["input"]) for request in server.requests) == 2048
    assert max(sum(len(text) for text in request["input"]) for request in server.requests) <= 300_000


async def test_requests_run_side_by_side_but_not_all_at_once(make: Make, server: OpenAIServer) -> None:
    await embed(make(max_batch=1, concurrency=3), *[f"text {number}" for number in range(20)])
    assert len(server.requests) == 20
    assert server.most_at_once <= 3


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_both_encodings_give_the_same_vectors(make: Make, encoding: str) -> None:
    expected = await embed(plugins.build("embedders", "hash", {}), "some text", "more")
    assert np.abs(await embed(make(encoding_format=encoding), "some text", "more") - expected).max() < 1e-6


async def test_a_server_that_leaves_out_the_index_is_taken_at_its_order(make: Make, server: OpenAIServer) -> None:
    expected = await embed(make(), "some text", "more")
    server.index_left_out = True
    assert np.array_equal(await embed(make(), "some text", "more"), expected)


async def test_prefixes_are_sent_and_are_part_of_the_fingerprint(make: Make, server: OpenAIServer) -> None:
    embedder = make(document_prefix="passage: ", query_prefix="query: ")
    await embedder.embed(["a"], purpose="document")
    await embedder.embed(["b"], purpose="query")
    assert [request["input"] for request in server.requests] == [["passage: a"], ["query: b"]]
    fingerprints = {embedder.fingerprint, make().fingerprint, make(query_prefix="query: ").fingerprint, make(dimensions=32).fingerprint}
    assert len(fingerprints) == 4


async def test_dimensions_are_sent_only_where_they_shorten_a_model_that_can(make: Make, server: OpenAIServer) -> None:
    server.native = 1536
    await embed(make(dimensions=1536), "text")
    await embed(make(model="text-embedding-3-small", dimensions=256), "text")
    await embed(make(dimensions=8, send_dimensions=True), "text")
    assert [request.get("dimensions") for request in server.requests] == [None, 256, 8]


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limit_exceeded"), (500, None), (503, None), (408, None)])
async def test_throttling_and_outages_are_waited_out(make: Make, server: OpenAIServer, status: int, code: str | None) -> None:
    server.failures = [Failure(status=status, code=code, headers={"Retry-After": "0"})]
    assert (await embed(make(), "text")).shape == (1, 64)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"Retry-After": "1"}, 1), ({"retry-after-ms": "1000", "Retry-After": "60"}, 1), ({}, pytest.approx(3600, abs=30))],
    ids=["seconds", "milliseconds", "date"],
)
async def test_the_wait_that_the_service_asks_for_is_passed_on(
    make: Make, server: OpenAIServer, headers: dict[str, str], expected: float
) -> None:
    in_an_hour = {"Retry-After": formatdate(time.time() + 3600, usegmt=True)}
    server.failures = [Failure(status=429, headers=headers or in_an_hour)]
    with pytest.raises(TransientError) as raised:
        await embed(make(retry_seconds=0), "text")
    assert raised.value.retry_after == expected


async def test_attempts_end(make: Make, server: OpenAIServer) -> None:
    server.failures = [Failure(status=429)] * 10
    with pytest.raises(TransientError, match="answered 429"):
        await embed(make(attempts=2), "text")
    assert len(server.requests) == 2


async def test_a_server_that_is_not_there_is_a_transient_error(make: Make) -> None:
    with pytest.raises(TransientError, match="cannot be reached"):
        await embed(make(base_url="http://127.0.0.1:9/v1", attempts=1), "text")


async def test_the_one_refused_text_of_a_batch_is_named(make: Make, server: OpenAIServer) -> None:
    server.refused = {"bomb"}
    with pytest.raises(PoisonError, match="text 5 is refused") as raised:
        await embed(make(), *[f"text {number}" if number != 5 else "a bomb" for number in range(9)])
    assert (raised.value.kind, raised.value.index) == ("embedding_refused", 5)
    assert pickle.loads(pickle.dumps(raised.value)).index == 5


async def test_a_text_that_is_too_long_for_the_model_is_refused_alone(make: Make) -> None:
    with pytest.raises(PoisonError) as raised:
        await embed(make(), "short", "word " * 10_000)
    assert raised.value.index == 1


async def test_where_every_text_is_refused_the_configuration_is_wrong(make: Make, server: OpenAIServer) -> None:
    embedder = make(dimensions=512, send_dimensions=True)
    with pytest.raises(ConfigError, match=r"every text is refused.*does not support specifying dimensions"):
        await embed(embedder, "one", "two")


@pytest.mark.parametrize("component", [0.0, float("nan")])
async def test_a_vector_without_direction_is_not_taken(make: Make, server: OpenAIServer, component: float) -> None:
    server.component = component
    with pytest.raises(ConfigError, match="no direction"):
        await embed(make(), "text")


async def test_a_refused_key_names_the_variable_and_not_the_key(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "wrong-key")
    with pytest.raises(ConfigError, match="'TEST_KEY'") as raised:
        await embed(make(), "text")
    assert "wrong-key" not in str(raised.value)


async def test_a_quota_that_is_used_up_is_not_waited_for(make: Make, server: OpenAIServer) -> None:
    server.failures = [Failure(status=429, code="insufficient_quota")] * 3
    with pytest.raises(ConfigError, match="quota"):
        await embed(make(), "text")
    assert len(server.requests) == 1


@pytest.mark.parametrize("options", [{"model": "no-such-model"}, {"dimensions": 65}])
async def test_a_wrong_model_or_length_is_a_configuration_error(make: Make, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"Check model|set dimensions = 64"):
        await embed(make(**options), "text")


async def test_an_address_of_something_else_is_a_configuration_error(make: Make, server: OpenAIServer) -> None:
    page = Failure(status=200, headers={"Content-Type": "text/html"}, body=b"<html>hello</html>")
    server.failures = [page]
    with pytest.raises(ConfigError, match="base_url"):
        await embed(make(), "text")


async def test_a_missing_vector_is_a_transient_error(make: Make, server: OpenAIServer) -> None:
    body = b'{"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}]}'
    server.failures = [Failure(status=200, body=body)]
    with pytest.raises(TransientError, match="1 vectors for 2 texts"):
        await embed(make(attempts=1), "one", "two")


async def test_an_empty_answer_is_a_transient_error(make: Make, server: OpenAIServer) -> None:
    server.failures = [Failure(status=200, body=b'{"object": "list", "model": "m", "data": []}')]
    with pytest.raises(TransientError):
        await embed(make(attempts=1), "one")


def test_a_missing_key_is_found_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    with pytest.raises(ConfigError, match="'TEST_KEY' must hold the API key"):
        plugins.build("embedders", "openai", {"api_key_env": "TEST_KEY"})


async def test_a_server_without_keys_needs_no_variable(make: Make, server: OpenAIServer) -> None:
    server.key = "none"
    assert (await embed(make(api_key_env=""), "text")).shape == (1, 64)


async def test_the_length_of_unknown_models_must_be_said(make: Make) -> None:
    with pytest.raises(ConfigError, match="dimensions = "):
        make(dimensions=None)
    assert make(model="text-embedding-3-large", dimensions=None).dimensions == 3072


@pytest.mark.parametrize("option", ["max_batch", "max_tokens", "concurrency", "attempts"])
async def test_limits_must_be_positive(make: Make, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        make(**{option: 0})


async def test_tokens_are_estimated_on_the_safe_side(make: Make) -> None:
    assert make().count_tokens(["four", "a little longer", "密钥轮换"]) == [1, 4, 4]
