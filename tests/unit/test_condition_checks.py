"""What is pointed out in conditions that parse, how decisions are explained, and how cases of a policy's author are run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ragstore.access.conditions.cases import load_case, run_cases
from ragstore.access.conditions.checks import lint
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.tracing import deciding, trace
from ragstore.access.conditions.tree import CONTAINER, PATH, TAGS, Context
from ragstore.errors import ConfigError

TAG = f"@Resource[{TAGS}:Project<$key_case_sensitive$>]"
READ = f"ActionMatches{{'{PATH.partition(':')[0]}/read'}}"
GUARD = f"!({READ} AND NOT SubOperationMatches{{'Blob.List'}})"
CASE: dict[str, Any] = {
    "id": "mine",
    "condition": f"{TAG} StringEquals 'Red'",
    "resource": {"tags": {"Project": "Red"}},
    "decision": "allow",
}

CLEAN = [
    f"{GUARD} OR {TAG} StringEquals 'Red'",
    f"!({READ}) OR @Resource[{PATH}] StringLike 'docs/*'",
    f"Exists {TAG} AND {TAG} StringNotEquals 'Red'",
    f"NOT Exists {TAG} OR {TAG} StringNotEquals 'Red'",
    f"NOT ({TAG} StringNotEquals 'Red')",
    f"@Resource[{CONTAINER}] StringNotEquals 'secret'",
    f"NOT (@Resource[{PATH}] StringStartsWith 'secret/')",
    f"{TAG} ForAllOfAllValues:StringNotEquals {{'a', 'b'}} AND Exists {TAG}",
    f"@Resource[{TAGS}&$keys$&] ForAnyOfAnyValues:StringEquals {{'a'}}",
    "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Set_Name] ForAnyOfAnyValues:StringEquals {'a'}",
    "@Environment[UtcNow] DateTimeGreaterThan '2024-05-01T12:00:00Z'",
]
NOTICED = [
    (f"{TAG} StringNotEquals 'Red'", "StringNotEquals does not grant where", "NOT Exists"),
    (f"NOT ({TAG} StringEquals 'Red')", "NOT does not grant where", "NOT Exists"),
    (f"NOT Exists @Resource[{TAGS}:project<$key_case_sensitive$>] OR {TAG} StringNotEquals 'Red'", "StringNotEquals does not", "Exists"),
    (f"Exists {TAG} AND {TAG} ForAnyOfAnyValues:StringNotEquals {{'a', 'b'}}", "true of every value", "ForAllOfAllValues:StringNotEquals"),
    (f"{TAG} ForAnyOfAnyValues:StringStartsWith {{'a'}}", "not documented with a quantifier", "ForAnyOfAnyValues:StringLike"),
    ("SubOperationMatches{'Blob.Read.WithTagConditions'}", "deprecated", "NOT SubOperationMatches{'Blob.List'}"),
    ("@Request[subOperation] ForAnyOfAnyValues:StringEquals {'x'}", "preview of 2021", "SubOperationMatches"),
    ("SubOperationMatches{'Blob.Lst'}", "no sub-operation", "Blob.List"),
    ("ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/reed'}", "what it guards is open", "blobs/read'?"),
    (f"@Resource[{PATH[:-1]}] StringEquals 'x'", "is unknown", f"did you mean @Resource[{PATH}]?"),
    (f"@Request[{CONTAINER}] StringEquals 'x'", "no attribute of this source", f"@Resource[{CONTAINER}]"),
    (f"@Resource[{CONTAINER.partition(':')[0]}/metadata:k] StringEquals 'x'", "does not evaluate container metadata", "index tag"),
    (f"@Resource[{TAGS.replace('/tags', '/metadata')}:k] StringEquals 'x'", "blob metadata", "index tag"),
    (f"@Resource[{TAGS}:k] StringEquals 'x'", "ending of a tag's key", "k<$key_case_sensitive$>]"),
    ("@Environment[isPrivateLink] BoolEquals true", "a retrieval has none", "host application"),
    ("@Environment[UtcNow] DateTimeEquals '2024-05-01T12:00:00Z'", "documented with DateTimeGreaterThan", "one of these"),
    ("@Environment[UtcNow] DateTimeLessThan '2024-05-01'", "no instant", "(instant"),
    (f"{TAG} StringEquals 5", "5 is no text", "(text)"),
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_meant_is_not_pointed_out(text: str) -> None:
    assert lint(parse(text), text) == []


@pytest.mark.parametrize(("text", "problem", "remedy"), NOTICED)
def test_what_is_probably_not_meant_is_pointed_out_once_with_a_remedy(text: str, problem: str, remedy: str) -> None:
    (finding,) = lint(parse(text), text)
    assert problem in finding.problem
    assert remedy in finding.remedy


def test_a_finding_knows_its_place_only_where_the_text_is_given() -> None:
    text = f"{GUARD} OR {TAG} StringNotEquals 'Red'"
    (placed,), (unplaced,) = lint(parse(text), text), lint(parse(text))
    assert placed.at == text.index(f"{TAGS}:Project")
    assert unplaced.at is None


def test_the_same_thing_is_pointed_out_once() -> None:
    text = f"{TAG} StringNotEquals 'a' AND {TAG} StringNotEquals 'b'"
    assert len(lint(parse(text), text)) == 1


def test_a_trace_shows_each_clause_with_its_truth_and_what_it_saw() -> None:
    found = trace(parse(f"{GUARD} OR {TAG} StringEquals 'Red'"), Context(tags={"Project": "Blue"}))
    assert json.loads(json.dumps(found.as_dict()))["joined"] == "OR"
    assert found.truth is False
    assert found.parts[1].truth is False
    assert [(seen.name, seen.value) for seen in found.parts[1].seen] == [(TAG, "Blue")]


@pytest.mark.parametrize(
    ("text", "resource", "why"),
    [
        ("@Resource[x] StringEquals 'a'", {}, "@Resource[x] is missing"),
        ("@Resource[x] StringEquals 'a'", {"x": ()}, "@Resource[x] holds no value"),
        ("@Resource[x] StringEquals 'a'", {"x": ("a", "b")}, "holds 2 values"),
        ("@Resource[x] NumericEquals 5", {"x": "ten"}, "holds 'ten', which is no whole number"),
        ("@Resource[x] StringEquals 'a'", {"x": "b"}, ""),
    ],
)
def test_a_trace_says_why_a_comparison_is_unknown(text: str, resource: dict[str, Any], why: str) -> None:
    found = trace(parse(text), Context(resource=resource))
    assert why in found.why
    assert bool(found.why) is (found.truth is None)


def test_what_decides_is_what_agrees_with_the_outcome() -> None:
    condition = parse("@Resource[x] StringEquals 'a' AND (@Resource[y] StringEquals 'b' OR @Resource[z] StringEquals 'c')")
    denied = trace(condition, Context(resource={"x": "a", "y": "q"}))
    assert [clause.text for clause in deciding(denied)] == ["@Resource[z] StringEquals 'c'"]
    granted = trace(condition, Context(resource={"x": "a", "z": "c"}))
    assert [clause.text for clause in deciding(granted)] == ["@Resource[x] StringEquals 'a'", "@Resource[z] StringEquals 'c'"]


def test_a_case_that_holds_is_no_failure() -> None:
    assert run_cases([CASE, {**CASE, "kleene": "true"}]) == []


def test_a_case_that_fails_says_what_was_expected_what_came_and_why() -> None:
    (failure,) = run_cases([{**CASE, "resource": {"tags": {"Project": "Blue"}}}])
    assert (failure.id, failure.expected, failure.got) == ("mine", "allow", "deny")
    assert "'Blue'" in failure.reason


def test_unknown_and_false_are_told_apart_where_that_is_asked() -> None:
    (failure,) = run_cases([{**CASE, "resource": {}, "kleene": "false", "decision": "deny"}])
    assert (failure.expected, failure.got) == ("false, deny", "unknown, deny")
    assert "is missing" in failure.reason


def test_a_condition_that_does_not_parse_fails_its_case_even_if_nothing_should_be_granted() -> None:
    (failure,) = run_cases([{**CASE, "condition": "x", "decision": "deny"}])
    assert failure.got == "error"
    assert "does not parse" in failure.reason


def test_lists_become_tuples_and_null_is_missing() -> None:
    case = load_case({**CASE, "principal": {"p": ["a", 1], "q": None}, "suboperations": [], "condition_id": "x", "note": 1})
    assert case.context.principal == {"p": ("a", 1)}
    assert case.context.suboperations == frozenset()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"condition": None}, "has no condition"),
        ({"decision": None}, "expects nothing"),
        ({"decision": "yes"}, "write one of allow, deny"),
        ({"kleene": True}, "write one of true, false, unknown"),
        ({"kleene": "unknown"}, "cannot pass"),
        ({"action": 1}, "'action' is no text"),
        ({"suboperations": "Blob.List"}, "no list of texts"),
        ({"principal": []}, "no object"),
        ({"resource": {"tags": {"a": 1}}}, "no object of texts"),
        ({"resource": {"x": 1.5}}, "is a float"),
        ({"resource": {"x": [["a"]]}}, "is a list"),
        ({"enviroment": {}}, "did you mean 'environment'"),
    ],
)
def test_an_ill_formed_case_is_an_error_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="case mine") as refused:
        run_cases([{**CASE, **changes}])
    assert message in str(refused.value)


def test_what_is_no_object_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match="case 2 is a str"):
        run_cases([CASE, "x"])
