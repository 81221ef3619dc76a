from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.access.azure.assignments import Assignments, parse_assignments
from ragstore.errors import ConfigError

READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
ALICE = "0A1B2C3D-0000-4000-8000-00000000000F"
SCOPE = "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Storage/storageAccounts/acc"
PATH = "@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'a/'"


def entry(**changes: object) -> dict[str, object]:
    """As `az role assignment list` writes it; a change to `...` takes the key away."""
    guid = "99999999-2222-4333-8444-555555555555"
    fields: dict[str, object] = {
        "canDelegate": None,
        "condition": None,
        "conditionVersion": None,
        "description": None,
        "id": f"{SCOPE}/providers/Microsoft.Authorization/roleAssignments/{guid}",
        "name": guid,
        "principalId": ALICE,
        "principalName": "alice@example.org",
        "principalType": "User",
        "roleDefinitionId": f"/subscriptions/s1/providers/Microsoft.Authorization/roleDefinitions/{READER.upper()}",
        "roleDefinitionName": "Storage Blob Data Reader",
        "scope": SCOPE,
        "type": "Microsoft.Authorization/roleAssignments",
        **changes,
    }
    return {key: value for key, value in fields.items() if value is not ...}


def parsed(document: object) -> Assignments:
    return parse_assignments(json.dumps(document).encode(), file=Path("assignments.json"))


def test_an_assignment_of_the_command_line_is_read() -> None:
    found = parsed([entry(condition=PATH, conditionVersion="2.0")])
    assert found.problems == ()
    (one,) = found.assignments
    assert (one.principal, one.role, one.scope.level, one.text) == (ALICE.lower(), READER, "account", PATH)
    assert one.condition is not None
    assert one.name == "entry 1 (99999999-2222-4333-8444-555555555555)"


def test_an_assignment_of_the_rest_api_is_the_same() -> None:
    plain = entry(condition=PATH, conditionVersion="2.0", roleDefinitionName=...)
    top = {key: plain[key] for key in ("id", "name", "type")}
    nested = {**top, "properties": {key: value for key, value in plain.items() if key not in top}}
    assert parsed({"value": [nested]}).assignments == parsed([plain]).assignments


def test_without_a_condition_there_is_none() -> None:
    for bare in (entry(), entry(condition=..., conditionVersion=..., canDelegate=...), entry(conditionVersion="2.0")):
        found = parsed([bare])
        assert found.problems == ()
        assert found.assignments[0].condition is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"condition": "", "conditionVersion": "2.0"}, "empty condition"),
        ({"condition": " \n", "conditionVersion": "2.0"}, "empty condition"),
        ({"condition": ["a"], "conditionVersion": "2.0"}, "empty condition"),
        ({"condition": False, "conditionVersion": "2.0"}, "empty condition"),
        ({"condition": PATH}, "conditionVersion none"),
        ({"condition": PATH, "conditionVersion": "1.0"}, "conditionVersion '1.0'"),
        ({"condition": PATH, "conditionVersion": 2.0}, "conditionVersion none"),
        ({"condition": f"{PATH} AND", "conditionVersion": "2.0"}, "does not parse"),
        ({"condition": "(" * 200 + PATH + ")" * 200, "conditionVersion": "2.0"}, "does not parse"),
        ({"condition": ..., "Condition": PATH}, "write 'condition'"),
        ({"condition": ..., "conditon": PATH}, "write 'condition'"),
        ({"properties": {"condition": PATH, "conditionVersion": "2.0"}}, "two values"),
        ({"properties": [PATH]}, "properties"),
        ({"principalId": ...}, "no principalId"),
        ({"principalId": ""}, "no principalId"),
        ({"principalId": "a b"}, "no principalId"),
        ({"roleDefinitionId": ...}, "no roleDefinitionId"),
        ({"roleDefinitionId": "Storage Blob Data Reader"}, "no roleDefinitionId"),
        ({"roleDefinitionId": f"x{READER}"}, "no roleDefinitionId"),
        ({"roleDefinitionId": f"/roleDefinitions/{READER}/x"}, "no roleDefinitionId"),
        ({"scope": ...}, "no scope"),
        ({"scope": ""}, "no scope"),
        ({"scope": "everywhere"}, "no scope"),
    ],
)
def test_an_assignment_that_cannot_be_understood_is_left_out_and_reported_and_the_others_count(
    changes: dict[str, object], message: str
) -> None:
    found = parsed([entry(**changes), entry()])
    assert len(found.assignments) == 1
    assert found.assignments[0].name.startswith("entry 2")
    (problem,) = found.problems
    assert message in problem
    assert "'assignments.json', entry 1 (99999999-2222-4333-8444-555555555555)" in problem
    assert "grants nothing" in problem


def test_an_entry_that_is_no_object_is_reported() -> None:
    assert len(parsed([None, 7, "x", []]).problems) == 4


def test_a_condition_that_is_there_many_times_is_parsed_once() -> None:
    first, second = parsed([entry(condition=PATH, conditionVersion="2.0")] * 2).assignments
    assert first.condition is second.condition


def test_an_export_that_cannot_have_conditions_is_reported() -> None:
    old = entry(condition=..., conditionVersion=...)
    assert "update it" in parsed([old]).problems[0]
    assert parsed([]).problems == ()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"{}", "must hold a list"),
        (b'[{"condition": "a", "condition": null}]', "twice in one object"),
        (b'[{"RoleAssignmentId": "/x", "ObjectId": "y", "Scope": "/"}]', "PowerShell.*az role assignment list"),
        (b'{"value": [], "nextLink": "https://example.org/2"}', "one page of several"),
    ],
)
def test_a_file_that_is_no_export_is_an_error_that_says_how_to_make_one(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_assignments(data, file=Path("assignments.json"))


def test_the_digest_changes_with_every_byte() -> None:
    assert parsed([entry()]).digest == parsed([entry()]).digest
    assert parsed([entry()]).digest != parsed([entry(), entry()]).digest
