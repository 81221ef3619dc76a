from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.access.azure.absence import ALL_SOURCES, uncertain
from ragstore.access.azure.deny import EVERYONE, DenyAssignment, DenyAssignments, parse_deny_assignments
from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.syntax import parse
from ragstore.access.conditions.tree import Context
from ragstore.errors import ConfigError

BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
SCOPE = "/subscriptions/s1/resourceGroups/rg1"
PATH = f"@Resource[{BLOBS}:path] StringStartsWith 'a/'"
ALICE = frozenset({"alice", "staff"})


def entry(**changes: object) -> dict[str, object]:
    """As ARM's REST API writes it; a change to `...` takes the key away."""
    properties: dict[str, object] = {
        "denyAssignmentName": "Managed application",
        "permissions": [{"actions": ["*"], "notActions": ["*/read"], "dataActions": ["*"], "notDataActions": []}],
        "scope": SCOPE,
        "doNotApplyToChildScopes": False,
        "principals": [{"id": EVERYONE, "type": "SystemDefined"}],
        "excludePrincipals": [],
        "isSystemProtected": True,
        **changes,
    }
    return {
        "id": f"{SCOPE}/providers/Microsoft.Authorization/denyAssignments/99999999-2222-4333-8444-555555555555",
        "type": "Microsoft.Authorization/denyAssignments",
        "properties": {key: value for key, value in properties.items() if value is not ...},
    }


def parsed(*entries: object) -> DenyAssignments:
    return parse_deny_assignments(json.dumps({"value": list(entries)}).encode(), file=Path("deny.json"))


def one(**changes: object) -> DenyAssignment:
    found = parsed(entry(**changes))
    assert found.problems == ()
    (assignment,) = found.assignments
    return assignment


def test_everyone_is_denied_but_who_is_excluded_even_as_a_group() -> None:
    assert one().concerns(ALICE)
    assert not one(excludePrincipals=[{"id": "alice", "type": "User"}]).concerns(ALICE)
    assert not one(excludePrincipals=[{"id": "staff", "type": "Group"}]).concerns(ALICE)
    assert one(excludePrincipals=[{"id": "bob", "type": "User"}]).concerns(ALICE)


def test_a_principal_is_denied_as_itself_or_as_a_group_and_nobody_else_is() -> None:
    assert one(principals=[{"id": "bob"}, {"id": "alice"}]).concerns(ALICE)
    assert one(principals=[{"id": "staff"}]).concerns(ALICE)
    assert not one(principals=[{"id": "bob"}]).concerns(ALICE)
    assert not one(principals=[{"id": "alice"}], excludePrincipals=[{"id": "staff"}]).concerns(ALICE)


def test_ids_are_compared_without_the_case_of_a_guid() -> None:
    guid = "0a1b2c3d-0000-4000-8000-00000000000f"
    assert one(principals=[{"id": guid.upper()}]).concerns(frozenset({guid}))


@pytest.mark.parametrize(
    ("permission", "reads", "superuser"),
    [
        ({"dataActions": [f"{BLOBS}/read"]}, True, False),
        ({"dataActions": [f"{BLOBS}/RUNASSUPERUSER/action"]}, False, True),
        ({"dataActions": ["*"], "notDataActions": ["*/read"]}, False, True),
        ({"actions": ["*"], "dataActions": [f"{BLOBS}/*"]}, True, True),
    ],
)
def test_data_actions_are_denied_with_wildcards(permission: dict[str, object], *, reads: bool, superuser: bool) -> None:
    assignment = one(permissions=[permission])
    assert (assignment.reads, assignment.superuser) == (reads, superuser)


@pytest.mark.parametrize("permission", [{"actions": ["*"]}, {"actions": ["*"], "dataActions": [f"{BLOBS}/write"]}, {"dataActions": None}])
def test_what_is_not_about_reading_denies_nothing_here_and_still_tells_its_scope(permission: dict[str, object]) -> None:
    found = parsed(entry(permissions=[permission]))
    assert found.assignments == ()
    assert len(found.scopes) == 1


def test_what_one_permission_spares_another_may_deny() -> None:
    permissions = [{"dataActions": ["*"], "notDataActions": ["*/read"]}, {"dataActions": [f"{BLOBS}/read"]}]
    assert one(permissions=permissions).reads


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"permissions": ...}, "no list of permissions"),
        ({"permissions": []}, "no list of permissions"),
        ({"permissions": [{"dataActions": "x"}]}, "no list of texts"),
        ({"permissions": [{"dataAction": ["x"]}]}, "'dataActions'"),
        ({"principals": ...}, "no list of principals"),
        ({"principals": []}, "no list of principals"),
        ({"principals": ["bob"]}, "without an id"),
        ({"principals": [{"id": "bob"}, {"type": "User"}]}, "without an id"),
        ({"excludedPrincipals": [{"id": "alice"}]}, "'excludePrincipals'"),
    ],
)
def test_an_entry_that_cannot_be_understood_denies_everyone_in_its_scope(changes: dict[str, object], message: str) -> None:
    found = parsed(entry(**changes))
    (assignment,) = found.assignments
    assert assignment.principals is None
    assert assignment.reads
    assert assignment.concerns(ALICE)
    assert assignment.scope is not None
    assert assignment.scope.text == SCOPE
    assert message in found.problems[0]
    assert "denies everyone" in found.problems[0]


@pytest.mark.parametrize("broken", [None, 7, {}, {"properties": 3}, entry(scope=...), entry(scope="x"), entry(scope=["/"])])
def test_an_entry_without_a_scope_denies_everywhere(broken: object) -> None:
    found = parsed(broken)
    (assignment,) = found.assignments
    assert assignment.scope is None
    assert assignment.reads
    assert found.problems


@pytest.mark.parametrize("excluded", [[{"id": EVERYONE}], [{"type": "ServicePrincipal"}], "alice", [7], {}])
def test_an_exclusion_that_cannot_be_understood_excludes_nobody(excluded: object) -> None:
    found = parsed(entry(excludePrincipals=excluded))
    assert found.assignments[0].concerns(ALICE)
    assert "excludes nobody" in found.problems[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"condition": "x AND", "conditionVersion": "2.0"}, "does not parse"),
        ({"condition": PATH, "conditionVersion": "1.0"}, "conditionVersion"),
        ({"condition": "", "conditionVersion": "2.0"}, "empty condition"),
        ({"permissions": [{"dataActions": ["*"], "condition": PATH, "conditionVersion": "2.0"}]}, "condition of its own"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_leaves_nothing_out_of_the_denial(changes: dict[str, object], message: str) -> None:
    found = parsed(entry(**changes))
    assert found.assignments[0].condition is None
    assert message in found.problems[0]


def test_a_condition_is_kept() -> None:
    assert one(condition=PATH, conditionVersion="2.0").condition == parse(PATH)


def test_what_may_only_be_unknown_here_does_not_lift_a_denial() -> None:
    principal = "Exists @Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Team_Risk]"
    container = "Exists @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/metadata:Team]"
    for text in (principal, f"NOT {principal}", f"{PATH} AND {principal}", f"({PATH}) OR NOT ({principal})", container):
        resource = {f"{BLOBS}:path": "a/b"}
        assert evaluate(uncertain(parse(text), sources=ALL_SOURCES), Context(resource=resource)) is not False
    tag = parse(f"Exists @Resource[{BLOBS}/tags:Secret<$key_case_sensitive$>]")
    assert evaluate(uncertain(tag, sources=ALL_SOURCES), Context()) is False


@pytest.mark.parametrize("flag", [None, "true", 1, False])
def test_only_a_plain_true_keeps_a_denial_from_child_scopes(flag: object) -> None:
    assert not one(doNotApplyToChildScopes=flag).only_itself
    assert one(doNotApplyToChildScopes=True).only_itself


def test_flat_objects_are_read_the_same() -> None:
    nested = entry(condition=PATH, conditionVersion="2.0")
    flat = {"id": nested["id"], **dict(nested["properties"])}  # type: ignore[call-overload]
    assert parsed(flat).assignments == parsed(nested).assignments


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"none", "cannot be read"),
        (b'[{"DenyAssignmentName": "x"}]', "PowerShell.*az rest"),
        (b'{"value": [], "nextLink": "https://example.org/2"}', "one page of several"),
    ],
)
def test_a_file_that_is_no_export_is_an_error_that_says_how_to_make_one(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_deny_assignments(data, file=Path("deny.json"))
