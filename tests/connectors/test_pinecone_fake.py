"""The fake of Pinecone itself: it refuses what the service refuses, evaluates filters as documented, and sees a broken contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import pinecone_filter
from tests.fakes.pinecone_contract import Contract
from tests.fakes.pinecone_errors import Refused
from tests.fakes.pinecone_index import FakeIndex, check_metadata

RECORD = {"genre": ["drama", "comedy"], "year": 2019.0, "title": "x", "seen": True}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"genre": {"$in": ["comedy"]}}, True),
        ({"genre": {"$eq": "drama"}}, True),
        ({"genre": "horror"}, False),
        ({"genre": {"$nin": ["drama"]}}, False),
        ({"genre": {"$ne": "horror"}}, True),
        ({"missing": {"$in": ["x"]}}, False),
        ({"missing": {"$ne": "x"}}, False),
        ({"missing": {"$exists": False}}, True),
        ({"year": {"$gte": 2019, "$lt": 2020}}, True),
        ({"year": "2019"}, False),
        ({"year": True}, False),
        ({"seen": 1}, False),
        ({"title": "x", "year": 2019}, True),
        ({"$or": [{"title": "y"}, {"$and": [{"title": "x"}, {"year": {"$gt": 2000}}]}]}, True),
    ],
)
def test_a_filter_means_what_the_vendor_says(expression: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a parameter of the test
    pinecone_filter.check(expression)
    assert pinecone_filter.matches(expression, RECORD) == expected


@pytest.mark.parametrize(
    "expression",
    [
        {},
        {"$and": []},
        {"$not": [{"a": 1}]},
        {"a": {"$in": []}},
        {"a": {"$in": "x"}},
        {"a": {"$in": [None]}},
        {"a": {"$in": ["x"] * 10_001}},
        {"a": None},
        {"a": {}},
        {"a": {"$like": "x"}},
        {"a": {"$gt": "x"}},
    ],
)
def test_what_is_no_filter_is_refused(expression: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        pinecone_filter.check(expression)


@pytest.mark.parametrize("metadata", [{"a": None}, {"$a": 1}, {"a": {"b": 1}}, {"a": [1]}, {"a": []}, {"a": "x" * 41_000}])
def test_metadata_that_pinecone_does_not_hold_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        check_metadata(metadata)


def test_requests_beyond_the_limits_are_refused() -> None:
    index = FakeIndex("x", 2)
    one = {"id": "a", "values": [1.0, 0.0]}
    refused: list[Any] = [
        lambda: index.upsert({"vectors": [one] * 1_001}),
        lambda: index.upsert({"vectors": [{**one, "id": "é"}]}),
        lambda: index.upsert({"vectors": [{**one, "id": "x" * 513}]}),
        lambda: index.upsert({"vectors": [{**one, "values": [0.0, 0.0]}]}),
        lambda: index.upsert({"vectors": [{**one, "values": [1.0]}]}),
        lambda: index.query({"topK": 10_001, "vector": [1.0, 0.0]}),
        lambda: index.delete({"ids": ["a"]}),
        lambda: index.delete({}),
        lambda: index.listed(prefix="", limit=101, token=None, namespace=""),
        lambda: index.stats({"filter": {"a": 1}}),
    ]
    for request in refused:
        with pytest.raises(Refused):
            request()


def test_a_write_can_be_read_when_its_time_has_come() -> None:
    index = FakeIndex("x", 2)
    index.upsert({"vectors": [{"id": "a", "values": [1.0, 0.0]}]})
    assert (list(index.records("")), index.indexed("")) == (["a"], 1)
    index.delay = 60.0
    index.update({"id": "a", "setMetadata": {"k": "v"}})
    index.delete({"ids": ["a"]})
    assert (list(index.records("")), index.indexed(""), index.lsn) == (["a"], 1, 3)
    index.delay = 0.0
    assert (list(index.records("")), index.indexed("")) == ([], 3)


def test_a_request_or_answer_that_breaks_the_contract_is_seen(shared: Path) -> None:
    contract = Contract(shared / "specs" / "pinecone")
    contract.request("/query", {}, {"topK": 3, "vector": [0.1], "namespace": "n", "includeMetadata": True})
    contract.request("/vectors/list", {"prefix": ["a"], "limit": ["3"]}, {})
    contract.answer("/query", {"matches": [{"id": "a", "score": 0.5, "values": []}], "namespace": "n", "usage": {"readUnits": 1}})
    assert contract.problems == []
    broken: list[tuple[str, dict[str, Any]]] = [
        ("/query", {"vector": [0.1]}),
        ("/query", {"topK": "3"}),
        ("/query", {"topK": 20_000}),
        ("/query", {"topK": 1, "vektor": []}),
        ("/vectors/upsert", {"vectors": [{"values": [1.0]}]}),
        ("/vectors/upsert", {"vectors": []}),
        ("/indexes", {"name": "x", "dimension": 8}),
    ]
    for path, body in broken:
        contract.problems.clear()
        contract.request(path, {}, body)
        assert contract.problems, (path, body)
    contract.problems.clear()
    contract.request("/vectors/list", {"prefixes": ["a"]}, {})
    contract.answer("/query", {"hits": []})
    contract.answer("/indexes/x", {"name": "x"})
    assert len(contract.problems) >= 5
