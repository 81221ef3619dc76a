"""The fake of Azure AI Search is as strict as the service is documented to be; what it lets pass in these tests would pass there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.search.documents.aio import SearchClient
from azure.search.documents.models import VectorizedQuery

from ragstore_azure.search.schema import definition
from tests.fakes.azure_search import AzureSearch
from tests.fakes.azure_search_contract import Contract, contract
from tests.fakes.azure_search_index import Index, RefusedError

_INDEX = "fake"


@pytest.fixture
async def client(search_service: AzureSearch) -> AsyncIterator[SearchClient]:
    """The vendor's own client, with nothing of ours around it."""
    search_service.indexes[_INDEX] = Index(definition(_INDEX, 2, "words"))
    async with SearchClient(search_service.url, _INDEX, AzureKeyCredential(search_service.key), retry_total=0) as client:
        yield client


def _document(key: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "terms": key, "vector": [1.0, 0.5], "path": key, **fields}


async def _keys(client: SearchClient, **query: Any) -> list[str]:
    return [found["key"] async for found in await client.search(select=["key"], **query)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"key": "a b"}, "Invalid document key"),
        ({"key": "_a"}, "Invalid document key"),
        ({"nothing": "x"}, "does not exist"),
        ({"vector": [1.0]}, "needs 2 numbers"),
        ({"allowed": None}, "cannot be null"),
        ({"allowed": "x"}, "is a collection"),
        ({"generation": "1"}, "is no Edm.Int64"),
        ({"generation": 2**63}, "is no Edm.Int64"),
        ({"path": 1}, "is no Edm.String"),
        ({"path": "é" * 16_384}, "32766 bytes"),
    ],
)
async def test_a_document_that_does_not_fit_is_refused_alone(client: SearchClient, fields: dict[str, Any], said: str) -> None:
    good, bad = await client.upload_documents([_document("good"), {**_document("bad"), **fields}])
    assert (good.succeeded, bad.succeeded, bad.status_code) == (True, False, 400)
    assert said in str(bad.error_message)


async def test_actions_do_what_their_names_say(client: SearchClient, search_service: AzureSearch) -> None:
    await client.upload_documents([_document("a", text="x", allowed=["g"])])
    (merged,) = await client.merge_documents([{"key": "a", "path": "new"}])
    (missing,) = await client.merge_documents([{"key": "b", "path": "new"}])
    (made,) = await client.merge_or_upload_documents([{"key": "c", "path": "c"}])
    assert [one.status_code for one in (merged, missing, made)] == [200, 404, 201]
    stored = search_service.indexes[_INDEX].written
    assert (stored["a"]["path"], stored["a"]["text"], stored["a"]["allowed"]) == ("new", "x", ["g"])
    await client.upload_documents([{"key": "a"}])
    assert (stored["a"]["path"], stored["a"]["allowed"]) == (None, [])
    assert [one.status_code for one in await client.delete_documents([{"key": "a"}, {"key": "never"}])] == [200, 200]
    assert await client.get_document_count() == 1


@pytest.mark.parametrize(
    "query",
    [
        {"top": 1_001},
        {"skip": 100_001},
        {"order_by": ["path asc"]},
        {"filter": "text eq 'x'"},
        {"search_text": "a", "search_fields": ["path"]},
        {"search_text": "a", "query_type": "semantic", "semantic_configuration_name": "other"},
        {"vector_queries": [VectorizedQuery(vector=[1.0], fields="vector", k_nearest_neighbors=1)]},
        {"vector_queries": [VectorizedQuery(vector=[1.0, 1.0], fields="path", k_nearest_neighbors=1)]},
        {"vector_queries": [VectorizedQuery(vector=[1.0, 1.0], fields="vector", k_nearest_neighbors=0)]},
    ],
)
async def test_a_query_beyond_the_limits_is_refused(client: SearchClient, query: dict[str, Any]) -> None:
    with pytest.raises(HttpResponseError) as raised:
        await _keys(client, **query)
    assert raised.value.status_code == 400


async def test_a_field_that_is_not_retrievable_is_not_given(client: SearchClient) -> None:
    with pytest.raises(HttpResponseError, match="not a retrievable field"):
        _ = [one async for one in await client.search(select=["terms"])]


async def test_without_a_word_about_it_a_filter_comes_after_the_vectors(client: SearchClient) -> None:
    """As on an index that is old enough: whoever forgets `vectorFilterMode` gets too few rows here too."""
    await client.upload_documents([_document("a", vector=[1.0, 0.0]), _document("b", vector=[0.0, 1.0])])
    query = {"vector_queries": [VectorizedQuery(vector=[1.0, 0.0], fields="vector", k_nearest_neighbors=1)], "filter": "path eq 'b'"}
    assert await _keys(client, **query) == []
    assert await _keys(client, **query, vector_filter_mode="preFilter") == ["b"]


async def test_text_and_vector_together_are_fused_by_rank(client: SearchClient) -> None:
    await client.upload_documents([_document(key, vector=[1.0, number / 10]) for number, key in enumerate("abc")])
    vector = VectorizedQuery(vector=[1.0, 0.0], fields="vector", k_nearest_neighbors=2)
    found = [one async for one in await client.search("c", search_fields=["terms"], vector_queries=[vector], select=["key"])]
    assert {one["key"]: one["@search.score"] for one in found} == {"a": 1 / 61, "b": 1 / 62, "c": 1 / 61}


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ("apple pie", "any", "abd"),
        ("apple pie", "all", "a"),
        ("+apple +pie", "any", "a"),
        ("apple -pie", "any", "d"),
        ('"apple pie"', "any", "a"),
        ('"pie apple"', "any", ""),
        ("ap*", "any", "ad"),
        ("Apple", "any", ""),
        ("app\\*", "any", ""),
        ("*", "any", "abcd"),
    ],
)
async def test_the_simple_syntax_is_understood(client: SearchClient, text: str, mode: str, found: str) -> None:
    words = {"a": "apple pie", "b": "pie", "c": "cherry", "d": "apple"}
    await client.upload_documents([_document(key, terms=terms) for key, terms in words.items()])
    assert "".join(sorted(await _keys(client, search_text=text, search_mode=mode, search_fields=["terms"]))) == found


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"name": "x", "type": "Edm.Text"}, "not known"),
        ({"name": "x", "type": "Edm.Int64", "searchable": True}, "not searchable"),
        ({"name": "x", "type": "Collection(Edm.String)", "sortable": True}, "not sortable"),
        ({"name": "x", "type": "Collection(Edm.Single)", "searchable": True, "dimensions": 8}, "needs a profile"),
        ({"name": "x", "type": "Collection(Edm.Single)", "searchable": True, "filterable": True}, "is a vector"),
        ({"name": "x", "type": "Edm.String", "analyzer": "whitespace"}, "has an analyzer"),
        ({"name": "x", "type": "Edm.String", "key": True, "retrievable": True}, "one field is the key"),
    ],
)
def test_an_index_that_cannot_be_is_refused(field: dict[str, Any], said: str) -> None:
    made = definition(_INDEX, 2, None)
    with pytest.raises(RefusedError, match=said):
        Index({**made, "fields": [*made["fields"], field]})
    for name in ("Upper", "a--b", "-a", "a-", "a_b", "x" * 129):
        with pytest.raises(RefusedError, match="Index name"):
            Index({**made, "name": name})


@pytest.mark.parametrize("spec", [None, "shared"])
def test_what_the_api_does_not_know_is_a_problem(spec: str | None, request: pytest.FixtureRequest) -> None:
    checked = Contract(None)
    if spec is not None:
        request.getfixturevalue("shared")
        checked = contract()
    assert checked.problems("SearchRequest", {"search": "x", "top": 1, "filter": None}) == []
    assert checked.problems("SearchRequest", {"serach": "x"}) == ["serach is unknown"]
    if spec is not None:
        assert checked.problems("SearchRequest", {"top": "1"}) == ["top is '1'"]
        assert checked.problems("SearchRequest", {"vectorQueries": [{"kind": "vector", "vector": [1.0], "fitler": "x"}]}) == [
            "vectorQueries[0].fitler is unknown"
        ]
        assert checked.problems("IndexDocumentsBatch", {"value": [{"@search.acton": "merge", "path": "x"}]}) == [
            "value[0].@search.acton is unknown"
        ]
        assert checked.problems("SearchIndex", {"fields": []}) == ["name is missing"]


async def test_a_request_that_is_no_text_or_of_another_version_is_refused(search_service: AzureSearch) -> None:
    headers = {"api-key": search_service.key}
    for target, raw, status in (
        ("/indexes?api-version=2025-09-01", b"{}", 400),
        ("/nothing?api-version=2026-04-01", b"{}", 404),
        ("/indexes?api-version=2026-04-01", json.dumps({"name": "\ud800", "fields": []}).encode(), 400),
        ("/indexes?api-version=2026-04-01", b"x" * 16_000_001, 413),
    ):
        assert search_service.answer("POST", target, headers, raw)[0] == status
    assert search_service.answer("GET", "/indexes?api-version=2026-04-01", {}, b"")[0] == 403
