"""RerankAPI against servers with each vendor's documented fields and limits: the suite, batching, patience, answers that are not whole."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from ragstore import plugins
from ragstore.contracts import Reranker
from ragstore.errors import ConfigError, TransientError
from ragstore.testing.rerankers import RerankerSuite
from tests.fakes.rerank_server import Failure, RerankServer

pytest.importorskip("httpx", reason="the package is not installed (extra `rerank`)")

if TYPE_CHECKING:
    from ragstore_rerank_api import RerankAPI

Make = Callable[..., "RerankAPI"]
STYLES = ["cohere", "jina", "voyage", "tei"]


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(style: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RerankServer]:
    monkeypatch.setenv("TEST_KEY", "secret")
    with RerankServer(style) as running:
        yield running


@pytest.fixture
async def make(server: RerankServer) -> AsyncIterator[Make]:
    """Makes rerankers that talk to the server, and closes them."""
    made: list[RerankAPI] = []

    def build(**options: object) -> RerankAPI:
        model = {} if server.style == "tei" else {"model": "some-model"}
        defaults = {"style": server.style, "base_url": server.base_url, "api_key_env": "TEST_KEY", **model}
        made.append(plugins.build("rerankers", "rerank-api", {**defaults, **options}))
        return made[-1]

    yield build
    for reranker in made:
        await reranker.close()


class TestRerankAPI(RerankerSuite):
    query = "how often is the key rotated"

    @pytest.fixture
    def reranker(self, make: Make) -> Reranker:
        return make()


async def test_requests_say_what_the_vendor_wants_said_and_hold_no_more(make: Make, server: RerankServer) -> None:
    await make().rerank("the key", ["a key", "b"])
    texts = {"query": "the key", "texts" if server.style == "tei" else "documents": ["a key", "b"]}
    more: dict[str, dict[str, object]] = {
        "cohere": {"model": "some-model"},
        "jina": {"model": "some-model", "return_documents": False},
        "voyage": {"model": "some-model", "return_documents": False, "truncation": True},
        "tei": {"truncate": True, "raw_scores": False, "return_text": False},
    }
    assert server.requests == [{**texts, **more[server.style]}]
    assert server.headers[0]["authorization"] == "Bearer secret"


async def test_no_request_breaks_the_limits_of_the_vendor(make: Make, server: RerankServer) -> None:
    reranker = make(timeout=60)
    assert len(await reranker.rerank("key", ["x"] * 1_500)) == 1_500
    assert len(await reranker.rerank("密钥" * 10_000, ["long text " * 10_000] * 70)) == 70
    assert max(len(server._texts(request)) for request in server.requests) <= server.vendor.most_texts
    assert max(len(text.encode()) for text in server.texts) <= 32_000


async def test_requests_run_side_by_side_but_not_all_at_once(make: Make, server: RerankServer) -> None:
    server.pause = 0.02
    await make(max_batch=1, concurrency=3).rerank("key", [f"text {number}" for number in range(12)])
    assert len(server.requests) == 12
    assert 1 < server.most_at_once <= 3


async def test_a_server_that_takes_less_at_once_is_asked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    with RerankServer("tei", key=None, most_texts=5) as server:
        reranker = plugins.build("rerankers", "rerank-api", {"style": "tei", "base_url": server.base_url})
        scores = await reranker.rerank("key 7", [f"key {number}" for number in range(12)])
        await reranker.close()
    assert scores.index(max(scores)) == 7
    assert [len(request["texts"]) for request in server.requests] == [12, 6, 3, 3, 6, 3, 3]
    assert "authorization" not in server.headers[0]


# Patience.


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_throttling_and_outages_are_waited_out(make: Make, server: RerankServer, status: int) -> None:
    server.failures = [Failure(status=status, headers={"Retry-After": "0"})]
    assert await make().rerank("key", ["key"]) == [1.0]
    assert len(server.requests) == 2


async def test_nobody_waits_for_longer_than_there_is_time(make: Make, server: RerankServer) -> None:
    for asked, expected in (("30", 30), (formatdate(time.time() + 3600, usegmt=True), pytest.approx(3600, abs=30))):
        server.failures = [Failure(status=429, headers={"Retry-After": asked})]
        with pytest.raises(TransientError, match="answered 429: injected") as raised:
            await make(timeout=5).rerank("key", ["key"])
        assert raised.value.retry_after == expected
    server.pause, hurried = 5.0, make(timeout=0.3)
    begun = time.monotonic()
    with pytest.raises(TransientError, match=r"did not answer within 0\.3 seconds|cannot be reached"):
        await hurried.rerank("key", ["key"])
    assert time.monotonic() - begun < 4


async def test_attempts_end(make: Make, server: RerankServer) -> None:
    server.failures = [Failure(status=503)] * 9
    with pytest.raises(TransientError, match="answered 503"):
        await make(attempts=2).rerank("key", ["key"])
    assert len(server.requests) == 2


async def test_a_server_that_is_not_there_is_a_transient_error(make: Make) -> None:
    with pytest.raises(TransientError, match="cannot be reached"):
        await make(base_url="http://127.0.0.1:9", attempts=1).rerank("key", ["key"])


# Answers that are not whole.


def _without_the_last(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return ranks[:-1]


def _twice(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*ranks[:-1], ranks[0]]


def _changed(**values: object) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    def change(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        score = next(name for name in ranks[0] if name.endswith("score"))
        return [*ranks[:-1], {**ranks[-1], **{score if name == "score" else name: value for name, value in values.items()}}]

    return change


@pytest.mark.parametrize("style", ["voyage", "tei"])
@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (_without_the_last, "2 scores for 3 texts"),
        (lambda _ranks: [], "0 scores for 3 texts"),
        (_twice, "two scores"),
        (_changed(index=3), "text 3 of 3"),
        (_changed(index=-1), "text -1 of 3"),
        (_changed(index="1"), "no score of a text"),
        (_changed(index=True), "no score of a text"),
        (_changed(score=float("nan")), "no number"),
        (_changed(score=float("inf")), "no number"),
        (_changed(score=10**400), "no number"),
        (_changed(score=None), "no score of a text"),
        (_changed(score="0.5"), "no score of a text"),
        (lambda ranks: [*ranks[:-1], 7], "no score of a text"),
    ],
)
async def test_an_answer_that_is_not_whole_is_an_error_and_never_made_up(
    make: Make, server: RerankServer, tamper: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], message: str
) -> None:
    server.tamper = tamper
    with pytest.raises(TransientError, match=message):
        await make(attempts=1).rerank("key", ["a key", "the key", "lock"])


@pytest.mark.parametrize("style", ["cohere", "tei"])
@pytest.mark.parametrize("body", [b"<html>hello</html>", b'{"data": 7}', b"7", b'{"choices": []}', b"[" * 100_000, b""])
async def test_an_address_of_something_else_is_a_configuration_error(make: Make, server: RerankServer, body: bytes) -> None:
    server.failures = [Failure(status=200, body=body)]
    with pytest.raises(ConfigError, match="check base_url and style"):
        await make().rerank("key", ["key"])


@pytest.mark.parametrize(
    ("style", "other"), [(style, other) for style in STYLES for other in STYLES if style != other and {style, other} != {"cohere", "jina"}]
)
async def test_another_style_than_the_servers_is_a_configuration_error(make: Make, server: RerankServer, other: str) -> None:
    with pytest.raises(ConfigError, match="style"):
        await make(style=other, model="some-model").rerank("key", ["key"])


async def test_an_answer_without_end_is_stopped(make: Make, server: RerankServer) -> None:
    server.failures = [Failure(status=200, body=b" " * 11_000_000)]
    with pytest.raises(TransientError, match="does not end"):
        await make(attempts=1).rerank("key", ["key"])


# Refusals.


async def test_a_text_that_is_refused_is_told_apart_from_a_wrong_set_up(make: Make, server: RerankServer) -> None:
    from ragstore_rerank_api.errors import RequestRefusedError

    server.refused = {"bomb"}
    with pytest.raises(RequestRefusedError, match="the text is refused"):
        await make().rerank("key", ["a key", "a bomb"])
    server.refused = {""}
    with pytest.raises(ConfigError, match="every text is refused"):
        await make().rerank("key", ["a key"])


@pytest.mark.parametrize("style", ["cohere", "jina", "voyage"])
async def test_a_wrong_model_is_a_configuration_error(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"'no-such-model' is not supported.*Check model"):
        await make(model="no-such-model").rerank("key", ["key"])


async def test_a_model_that_is_no_reranker_is_a_configuration_error(make: Make, server: RerankServer) -> None:
    server.failures = [Failure(status=424, body=b'{"error": "model is not a re-ranker model", "error_type": "Backend"}')] * 2
    with pytest.raises(ConfigError, match="not a re-ranker model"):
        await make().rerank("key", ["key"])


async def test_a_refused_key_names_the_variable_and_not_the_key(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "wrong-key")
    with pytest.raises(ConfigError, match=r"the key in the environment variable 'TEST_KEY' \(401\): invalid api token") as raised:
        await make().rerank("key", ["key"])
    assert "wrong-key" not in str(raised.value)


async def test_what_was_paid_for_and_is_used_up_is_not_waited_for(make: Make, server: RerankServer) -> None:
    server.failures = [Failure(status=402)] * 3
    with pytest.raises(ConfigError, match="used up"):
        await make().rerank("key", ["key"])
    assert len(server.requests) == 1


async def test_a_redirect_is_not_followed(make: Make, server: RerankServer) -> None:
    server.failures = [Failure(status=307, headers={"Location": server.base_url})]
    with pytest.raises(ConfigError, match="answered 307"):
        await make().rerank("key", ["key"])
    assert len(server.requests) == 1


@pytest.mark.parametrize("style", ["jina"])
@pytest.mark.parametrize("body", [b"", b"no json", b"[]", json.dumps({"error": {"message": "m" * 9_999}}).encode(), b'{"message": 3}'])
async def test_whatever_comes_with_an_error_is_taken(make: Make, server: RerankServer, body: bytes) -> None:
    server.failures = [Failure(status=404, body=body)]
    with pytest.raises(ConfigError, match="answered 404") as raised:
        await make().rerank("key", ["key"])
    assert len(str(raised.value)) < 600


# Options.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "cohere"}, "name the model"),
        ({"style": "tei"}, "base_url = "),
        ({"style": "other", "model": "m"}, "style"),
        ({"model": "m"}, "style"),
        ({"style": "tei", "base_url": "localhost:8080"}, "is no address"),
        ({"style": "tei", "base_url": "http://[::1"}, "is no address"),
        ({"style": "tei", "base_url": "http://x", "api_key": "secret"}, "no option 'api_key'"),
        *(({"style": "tei", "base_url": "http://x", name: 0}, name) for name in ("max_batch", "max_bytes", "concurrency")),
        *(({"style": "tei", "base_url": "http://x", name: 0}, name) for name in ("attempts", "timeout")),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plugins.build("rerankers", "rerank-api", options)


@pytest.mark.parametrize(("vendor", "variable"), [("cohere", "CO_API_KEY"), ("jina", "JINA_API_KEY"), ("voyage", "VOYAGE_API_KEY")])
def test_a_missing_key_is_found_before_anything_is_sent(vendor: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match=f"{variable!r} must hold the API key"):
        plugins.build("rerankers", "rerank-api", {"style": vendor, "model": "m"})


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ragstore_rerank_api"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"pip install 'ragstore\[rerank\]'"):
        plugins.load("rerankers", "rerank-api")
