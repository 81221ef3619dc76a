"""What Azure AI Search may do to a request (busy, late, gone after the commit, refused in part), and what then becomes of it."""

from __future__ import annotations

import pytest

from ragstore.contracts import DropDocument, PutRows, Retag, TextQuery, VectorQuery
from ragstore.errors import ConfigError, PoisonError, TransientError
from ragstore.filters import ALWAYS, AnyOf
from ragstore.testing.rows import access, chunk, document_id, listed, row, vector
from ragstore_azure.search import writing
from tests.fakes import azure_search
from tests.fakes.azure_search import AzureSearch, Fault
from tests.support.azure_search import Open

_QUERY = VectorQuery(vector=vector(1))


@pytest.mark.parametrize("status", [429, 503, 500, 502, 504])
@pytest.mark.parametrize("operation", ["index", "search", "create", "list", "get", "stats"])
async def test_a_busy_service_is_asked_again(search_service: AzureSearch, open_search: Open, operation: str, status: int) -> None:
    first, second = open_search(), open_search()
    search_service.faults.append(Fault(operation=operation, status=status, headers={"Retry-After": "0"}))
    await first.apply([PutRows(rows=[row("a")])])
    assert (await second.stats()).rows == 1
    assert search_service.faults == []
    assert len(await second.search(_QUERY, filter=ALWAYS, limit=5)) == 1


async def test_a_service_that_stays_busy_is_left_alone_for_as_long_as_it_asks(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a")])])
    search_service.faults += [Fault(status=503, headers={"Retry-After": "120"})]
    with pytest.raises(TransientError, match="503") as raised:
        await store.apply([PutRows(rows=[row("b")])])
    assert raised.value.retry_after == 120
    search_service.faults += [Fault(operation="search", status=429)] * 3
    with pytest.raises(TransientError, match="429"):
        await store.search(_QUERY, filter=ALWAYS, limit=5)
    assert search_service.faults == []


async def test_documents_that_are_refused_for_now_are_sent_again_and_no_others(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    refused = {chunk("a", number): status for number, status in enumerate((429, 503, 409, 422))}
    search_service.faults.append(Fault(partial=lambda key: refused.get(key, 0), headers={"Retry-After": "0"}))
    await store.apply([PutRows(rows=[row("a", number) for number in range(10)])])
    assert (await store.stats()).rows == 10
    sent = [[action["key"] for action in body["value"]] for body in search_service.asked("index")]
    assert [len(sent[0]), set(sent[1])] == [10, set(refused)]


async def test_documents_that_stay_refused_end_the_write_which_may_be_repeated(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    search_service.faults += [Fault(partial=lambda key: 503 if key == chunk("a", 3) else 0)] * 3
    put = [PutRows(rows=[row("a", number) for number in range(5)])]
    with pytest.raises(TransientError, match="too busy for 1 of 5"):
        await store.apply(put)
    assert (await store.stats()).rows == 4
    await store.apply(put)
    assert (await store.stats()).rows == 5


async def test_a_document_that_is_refused_for_good_says_why(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    search_service.faults.append(Fault(partial=lambda _: 400))
    with pytest.raises(ConfigError, match="400: refused on demand"):
        await store.apply([PutRows(rows=[row("a")])])


@pytest.mark.parametrize("operation", ["index", "search", "create", "list"])
async def test_a_connection_that_is_lost_after_the_commit_changes_nothing(
    search_service: AzureSearch, open_search: Open, operation: str
) -> None:
    store = open_search()
    search_service.faults.append(Fault(operation=operation, dropped=True))
    await store.apply([PutRows(rows=[row("a", 0), row("a", 1)])])
    search_service.faults.append(Fault(dropped=True))
    await store.apply([DropDocument(document_id=document_id("a"), generation=1), PutRows(rows=[row("a", 2)])])
    assert {key.chunk_id for key in await listed(store.keys())} == {chunk("a", 2)}
    assert search_service.faults == []


async def test_an_answer_that_is_late_is_asked_for_again(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search(timeout=0.2)
    search_service.faults += [Fault(operation="index", late=0.6), Fault(operation="search", late=0.6)]
    await store.apply([PutRows(rows=[row("a")])])
    assert len(await store.search(_QUERY, filter=ALWAYS, limit=5)) == 1
    assert search_service.faults == []


async def test_nobody_there_is_an_outage_that_passes(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search(endpoint="http://127.0.0.1:1")
    with pytest.raises(TransientError, match="cannot be reached"):
        await store.apply([PutRows(rows=[row("a")])])


async def test_a_batch_that_is_too_large_after_all_is_halved(
    search_service: AzureSearch, open_search: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_search()
    monkeypatch.setattr(azure_search, "MOST_BYTES", 6_000)
    await store.apply([PutRows(rows=[row("a", number) for number in range(20)])])
    assert (await store.stats()).rows == 20
    monkeypatch.setattr(azure_search, "MOST_BYTES", 600)
    with pytest.raises(PoisonError, match="size") as raised:
        await store.apply([PutRows(rows=[row("b", 0, text="x" * 600), row("b", 1)])])
    assert raised.value.kind == "too_large"


async def test_a_chunk_that_no_request_can_hold_is_poison_before_anything_is_written(
    search_service: AzureSearch, open_search: Open
) -> None:
    store = open_search(batch_bytes=5_000)
    with pytest.raises(PoisonError) as raised:
        await store.apply([PutRows(rows=[row("a"), row("b", text="word " * 2_000)])])
    assert raised.value.kind == "too_large"
    assert search_service.asked("index") == []


async def test_batches_keep_to_rows_and_bytes(search_service: AzureSearch, open_search: Open) -> None:
    await open_search(batch_rows=7).apply([PutRows(rows=[row("a", number) for number in range(20)])])
    assert [len(body["value"]) for body in search_service.asked("index")] == [7, 7, 6]
    search_service.requests.clear()
    put = [row("é\U0001f600", number, text="日本語" * 10) for number in range(20)]
    await open_search(batch_bytes=10_000).apply([PutRows(rows=put)])
    assert 1 < len(search_service.asked("index")) < 20
    assert max(search_service.sizes[3:]) <= 10_000
    for options in ({"batch_rows": 1_001}, {"batch_rows": 0}, {"batch_bytes": 16_000_001}):
        with pytest.raises(ConfigError, match="batch_rows"):
            open_search(**options)


async def test_a_key_that_is_wrong_or_missing_is_named(
    search_service: AzureSearch, open_search: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "query-key")
    with pytest.raises(ConfigError, match="admin key"):
        await open_search().apply([PutRows(rows=[row("a")])])
    monkeypatch.delenv("SEARCH_KEY")
    with pytest.raises(ConfigError, match="'SEARCH_KEY', which is not set"):
        await open_search().stats()


async def test_a_refused_filter_is_not_quoted(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a")])])
    said = "Invalid expression: Syntax error at position 3 in 'allowed/any(e: e eq 'secret-group')'."
    search_service.faults.append(Fault(operation="search", status=400, message=said))
    with pytest.raises(ConfigError, match="400: Invalid expression: Syntax error at position 3 in") as raised:
        await store.search(TextQuery(text="apple"), filter=AnyOf("allowed", frozenset({"secret-group"})), limit=1)
    assert "secret" not in str(raised.value)


async def test_a_second_write_knows_of_the_first_before_the_service_shows_it(search_service: AzureSearch, open_search: Open) -> None:
    search_service.delay = 0.3
    store = open_search()
    await store.apply([PutRows(rows=[row("a", 0, generation=2), row("a", 1, generation=2), row("b")])])
    await store.apply([Retag(document_id=document_id("a"), access=access("new.md", allowed=("g",)))])
    await store.apply([PutRows(rows=[row("a", 0, text="older")]), DropDocument(document_id=document_id("b"), generation=1)])
    await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
    keys = await listed(store.keys())  # waits for what this process wrote
    assert {(key.chunk_id, key.generation, key.access.path) for key in keys} == {(chunk("a", n), 2, "new.md") for n in (0, 1)}


async def test_the_wait_for_ones_own_writes_ends(search_service: AzureSearch, open_search: Open) -> None:
    search_service.delay = 30.0
    store = open_search(settle=0.1)
    await store.apply([PutRows(rows=[row("a")])])
    assert await listed(store.keys()) == []
    assert store.capabilities.immediate is False


def test_rows_that_come_after_a_drop_of_their_document_are_written_after_it() -> None:
    drop = DropDocument(document_id=document_id("a"), generation=1)
    batches = list(writing.batched([PutRows(rows=[row("a")]), drop, PutRows(rows=[row("b")]), PutRows(rows=[row("a", 1)])]))
    assert [(list(batch.puts), batch.drops) for batch in batches] == [([chunk("a"), chunk("b")], [drop]), ([chunk("a", 1)], [])]
