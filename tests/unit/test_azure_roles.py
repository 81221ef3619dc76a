from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.access.azure.roles import BUILT_IN, Role, Roles, parse_roles, role_of
from ragstore.errors import ConfigError

BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
GUID = "11111111-2222-4333-8444-555555555555"
READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"


def definition(guid: str = GUID, *, name: str = "Custom", permissions: object = None, **more: object) -> dict[str, object]:
    """As `az role definition list` writes it."""
    allowed = [{"actions": [], "notActions": [], "dataActions": [f"{BLOBS}/read"], "notDataActions": []}]
    return {
        "id": f"/subscriptions/s1/providers/Microsoft.Authorization/roleDefinitions/{guid}",
        "name": guid,
        "roleName": name,
        "roleType": "CustomRole",
        "permissions": allowed if permissions is None else permissions,
        **more,
    }


def parsed(document: object) -> Roles:
    return parse_roles(json.dumps(document).encode(), file=Path("roles.json"))


def reading(roles: Roles, guid: str = GUID) -> bool:
    role = roles.get(guid)
    return role is not None and role.reads


def test_the_built_in_roles_of_blobs_read_them_and_only_the_owner_is_superuser() -> None:
    assert {role.name for role in BUILT_IN.values() if role.reads} == {
        "Storage Blob Data Owner",
        "Storage Blob Data Contributor",
        "Storage Blob Data Reader",
    }
    assert [role.name for role in BUILT_IN.values() if role.superuser] == ["Storage Blob Data Owner"]


def test_owners_and_readers_of_resources_read_no_blobs() -> None:
    known = {role.name: role for role in BUILT_IN.values()}
    for name in ("Owner", "Contributor", "Reader", "User Access Administrator", "Storage Account Contributor", "Storage Blob Delegator"):
        assert not known[name].matters


@pytest.mark.parametrize(
    ("data_actions", "not_data_actions", "reads", "superuser"),
    [
        (["*"], [], True, True),
        ([f"{BLOBS}/*"], [], True, True),
        ([f"{BLOBS}/READ".upper()], [], True, False),
        (["Microsoft.Storage/*/read"], [], True, False),
        (["*/read"], [], True, False),
        (["*/action"], [], False, True),
        ([f"{BLOBS}/*"], [f"{BLOBS}/read"], False, True),
        ([f"{BLOBS}/*"], ["*/READ"], False, True),
        ([f"{BLOBS}/*"], [f"{BLOBS}/runAsSuperUser/action"], True, False),
        (["*"], ["*"], False, False),
        ([f"{BLOBS}/tags/read"], [], False, False),
        (["Microsoft.Storage/storageAccounts/blobServices/containers/read"], [], False, False),
        ([], [], False, False),
    ],
)
def test_data_actions_have_wildcards_and_no_case_and_not_data_actions_take_away(
    data_actions: list[str], not_data_actions: list[str], *, reads: bool, superuser: bool
) -> None:
    expected = Role(name="r", reads=reads, superuser=superuser)
    assert role_of("r", data_actions=data_actions, not_data_actions=not_data_actions) == expected
    one = {"actions": ["*"], "notActions": [], "dataActions": data_actions, "notDataActions": not_data_actions}
    assert parsed([definition(name="r", permissions=[one])]).get(GUID) == expected


def test_what_one_permission_takes_away_is_taken_from_the_whole_role() -> None:
    permissions = [{"dataActions": [f"{BLOBS}/*"]}, {"dataActions": [], "notDataActions": [f"{BLOBS}/read"]}]
    assert not reading(parsed([definition(permissions=permissions)]))


def test_control_actions_read_no_blobs() -> None:
    assert not reading(parsed([definition(permissions=[{"actions": ["*"], "dataActions": []}])]))


def test_definitions_may_have_the_form_of_the_rest_api() -> None:
    plain = definition()
    entry = {
        "id": plain["id"],
        "name": GUID,
        "type": "Microsoft.Authorization/roleDefinitions",
        "properties": {"roleName": "Custom", "permissions": plain["permissions"]},
    }
    assert parsed({"value": [entry]}).found == parsed([plain]).found
    assert reading(parsed([plain]))


def test_a_definition_of_the_file_counts_before_a_built_in_one() -> None:
    assert not reading(parsed([definition(READER, permissions=[])]), READER)
    assert reading(parsed([]), READER)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (definition(permissions="all"), "no list of permissions"),
        (definition(permissions=[{"dataActions": "*"}]), "no list of texts"),
        (definition(permissions=[{"dataActions": ["*"], "notDataActions": "*"}]), "no list of texts"),
        (definition(permissions=[{"dataActions": ["*"], "NotDataActions": ["*"]}]), "'notDataActions'"),
        (definition(permissions=[{"dataActions": ["*"], "notDataAction": ["*"]}]), "'notDataActions'"),
        (definition(permissions=[{"dataActions": ["*"], "condition": "x"}]), "condition of the role itself"),
        (definition(permissions=[7]), "no object"),
        (definition(properties={"permissions": []}), "two values"),
    ],
)
def test_a_definition_that_cannot_be_read_leaves_its_role_unresolved(entry: dict[str, object], message: str) -> None:
    roles = parsed([entry])
    assert roles.get(GUID) is None
    assert message in roles.problems[0]
    assert "entry 1" in roles.problems[0]


def test_a_broken_definition_of_a_built_in_role_takes_the_role_away() -> None:
    assert parsed([definition(READER, permissions=None, properties=[])]).get(READER) is None


def test_two_definitions_of_one_role_must_be_equal() -> None:
    assert reading(parsed([definition(), definition()]))
    for order in (1, -1):
        roles = parsed([definition(), definition(permissions=[])][::order])
        assert roles.get(GUID) is None
        assert "differs" in roles.problems[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "cannot be read"),
        (b"7", "must hold a list"),
        (b'{"value": {}}', "must hold a list"),
        (b'[{"name": 1, "name": 2}]', "twice in one object"),
        (b'[{"Name": "x", "IsCustom": true, "DataActions": ["*"]}]', "PowerShell"),
        (b'{"Name": "x", "IsCustom": true, "DataActions": ["*"]}', "PowerShell"),
        (b'{"value": [], "nextLink": "https://example.org/2"}', "one page of several"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_a_file_that_is_no_export_is_an_error_that_says_how_to_make_one(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_roles(data, file=Path("roles.json"))
