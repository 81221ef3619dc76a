from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragstore.access import open_policy
from ragstore.access.acl_table import AclTable
from ragstore.errors import AccessError, ConfigError
from ragstore.filters import ALWAYS, NEVER
from ragstore.models import AccessAttributes, Principal
from tests.support.azure_files import (
    BLOBS,
    CLOSED_FILE,
    CONTRIBUTOR,
    GROUP,
    OPEN_FILE,
    OWNER,
    READER,
    SUBSCRIPTION,
    account,
    acl,
    assigned,
    container,
    denied,
    policy_of,
    reads,
)

PATH = f"@Resource[{BLOBS}:path]"
PROJECT = f"@Resource[{BLOBS}/tags:Project<$key_case_sensitive$>]"
GUARD = f"!(ActionMatches{{'{BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}})"
OLD_GUARD = f"!(ActionMatches{{'{BLOBS}/read'}} AND SubOperationMatches{{'Blob.Read.WithTagConditions'}})"
NO_BLOBS = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
"""The role Owner, which holds no data action."""
ALICE = Principal(id="alice", name="Alice", groups=frozenset({"staff"}))
BOB = Principal(id="bob", name="Bob")
NS = 1_000_000_000
"""Nanoseconds in a second."""
MAY_2023 = 1_682_946_000 * NS
"""2023-05-01T13:00:00Z."""


def blob(path: str = "a/x.md", *, container: str = "docs", account: str = "local", acl: str | None = None, **tags: str) -> AccessAttributes:
    return AccessAttributes(account=account, container=container, path=path, tags=tags, acl=acl)


def test_a_role_is_granted_to_a_principal_or_to_a_group_and_to_nobody_else(tmp_path: Path) -> None:
    for holder in ("alice", "staff"):
        policy = policy_of(tmp_path, [assigned(holder)])
        assert reads(policy, ALICE, blob())
        assert not reads(policy, BOB, blob())
        assert policy.filter_for(BOB).filter == NEVER


def test_without_any_assignment_nobody_reads(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [])
    assert not reads(policy, ALICE, blob())
    assert policy.filter_for(ALICE).filter == NEVER


@pytest.mark.parametrize("own", ["", " ", "a b", "\0"])
def test_a_principal_without_a_valid_id_reads_nothing_even_by_its_groups(tmp_path: Path, own: str) -> None:
    policy = policy_of(tmp_path, [assigned("staff", scope="/")])
    nobody = Principal(id=own, name="x", groups=frozenset({"staff"}))
    assert not reads(policy, nobody, blob())
    assert policy.filter_for(nobody).filter == NEVER


@pytest.mark.parametrize(
    ("role", "granted"), [(READER, True), (CONTRIBUTOR, True), (OWNER, True), ("8e3af657-a8ff-443c-a75c-2fe8c4bcb635", False)]
)
def test_the_guid_of_a_role_decides(tmp_path: Path, role: str, *, granted: bool) -> None:
    named = {**assigned("alice", role), "roleDefinitionName": "Storage Blob Data Reader"}
    assert reads(policy_of(tmp_path, [named]), ALICE, blob()) is granted


def test_a_custom_role_counts_once_its_definition_is_there(tmp_path: Path) -> None:
    custom = "77777777-0000-4000-8000-000000000000"
    assignments = [assigned("alice", custom)]
    unresolved = policy_of(tmp_path, assignments)
    assert not reads(unresolved, ALICE, blob())
    assert "role_definitions" in unresolved.lint()[0]
    definition = {"id": f"{SUBSCRIPTION}/roleDefinitions/{custom}", "roleName": "R", "permissions": [{"dataActions": [f"{BLOBS}/*"]}]}
    resolved = policy_of(tmp_path, assignments, roles=[definition])
    assert reads(resolved, ALICE, blob())
    assert resolved.lint() == []


def test_a_scope_grants_its_own_container_only(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", scope=container("docs"))])
    assert reads(policy, ALICE, blob())
    assert not reads(policy, ALICE, blob(container="docs2"))
    assert not reads(policy, ALICE, blob(account="another"))
    assert policy.filter_for(ALICE).exact


def test_a_resource_group_counts_where_the_account_is_known_to_lie_in_it(tmp_path: Path) -> None:
    wide = [assigned("alice", scope=GROUP)]
    unknown = policy_of(tmp_path, wide)
    assert not reads(unknown, ALICE, blob())
    assert "[access] accounts" in unknown.lint()[0]
    told = policy_of(tmp_path, wide, accounts=[account()])
    assert reads(told, ALICE, blob())
    assert not reads(told, ALICE, blob(account="another"))
    assert told.lint() == []


def test_management_groups_reach_every_account_of_the_subscription(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", scope="/providers/Microsoft.Management/managementGroups/all")])
    assert reads(policy, ALICE, blob(account="whatever"))
    assert policy.filter_for(ALICE).filter == ALWAYS


def test_only_what_is_surely_true_grants(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition=f"{GUARD} OR {PROJECT} StringEquals 'Cascade'")])
    assert reads(policy, ALICE, blob(Project="Cascade"))
    assert not reads(policy, ALICE, blob(Project="cascade"))
    assert not reads(policy, ALICE, blob(project="Cascade"))
    assert not reads(policy, ALICE, blob())


@pytest.mark.parametrize("condition", [f"{PROJECT} StringNotEquals 'x'", f"NOT ({PROJECT} StringEquals 'x')"])
def test_a_negation_does_not_grant_what_has_no_such_tag(tmp_path: Path, condition: str) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition=condition)])
    assert reads(policy, ALICE, blob(Project="y"))
    assert not reads(policy, ALICE, blob(Project="x"))
    assert not reads(policy, ALICE, blob())


def test_an_attribute_that_is_not_read_is_not_taken_for_absent(tmp_path: Path) -> None:
    metadata = "@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/metadata:Frozen]"
    for condition in (f"NOT Exists {metadata}", f"NOT Exists {metadata} OR {metadata} StringEquals 'no'", f"Exists {metadata}"):
        assert not reads(policy_of(tmp_path, [assigned("alice", condition=condition)]), ALICE, blob())
    policy = policy_of(tmp_path, [assigned("alice", condition=f"NOT Exists {PROJECT} OR {metadata} StringEquals 'no'")])
    assert reads(policy, ALICE, blob())
    assert not reads(policy, ALICE, blob(Project="Cascade"))
    assert policy.explain(ALICE, blob(Project="Cascade")).reasons[0].outcome == "nothing"


def test_the_deprecated_guard_still_binds(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition=f"{OLD_GUARD} OR {PROJECT} StringEquals 'Cascade'")])
    assert reads(policy, ALICE, blob(Project="Cascade"))
    assert not reads(policy, ALICE, blob(Project="Baker"))


def test_assignments_add_up_and_none_narrows_another(tmp_path: Path) -> None:
    narrow = assigned("alice", condition=f"{PATH} StringStartsWith 'a/'")
    policy = policy_of(tmp_path, [narrow, assigned("staff", condition=f"{PATH} StringStartsWith 'b/'")])
    assert [reads(policy, ALICE, blob(path)) for path in ("a/1", "b/1", "c/1")] == [True, True, False]
    assert reads(policy_of(tmp_path, [narrow, assigned("staff")]), ALICE, blob("c/1"))


def test_an_assignment_with_a_broken_condition_grants_nothing_and_the_others_count(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition=f"{PATH} StringStartsWith"), assigned("alice", scope=container("docs"))])
    assert reads(policy, ALICE, blob())
    assert not reads(policy, ALICE, blob(container="other"))
    assert "does not parse" in policy.lint()[0]


def test_attributes_of_the_principal_are_compared_with_tags(tmp_path: Path) -> None:
    attribute = "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Engineering_Project]"
    policy = policy_of(tmp_path, [assigned("alice", condition=f"{PROJECT} ForAnyOfAnyValues:StringEquals {attribute}")])
    cleared = replace(ALICE, attributes={"Engineering_Project": ("Baker", "Cascade")})
    assert reads(policy, cleared, blob(Project="Cascade"))
    assert not reads(policy, cleared, blob(Project="Skagit"))
    assert not reads(policy, ALICE, blob(Project="Cascade"))
    assert not reads(policy, ALICE, blob())
    assert not reads(policy, replace(ALICE, attributes={"Engineering_Project": ()}), blob(Project="Cascade"))


def test_the_environment_is_what_the_host_vouches_for(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition="@Environment[isPrivateLink] BoolEquals true")])
    assert not reads(policy, ALICE, blob())
    assert reads(policy, replace(ALICE, environment={"isPrivateLink": True}), blob())
    assert not reads(policy, replace(ALICE, environment={"isPrivateLink": False}), blob())


@pytest.mark.parametrize(
    ("operator", "before", "at", "after"),
    [
        ("DateTimeGreaterThan", False, False, True),
        ("DateTimeLessThan", True, False, False),
        ("DateTimeGreaterThanEquals", False, True, True),
    ],
)
def test_a_filter_that_used_the_time_expires_at_the_tick(tmp_path: Path, operator: str, *, before: bool, at: bool, after: bool) -> None:
    now = [MAY_2023 - 100]
    condition = f"@Environment[UtcNow] {operator} '2023-05-01T13:00:00.000Z'"
    policy = policy_of(tmp_path, [assigned("alice", scope="/", condition=condition)], clock=lambda: now[0])
    found = []
    for moment in (MAY_2023 - 100, MAY_2023, MAY_2023 + 100, MAY_2023 + 3600 * NS, MAY_2023 - 3600 * NS):
        now[0] = moment
        found.append(reads(policy, ALICE, blob()))
        assert policy.filter_for(ALICE).filter == (ALWAYS if found[-1] else NEVER)
    assert found == [before, at, after, after, before]


def test_a_host_cannot_set_the_clock(tmp_path: Path) -> None:
    condition = "@Environment[UtcNow] DateTimeLessThan '2023-05-01T13:00:00.000Z'"
    policy = policy_of(tmp_path, [assigned("alice", condition=condition)])
    for name in ("UtcNow", "utcnow"):
        assert not reads(policy, replace(ALICE, environment={name: "2020-01-01T00:00:00Z"}), blob())


def test_a_denial_counts_more_than_every_grant(tmp_path: Path) -> None:
    grants = [assigned("alice", OWNER), assigned("bob", scope="/")]
    policy = policy_of(tmp_path, grants, deny=[denied(scope=container("docs"), excluded=["bob"])])
    assert not reads(policy, ALICE, blob())
    assert reads(policy, ALICE, blob(container="other"))
    assert reads(policy, BOB, blob())
    assert policy.filter_for(ALICE).exact


def test_a_denial_of_a_place_that_is_not_known_denies(tmp_path: Path) -> None:
    grants = [assigned("alice", scope="/")]
    wide = denied(scope=f"{SUBSCRIPTION}/resourceGroups/another")
    assert not reads(policy_of(tmp_path, grants, deny=[wide]), ALICE, blob())
    assert reads(policy_of(tmp_path, grants, deny=[wide], accounts=[account()]), ALICE, blob())


def test_a_denial_with_a_condition_spares_only_what_surely_does_not_meet_it(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice")], deny=[denied("staff", condition=f"{PROJECT} StringEquals 'Secret'")])
    assert not reads(policy, ALICE, blob(Project="Secret"))
    assert reads(policy, ALICE, blob(Project="Public"))
    assert not reads(policy, ALICE, blob())


def test_a_denial_that_cannot_be_understood_denies_everyone(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", scope="/")], deny=[{"id": "x"}])
    assert not reads(policy, ALICE, blob())
    assert "denies everyone" in policy.lint()[0]


def acls(file: str, root: str = "user::rwx,group::r-x,other::--x") -> AclTable:
    return AclTable(version="1", folders={("local", "docs"): {"": acl(root), "a": acl(root)}}, files=frozenset({acl(file)}))


def test_an_acl_grants_without_any_role(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [], acls=lambda: acls(OPEN_FILE))
    assert reads(policy, ALICE, blob(acl=acl(OPEN_FILE)))
    assert not reads(policy, BOB, blob(acl=acl(OPEN_FILE)))
    assert not reads(policy, ALICE, blob())


def test_a_role_grants_whatever_the_acl(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice")], acls=lambda: acls(CLOSED_FILE))
    assert reads(policy, ALICE, blob(acl=acl(CLOSED_FILE)))
    assert not reads(policy, BOB, blob(acl=acl(CLOSED_FILE)))


def test_a_denial_takes_away_what_an_acl_grants(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [], deny=[denied("alice")], acls=lambda: acls(OPEN_FILE))
    assert not reads(policy, ALICE, blob(acl=acl(OPEN_FILE)))


def test_without_a_table_of_acls_no_acl_grants(tmp_path: Path) -> None:
    assert not reads(policy_of(tmp_path, []), ALICE, blob(acl=acl(OPEN_FILE)))


def test_an_owner_of_data_is_superuser_on_a_hierarchical_account_beside_a_condition_on_reading(tmp_path: Path) -> None:
    guarded = f"{GUARD} OR {PATH} StringStartsWith 'b/'"
    policy = policy_of(tmp_path, [assigned("alice", OWNER, condition=guarded)], acls=lambda: acls(CLOSED_FILE))
    assert reads(policy, ALICE, blob(acl=acl(CLOSED_FILE)))
    assert not reads(policy, ALICE, blob())
    assert reads(policy, ALICE, blob("b/x"))
    narrow = policy_of(tmp_path, [assigned("alice", OWNER, condition=f"{PATH} StringStartsWith 'b/'")], acls=lambda: acls(CLOSED_FILE))
    assert not reads(narrow, ALICE, blob(acl=acl(CLOSED_FILE)))


def test_a_denial_of_the_superusers_action_leaves_other_ways_to_read(tmp_path: Path) -> None:
    guarded = f"{GUARD} OR {PATH} StringStartsWith 'b/'"
    deny = [denied("alice", actions=[f"{BLOBS}/runAsSuperUser/action"])]
    policy = policy_of(tmp_path, [assigned("alice", OWNER, condition=guarded)], deny=deny, acls=lambda: acls(CLOSED_FILE))
    assert not reads(policy, ALICE, blob(acl=acl(CLOSED_FILE)))
    assert reads(policy, ALICE, blob("b/x", acl=acl(CLOSED_FILE)))


def test_a_changed_table_of_acls_counts_at_once(tmp_path: Path) -> None:
    tables = [acls(OPEN_FILE)]
    policy = policy_of(tmp_path, [], acls=lambda: tables[0])
    assert reads(policy, ALICE, blob(acl=acl(OPEN_FILE)))
    tables[0] = replace(acls(OPEN_FILE, root="user::rwx,group::---,other::---"), version="2")
    assert not reads(policy, ALICE, blob(acl=acl(OPEN_FILE)))
    assert policy.filter_for(ALICE).filter == NEVER


def test_acls_that_cannot_be_read_deny(tmp_path: Path) -> None:
    def broken() -> AclTable:
        raise OSError("disk of secrets")

    policy = policy_of(tmp_path, [], acls=broken)
    for ask in (lambda: policy.filter_for(ALICE), lambda: policy.grants(ALICE, blob(acl=acl(OPEN_FILE)))):
        with pytest.raises(AccessError) as refused:
            ask()
        assert "secrets" not in str(refused.value)


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice")])
    assert reads(policy, ALICE, blob())
    before = policy.digest, policy.fingerprint
    (tmp_path / "assignments.json").write_text(json.dumps([assigned("bob")]), encoding="utf-8")
    assert not reads(policy, ALICE, blob())
    assert reads(policy, BOB, blob())
    assert policy.digest != before[0]
    assert policy.fingerprint == before[1]


@pytest.mark.parametrize("name", ["assignments", "deny", "roles"])
@pytest.mark.parametrize("damage", ["broken", "missing"])
def test_a_file_that_becomes_unreadable_denies_everyone_until_it_is_mended(tmp_path: Path, name: str, damage: str) -> None:
    policy = policy_of(tmp_path, [assigned("alice")], deny=[], roles=[])
    assert reads(policy, ALICE, blob())
    file = tmp_path / f"{name}.json"
    content = file.read_text(encoding="utf-8")
    if damage == "broken":
        file.write_text("[{", encoding="utf-8")
    else:
        file.unlink()
    for _ in range(2):
        for ask in (lambda: policy.filter_for(ALICE), lambda: policy.grants(ALICE, blob()), lambda: policy.explain(ALICE, blob())):
            with pytest.raises(AccessError) as refused:
                ask()
            assert str(tmp_path) not in str(refused.value)
    file.write_text(content, encoding="utf-8")
    assert reads(policy, ALICE, blob())


def test_two_snapshots_of_one_principal_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("staff")])
    assert reads(policy, ALICE, blob())
    assert not reads(policy, replace(ALICE, groups=frozenset()), blob())
    assert reads(policy, ALICE, blob())


def test_more_principals_than_are_kept_are_still_told_apart(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned(f"p{number}", condition=f"{PATH} StringEquals '{number}'") for number in range(0, 1200, 100)])
    for number in (*range(1200), *range(0, 1200, 100)):
        asking = Principal(id=f"p{number}", name="p")
        assert policy.grants(asking, blob(str(number))) is (number % 100 == 0)


def test_the_configuration_opens_the_policy(tmp_path: Path) -> None:
    policy_of(tmp_path, [assigned("alice", scope=GROUP)], deny=[denied("bob")])
    table = {"mode": "azure", "assignments": "assignments.json", "deny_assignments": "deny.json", "accounts": (account(),)}
    policy = open_policy({**table, "role_definitions": None, "principals": "p.json", "max_age_hours": 3.0}, tmp_path)
    assert policy.mode == "azure"
    assert policy.grants(ALICE, blob())
    with pytest.raises(ConfigError, match="not the id of a storage account"):
        open_policy({**table, "accounts": ["local"]}, tmp_path)


def test_files_are_read_when_the_policy_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must hold a list"):
        policy_of(tmp_path, [], deny=None, roles=None).__class__(assignments=_written(tmp_path / "x.json", "{}"))


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file
