"""Files, conditions and principals that are wrong in ways that look right: none of them grants anything, and none lifts a denial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.access.azure.deny import parse_deny_assignments
from ragstore.access.azure.roles import parse_roles
from ragstore.access.azure.scopes import parse_scope
from ragstore.errors import AccessError, ConfigError
from ragstore.models import AccessAttributes, Principal
from tests.support.azure_files import BLOBS, READER, account, assigned, container, denied, policy_of

ALICE = Principal(id="alice", name="Alice", groups=frozenset({"staff"}))
BLOB = AccessAttributes(account="local", container="docs", path="a.md", tags={"Level": "open"})
TAGS = f"@Resource[{BLOBS}/tags]"
SUBNET = "@Environment[Microsoft.Network/virtualNetworks/subnets]"


@pytest.mark.parametrize(
    "text",
    [
        f"{container('docs')} ",
        f"{container('docs')}\n",
        f"{container('docs')}\u00a0",
        f"{container('docs')}\u200b",
        account().replace("local", "loc\u200bal"),
        account().replace("Microsoft.Storage", "Microsoft.Storage "),
        account().replace("Microsoft.Storage", "Micros\u043eft.Storage"),
        account().replace("/storageAccounts", "/ storageAccounts"),
        container("d%6Fcs"),
        container("do*"),
        container("docs?x"),
        "//",
        "///",
    ],
)
def test_a_scope_with_what_stands_in_no_arm_id_grants_nothing_and_denies_everywhere(tmp_path: Path, text: str) -> None:
    assert parse_scope(text) is None
    policy = policy_of(tmp_path, [assigned("alice"), assigned("bob", scope=text)], deny=[denied("alice", scope=text)])
    assert not policy.grants(ALICE, BLOB)
    assert not policy.grants(Principal(id="bob", name="Bob"), BLOB)
    assert any("it denies everywhere" in problem for problem in policy.lint())


@pytest.mark.parametrize("key", ["@odata.nextLink", "odata.nextLink", "NextLink"])
def test_one_page_of_several_is_refused_however_the_next_one_is_called(key: str) -> None:
    with pytest.raises(ConfigError, match="one page of several"):
        parse_deny_assignments(json.dumps({"value": [], key: "https://example.org/2"}).encode(), file=Path("deny.json"))


@pytest.mark.parametrize("key", ["Properties", "PROPERTIES"])
def test_a_condition_under_misspelt_properties_does_not_count_as_none(tmp_path: Path, key: str) -> None:
    hidden = {**assigned("alice"), key: {"condition": f"{TAGS} StringEquals 'x'", "conditionVersion": "2.0"}}
    policy = policy_of(tmp_path, [hidden])
    assert not policy.grants(ALICE, BLOB)
    assert any("write 'properties'" in problem for problem in policy.lint())


@pytest.mark.parametrize("pattern", [f"{BLOBS}/read ", f"{BLOBS}/re\u0430d", f"{BLOBS}/rea?", f"{BLOBS}/read\u200b", "", "*/read,*/write"])
def test_a_pattern_that_no_action_can_match_neither_lifts_a_denial_nor_widens_a_role(pattern: str) -> None:
    entry = denied("alice", actions=[pattern])
    (denial,) = parse_deny_assignments(json.dumps([entry]).encode(), file=Path("deny.json")).assignments
    assert denial.reads
    assert denial.principals is None
    role = {"name": READER, "roleName": "Mine", "permissions": [{"dataActions": [f"{BLOBS}/*"], "notDataActions": [pattern]}]}
    found = parse_roles(json.dumps([role]).encode(), file=Path("roles.json"))
    assert found.get(READER) is None
    assert "no pattern of an action" in found.problems[0]


def test_an_entry_that_cannot_say_whether_it_has_a_condition_grants_nothing(tmp_path: Path) -> None:
    old = {key: value for key, value in assigned("alice").items() if not key.startswith("condition")}
    policy = policy_of(tmp_path, [old, assigned("bob")])
    assert not policy.grants(ALICE, BLOB)
    assert policy.grants(Principal(id="bob", name="Bob"), BLOB)
    assert any("old versions of the Azure CLI" in problem for problem in policy.lint())


@pytest.mark.parametrize("group", ["{0a1b2c3d-0000-4000-8000-00000000000f}", "staff ", " ", "st\u0430ff"])
def test_a_group_that_is_no_id_is_an_error_and_no_way_around_a_denial(tmp_path: Path, group: str) -> None:
    policy = policy_of(tmp_path, [assigned("alice")], deny=[denied("staff")])
    odd = Principal(id="alice", name="Alice", groups=frozenset({group}))
    for ask in (lambda: policy.grants(odd, BLOB), lambda: policy.filter_for(odd)):
        with pytest.raises(AccessError, match="is no id"):
            ask()


@pytest.mark.parametrize(
    "attribute", [TAGS, SUBNET, "@Environment[isPrivateLink]", "@Environment[anything]", "@Request[anything:else]", "@Principal[anything]"]
)
def test_what_nobody_tells_is_not_taken_for_absent(tmp_path: Path, attribute: str) -> None:
    for condition in (f"NOT Exists {attribute}", f"!(Exists {attribute}) OR {attribute} StringEquals 'x'"):
        policy = policy_of(tmp_path, [assigned("alice", condition=condition)])
        assert not policy.grants(ALICE, BLOB)


def test_what_a_host_vouches_for_exists_and_what_is_known_to_be_absent_does_not(tmp_path: Path) -> None:
    private = Principal(id="alice", name="Alice", environment={"Microsoft.Network/virtualNetworks/subnets": "/subnets/a"})
    assert policy_of(tmp_path, [assigned("alice", condition=f"Exists {SUBNET}")]).grants(private, BLOB)
    absent = (
        f"@Request[{BLOBS}:snapshot]",
        f"@Request[{BLOBS}/tags:Level<$key_case_sensitive$>]",
        "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Team_Risk]",
        f"@Resource[{BLOBS}/tags:Secret<$key_case_sensitive$>]",
    )
    for attribute in absent:
        assert policy_of(tmp_path, [assigned("alice", condition=f"NOT Exists {attribute}")]).grants(ALICE, BLOB)
