"""A Pinecone that throttles, fails in part, answers late and loses connections in; what the store makes of it, and says, out."""

from __future__ import annotations

from typing import Any

import pytest

from ragstore.contracts import DropDocument, PutRows, Retag, Store, TextQuery, VectorQuery, Write
from ragstore.errors import ConfigError, TransientError
from ragstore.filters import ALWAYS
from ragstore.testing.rows import access, document_id, listed, row, vector
from tests.fakes.pinecone import Fault, PineconeServer
from tests.fakes.pinecone_index import FakeIndex
from tests.support.pinecone_stores import OpenPinecone

QUERY = VectorQuery(vector=vector(1))


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the SDK would have waited between its own attempts; it does not wait."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("pinecone._internal.http_client._async_retry_sleep", sleep)
    return waited


async def _keys(store: Store) -> list[tuple[int, str]]:
    return sorted([(key.generation, key.access.path) for key in await listed(store.keys())])


async def test_throttling_is_waited_out_as_long_as_was_asked(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone, waits: list[float]
) -> None:
    store = open_pinecone()
    pinecone_server.faults += [Fault(path="/vectors/upsert", status=429, headers={"Retry-After": "7"}), Fault(path="/vectors/upsert")]
    await store.apply([PutRows(rows=[row("a")])])
    assert (await store.stats()).rows == 1
    assert 7 <= waits[0] <= 11
    assert len(waits) == 2


async def test_an_outage_that_lasts_is_transient_and_says_when_to_come_back(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone(attempts=2, retry_seconds=5.0)
    assert await listed(store.keys()) == []
    pinecone_server.faults += [Fault(path="/query", status=429, headers={"Retry-After": "30"}) for _ in range(8)]
    with pytest.raises(TransientError, match="'ragstore' answered 429: injected") as caught:
        await store.search(QUERY, filter=ALWAYS, limit=1)
    assert caught.value.retry_after == 30
    assert len(pinecone_server.faults) == 4  # 30 seconds are more than the budget: no second round


@pytest.mark.parametrize("path", ["/vectors/upsert", "/vectors/update", "/vectors/delete", "/vectors/fetch", "/vectors/list"])
@pytest.mark.parametrize("after_commit", [True, False])
async def test_a_connection_that_is_lost_changes_nothing_in_the_end(
    pinecone_server: PineconeServer,
    open_pinecone: OpenPinecone,
    path: str,
    after_commit: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", 0), row("a", 1), row("b")])])
    pinecone_server.faults.append(Fault(path=path, dropped=True) if after_commit else Fault(path=path, status=502))
    writes: list[Write] = [
        Retag(document_id=document_id("a"), access=access("moved.md")),
        PutRows(rows=[row("c", text="new", generation=2)]),
        DropDocument(document_id=document_id("b"), generation=1),
    ]
    await store.apply(writes)
    assert await _keys(store) == [(1, "moved.md"), (1, "moved.md"), (2, "c.md")]
    assert pinecone_server.faults == []


async def test_a_batch_that_was_written_in_part_is_completed_by_repeating_it(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone(attempts=1)
    put = [PutRows(rows=[row("a", number) for number in range(50)])]
    pinecone_server.faults += [Fault(path="/vectors/upsert", only=20), *(Fault(path="/vectors/upsert") for _ in range(3))]
    with pytest.raises(TransientError):
        await store.apply(put)
    assert len(pinecone_server.index.records("ragstore.chunks")) == 20
    await store.apply(put)
    assert len(await _keys(store)) == 50


async def test_an_answer_that_does_not_come_is_transient(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone(attempts=1, timeout=0.3)
    assert await listed(store.keys()) == []
    pinecone_server.faults += [Fault(path="/query", status=200, seconds=0.8) for _ in range(4)]
    with pytest.raises(TransientError, match="cannot be reached"):
        await store.search(QUERY, filter=ALWAYS, limit=1)


async def test_an_answer_that_is_late_is_waited_for(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    pinecone_server.faults.append(Fault(path="/vectors/upsert", status=200, seconds=0.4))
    await store.apply([PutRows(rows=[row("a")])])
    assert len(await store.search(QUERY, filter=ALWAYS, limit=1)) == 1


async def test_a_server_that_is_not_there_is_transient(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone(index=None, host="http://127.0.0.1:9", attempts=1)
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:9 cannot be reached.*; check network and endpoint"):
        await store.stats()


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "API key in PINECONE_API_KEY"), (403, "its role"), (402, "paid"), (400, "refused a request"), (404, "not there")],
)
async def test_what_waiting_does_not_mend_says_what_to_change(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone, status: int, words: str
) -> None:
    store = open_pinecone()
    assert await listed(store.keys()) == []
    pinecone_server.faults.append(Fault(path="/query", status=status))
    with pytest.raises(ConfigError, match=words) as caught:
        await store.search(QUERY, filter=ALWAYS, limit=1)
    assert "secret" not in str(caught.value)
    assert pinecone_server.faults == []


async def test_a_key_that_is_refused_or_missing_is_named_by_its_variable(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "sesame")
    with pytest.raises(ConfigError, match="refuses the API key in OTHER_KEY") as caught:
        await open_pinecone(api_key_env="OTHER_KEY").stats()
    assert "sesame" not in str(caught.value)
    monkeypatch.delenv("OTHER_KEY")
    with pytest.raises(ConfigError, match="'OTHER_KEY', which is not set"):
        await open_pinecone(api_key_env="OTHER_KEY").stats()
    monkeypatch.setenv("OTHER_KEY", "two\nlines")
    with pytest.raises(ConfigError, match="not a valid HTTP header") as caught:
        await open_pinecone(api_key_env="OTHER_KEY").stats()
    assert "two" not in str(caught.value)


async def test_full_text_is_refused_with_what_to_do(open_pinecone: OpenPinecone) -> None:
    with pytest.raises(ConfigError, match="no full text"):
        await open_pinecone().search(TextQuery(text="word"), filter=ALWAYS, limit=1)


async def test_an_index_is_made_where_that_was_asked_for_and_only_by_a_write(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone(index="fresh", cloud="aws", region="us-east-1")
    assert (await store.stats()).rows == 0
    assert await store.search(QUERY, filter=ALWAYS, limit=1) == []
    assert [await listed(store.keys()), await listed(store.rows([document_id("a")]))] == [[], []]
    await store.drop()
    await store.expunge()
    assert "fresh" not in pinecone_server.indexes
    pinecone_server.faults.append(Fault(path="/indexes", status=200))
    await store.apply([PutRows(rows=[row("a")])])
    made = pinecone_server.indexes["fresh"]
    assert (made.dimension, made.metric) == (8, "cosine")
    assert (await store.stats()).rows == 1


async def test_an_index_that_somebody_else_makes_meanwhile_is_taken(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone(index="fresh", cloud="aws", region="us-east-1")
    pinecone_server.faults += [Fault(path="/indexes/fresh", status=200), Fault(path="/indexes", dropped=True)]
    await store.apply([PutRows(rows=[row("a")])])
    assert (await store.stats()).rows == 1


@pytest.mark.parametrize("by_host", [True, False])
async def test_an_index_that_does_not_fit_is_refused_with_each_difference(
    pinecone_server: PineconeServer,
    open_pinecone: OpenPinecone,
    by_host: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    pinecone_server.indexes["wide"] = FakeIndex("wide", 16, "euclidean")
    pinecone_server.indexes["dotted"] = FakeIndex("dotted", 8, "dotproduct")

    def options(name: str) -> dict[str, Any]:
        return {"index": None, "host": pinecone_server.index_host(name)} if by_host else {"index": name}

    with pytest.raises(ConfigError, match=r"16 dimensions, not 8, .*metric euclidean, not cosine"):
        await open_pinecone(**options("wide")).stats()
    with pytest.raises(ConfigError, match="metric dotproduct, not cosine"):
        await open_pinecone(**options("dotted")).stats()


async def test_an_index_on_pods_is_refused(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    pinecone_server.pods = True
    with pytest.raises(ConfigError, match="serverless"):
        await open_pinecone().stats()


async def test_an_index_that_is_not_there_says_how_to_make_it(open_pinecone: OpenPinecone) -> None:
    with pytest.raises(ConfigError, match=r"create it .*8 dimensions, metric cosine.*cloud and region"):
        await open_pinecone(index="nowhere").stats()


async def test_by_host_no_right_to_describe_indexes_is_needed(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone(index=None, host=pinecone_server.index_host())
    await store.apply([PutRows(rows=[row("a")])])
    assert not [path for path, _ in pinecone_server.requests if path.startswith("/indexes")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"index": None}, "either index"),
        ({"host": "x.pinecone.io"}, "either index"),
        ({"index": "Not_A_Name"}, "small letters"),
        ({"cloud": "aws"}, "together"),
        ({"index": None, "host": "x", "cloud": "aws", "region": "r"}, "together"),
        ({"namespace": "a.b"}, "namespace"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_options_that_do_not_go_together_are_refused(open_pinecone: OpenPinecone, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_pinecone(**options)


async def test_namespaces_keep_two_indexes_apart_that_use_one_collection_name(open_pinecone: OpenPinecone) -> None:
    one, other = open_pinecone(namespace="one"), open_pinecone(namespace="other")
    await one.apply([PutRows(rows=[row("a")])])
    assert (await other.stats()).rows == 0
    await other.drop()
    assert (await one.stats()).rows == 1
