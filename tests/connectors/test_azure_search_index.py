"""The index in Azure AI Search: how it is named, made and checked, what is asked of it, and what is sent."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ragstore.contracts import DropDocument, PutRows, Retag, TextQuery, VectorQuery
from ragstore.errors import ConfigError, TransientError
from ragstore.filters import ALWAYS, AnyOf, Filter, OneOf, StartsWith
from ragstore.models import AccessColumns
from ragstore.plugins import build
from ragstore.terms import query_terms
from ragstore.testing.rows import DIMENSIONS, access, chunk, document_id, listed, row, vector
from ragstore_azure.search import AzureSearchStore, expunging, reading, searching
from ragstore_azure.search.connection import checked_endpoint
from ragstore_azure.search.schema import definition, differences, ordinal
from ragstore_azure.search.service import index_name
from tests.fakes.azure_search import AzureSearch, Fault
from tests.fakes.azure_search_index import Index
from tests.support.azure_search import Open

_QUERY = VectorQuery(vector=vector(1))


def test_names_of_collections_do_not_collide() -> None:
    names = ["chunks", "chunks-ab12-cd34", "chunks_ab12", "chunks-v2", "Chunks", "chunks--x", "-chunks", "日本", "x" * 200, ""]
    names += [index_name("rag", "chunks_ab12").removeprefix("rag-")]
    made = [index_name("rag", name) for name in names]
    assert len(set(made)) == len(names)
    assert made[:2] == ["rag-chunks", "rag-chunks-ab12-cd34"]
    for name in made:
        Index(definition(f"{name}-v12345", DIMENSIONS, None))  # raises for a name that the service refuses
    with pytest.raises(ConfigError, match="index = 'Rag'"):
        index_name("Rag", "chunks")


@pytest.mark.parametrize(
    "endpoint", ["http://name.search.windows.net", "https://", "name.search.windows.net", "https://u:p@host", "https://host?key=1"]
)
def test_an_address_that_would_give_the_key_away_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="https://NAME") as raised:
        checked_endpoint(endpoint, with_key=True)
    assert endpoint == "https://" or endpoint not in str(raised.value)


def test_http_is_for_this_machine_with_a_key() -> None:
    assert checked_endpoint("http://127.0.0.1:80/", with_key=True) == "http://127.0.0.1:80"
    with pytest.raises(ConfigError):
        checked_endpoint("http://127.0.0.1:80/", with_key=False)


async def test_it_is_built_from_configuration(search_service: AzureSearch) -> None:
    options = {"endpoint": search_service.url, "key_env": "SEARCH_KEY", "exact_below": 5}
    store = build("stores", "azure-search", options, collection="chunks", dimensions=DIMENSIONS)
    assert isinstance(store, AzureSearchStore)
    assert (await store.stats()).detail == {"kind": "azure-search", "index": "ragstore-chunks"}
    await store.close()
    with pytest.raises(ConfigError, match="2 to 4,096 dimensions"):
        build("stores", "azure-search", options, collection="chunks", dimensions=5_000)


def test_importing_the_store_loads_no_sdk() -> None:
    script = "import sys, ragstore_azure.search; print([name for name in sys.modules if name.split('.')[0] in ('azure', 'aiohttp')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_sdk_of_storage_is_not_needed() -> None:
    blocked = "import sys; sys.modules['azure.storage'] = None; "
    script = (
        blocked
        + "from ragstore.plugins import build; build('stores', 'azure-search', {'endpoint': 'https://x'}, collection='c', dimensions=2)"
    )
    subprocess.run([sys.executable, "-c", script + "; import ragstore_azure.credentials, ragstore_azure.errors"], check=True)


async def test_an_index_of_somebody_else_is_refused_with_every_difference(search_service: AzureSearch, open_search: Open) -> None:
    made = definition("ragstore-chunks", DIMENSIONS, None)
    fields = {field["name"]: field for field in made["fields"]}
    del fields["allowed"]
    fields["generation"] = {**fields["generation"], "type": "Edm.Int32"}
    fields["terms"] = {**fields["terms"], "analyzer": "standard.lucene"}
    fields["path"] = {**fields["path"], "filterable": False}
    search_service.indexes["ragstore-chunks"] = Index({**made, "fields": [*fields.values(), {"name": "mine", "type": "Edm.String"}]})
    with pytest.raises(ConfigError, match="is not as this version of ragstore makes it") as raised:
        await open_search().stats()
    said = str(raised.value)
    for part in ("'allowed' is missing", "type = Edm.Int32", "analyzer = standard.lucene, not whitespace", "'path' has filterable = False"):
        assert part in said
    assert "mine" not in said
    assert said.count(";") == 3


def test_vectors_that_are_compressed_or_compared_otherwise_are_a_difference() -> None:
    wanted = definition("i", DIMENSIONS, "words")
    assert differences(wanted, wanted) == []
    other = definition("i", DIMENSIONS, None)
    other["vectorSearch"] = {
        "algorithms": [{"name": "h", "kind": "hnsw", "hnswParameters": {"metric": "dotProduct"}}],
        "profiles": [{"name": "nearest", "algorithm": "h", "compression": "small"}],
    }
    found = " ".join(differences(other, wanted))
    for part in ("compressed", "dotProduct", "semantic configuration 'words'", "'text' has searchable = False"):
        assert part in found


async def test_two_processes_may_create_the_index_at_once(search_service: AzureSearch, open_search: Open) -> None:
    one, other = open_search(), open_search()
    assert (await one.stats()).rows == (await other.stats()).rows == 0
    search_service.faults.append(Fault(operation="list", late=0.0))
    await one.apply([PutRows(rows=[row("a")])])
    await other.apply([PutRows(rows=[row("b")])])
    assert (await one.stats()).rows == 2
    assert len(search_service.asked("create")) == 1


async def test_a_retag_sends_neither_vector_nor_text(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a", number) for number in range(1_200)])])
    search_service.requests.clear()
    await store.apply([Retag(document_id=document_id("a"), access=access("b/c.md", allowed=("g",)))])
    actions = [action for body in search_service.asked("index") for action in body["value"]]
    assert len(actions) == 1_200
    assert {action["@search.action"] for action in actions} == {"merge"}
    assert not {"vector", "text", "terms"} & {name for action in actions for name in action}
    assert actions[0]["prefixes"] == ["media_type:text/", "path:b/"]


async def test_a_row_that_went_before_its_retag_does_not_come_back(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a", 0), row("a", 1)])])
    del search_service.indexes["ragstore-chunks"].written[chunk("a", 1)]
    await store.apply([Retag(document_id=document_id("a"), access=access("b.md"))])
    assert len(search_service.indexes["ragstore-chunks"].written) == 1


async def test_a_filter_comes_before_the_search(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a")])])
    await store.search(_QUERY, filter=OneOf("path", frozenset({"a.md"})), limit=5)
    asked = search_service.asked("search")[-1]
    assert (asked["filter"], asked["vectorFilterMode"]) == ("path eq 'a.md'", "preFilter")


async def test_few_rows_are_compared_exactly_and_many_by_the_graph_which_may_lose_some(
    search_service: AzureSearch, open_search: Open
) -> None:
    search_service.loses_neighbours = True
    store = open_search(exact_below=30)
    put = [row(f"d{n}", columns=access(f"{n}", allowed=("few",) if n < 20 else ("many",))) for n in range(100)]
    await store.apply([PutRows(rows=put)])
    for group, limit, expected, exhaustive in (
        ("few", 20, 20, [True]),
        ("many", 10, 10, [False]),  # filled, so it is believed
        ("many", 80, 80, [False, True]),  # not filled, so all rows are compared after all
    ):
        search_service.requests.clear()
        found = await store.search(_QUERY, filter=AnyOf("allowed", frozenset({group})), limit=limit)
        assert len(found) == expected
        vectors = [query["exhaustive"] for body in search_service.asked("search") for query in body.get("vectorQueries", [])]
        assert vectors == exhaustive
    small = open_search(exact_below=1_000)
    await small.search(_QUERY, filter=ALWAYS, limit=5)
    search_service.requests.clear()
    await small.search(_QUERY, filter=AnyOf("allowed", frozenset({"many"})), limit=5)
    assert len(search_service.asked("search")) == 1  # of an index with few rows nothing is counted


async def test_every_row_is_read_page_by_page_whatever_happens_meanwhile(
    search_service: AzureSearch, open_search: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 7)
    monkeypatch.setattr(reading, "_VECTORS", 3)
    store = open_search()
    put = [row(f"d{n}") for n in range(50)]
    await store.apply([PutRows(rows=put)])
    await store.settle()
    assert [key.chunk_id for key in await listed(store.keys())] == sorted((one.chunk_id for one in put), key=ordinal)
    assert len(await listed(store.rows([one.document_id for one in put]))) == 50
    seen: list[str] = []
    async for key in store.keys():
        if not seen:
            await open_search().apply([DropDocument(document_id=one.document_id, generation=1) for one in put[::2]])
        seen.append(key.chunk_id)
    assert {one.chunk_id for one in put[1::2]} <= set(seen)
    assert len(set(seen)) == len(seen)
    assert all("skip" not in body for body in search_service.asked("search"))


async def test_more_rows_than_a_page_are_found(search_service: AzureSearch, open_search: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "PAGE", 10)
    store = open_search()
    await store.apply([PutRows(rows=[row(f"d{n}", text=f"apple {n}") for n in range(35)])])
    for query in (_QUERY, TextQuery(text="apple")):
        found = await store.search(query, filter=ALWAYS, limit=33)
        assert len({match.chunk_id for match in found}) == 33
        assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    with pytest.raises(ConfigError, match="10,000 rows at most"):
        await store.search(_QUERY, filter=ALWAYS, limit=10_001)


async def test_long_words_and_long_labels_are_found(search_service: AzureSearch, open_search: Open) -> None:
    word, label = "x" * 300, "t\x1fk\x1f" + "é" * 20_000
    columns = AccessColumns(account="acc", container="docs", path="p/" * 100, labels=(label, "short"), label_keys=("t\x1fk",))
    store = open_search()
    await store.apply([PutRows(rows=[row("a", text=f"a {word}", columns=columns), row("b", text=f"{'x' * 255} {'x' * 45}")])])
    assert [key.access for key in await listed(store.keys([document_id("a")]))] == [columns]
    conditions: list[Filter] = [AnyOf("labels", frozenset({label})), StartsWith("path", "p/" * 70)]
    for condition in conditions:
        assert [match.chunk_id for match in await store.search(_QUERY, filter=condition, limit=5)] == [chunk("a")]
    assert await store.search(_QUERY, filter=AnyOf("labels", frozenset({label[:-1]})), limit=5) == []
    assert query_terms(word)[0] == word
    assert [match.chunk_id for match in await store.search(TextQuery(text=word), filter=ALWAYS, limit=5)] == [chunk("a")]


async def test_the_semantic_ranker_reorders_what_the_words_found(search_service: AzureSearch, open_search: Open) -> None:
    store = open_search(semantic="words")
    put = [row(f"d{n:02}", text="key " * (60 - n) + f"number {n}") for n in range(60)]
    put.append(row("best", text="how to rotate a key? " + "so " * 200))
    put.append(row("none", text="how to rotate"))
    await store.apply([PutRows(rows=put)])
    found = await store.search(TextQuery(text="key?"), filter=ALWAYS, limit=61)
    assert len({match.chunk_id for match in found}) == 61
    assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    assert found[-1].score > 0
    asked = [body for body in search_service.asked("search") if body.get("queryType") == "semantic"]
    assert [(body["semanticQuery"], body["searchFields"], body["top"]) for body in asked] == [("key?", "terms", 50)]
    with pytest.raises(ConfigError, match="searchable"):
        await open_search().stats()


async def test_expunging_puts_a_copy_in_the_place_of_the_index(search_service: AzureSearch, open_search: Open) -> None:
    store, other = open_search(), open_search()
    await store.apply([PutRows(rows=[row(f"d{n}", columns=access(f"a/{n}", labels=("x" * 40_000,))) for n in range(30)])])
    before = {key.chunk_id: key for key in await listed(store.keys())}
    for name in ("ragstore-chunks-v2", "ragstore-chunks-v3"):
        assert (await other.stats()).rows == 30
        await store.expunge()
        assert list(search_service.indexes) == [name]
        assert {key.chunk_id: key for key in await listed(other.keys())} == before
    assert len(await other.search(_QUERY, filter=StartsWith("path", "a/"), limit=50)) == 30
    await store.drop()
    assert search_service.indexes == {}
    assert (await other.stats()).rows == 0


@pytest.mark.parametrize("fault", [Fault(operation="index", status=400), Fault(operation="delete", status=403)])
async def test_a_copy_that_was_left_behind_counts_for_nothing_and_is_made_anew(
    search_service: AzureSearch, open_search: Open, fault: Any
) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a"), row("b")])])
    search_service.faults.append(fault)
    with pytest.raises(ConfigError):
        await store.expunge()
    assert len(search_service.indexes) == 2
    await store.apply([DropDocument(document_id=document_id("b"), generation=1)])
    assert {key.chunk_id for key in await listed(open_search().keys())} == {chunk("a")}
    await store.expunge()
    assert [set(index.written) for index in search_service.indexes.values()] == [{chunk("a")}]


async def test_a_drop_that_stopped_half_way_leaves_no_copy_to_be_taken_for_the_collection(
    search_service: AzureSearch, open_search: Open
) -> None:
    store = open_search()
    await store.apply([PutRows(rows=[row("a"), row("b")])])
    search_service.faults.append(Fault(operation="index", status=400))
    with pytest.raises(ConfigError):
        await store.expunge()
    search_service.faults += [Fault(operation="delete"), Fault(operation="delete", status=403)]
    with pytest.raises(ConfigError):
        await store.drop()
    assert (await open_search().stats()).rows == 2
    await store.drop()
    assert search_service.indexes == {}


async def test_a_copy_that_does_not_show_all_its_rows_takes_no_place(
    search_service: AzureSearch, open_search: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expunging, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(expunging, "_POLL_SECONDS", 0.05)
    store = open_search(settle=0.0)
    await store.apply([PutRows(rows=[row("a")])])
    search_service.delay = 30.0
    with pytest.raises(TransientError, match="still in force"):
        await store.expunge()
    assert (await store.stats()).rows == 1
