from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ragstore.access import Explanation, GroupsPolicy, OpenPolicy, Policy, open_policy
from ragstore.access.acl_table import AclTable
from ragstore.models import AccessAttributes, Principal
from tests.support.azure_files import BLOBS, CLOSED_FILE, GROUP, OPEN_FILE, OWNER, acl, assigned, container, denied, policy_of

ALICE = Principal(id="alice", name="Alice", groups=frozenset({"staff"}))
NOBODY = Principal(id="", name="nobody", groups=frozenset({"staff"}))
PROJECT = f"@Resource[{BLOBS}/tags:Project<$key_case_sensitive$>]"
CASCADE = f"{PROJECT} StringEquals 'Cascade'"


def blob(path: str = "a/x.md", *, acl: str | None = None, **tags: str) -> AccessAttributes:
    return AccessAttributes(account="local", container="docs", path=path, tags=tags, acl=acl)


def explained(policy: Policy, principal: Principal, attributes: AccessAttributes) -> Explanation:
    """The explanation, which agrees with the decision and is plain JSON."""
    found = policy.explain(principal, attributes)
    assert found.allowed is policy.grants(principal, attributes)
    assert json.loads(json.dumps(found.as_dict()))["allowed"] is found.allowed
    assert found.blob == f"docs/{attributes.path}"
    return found


def test_an_assignment_that_grants_is_named_with_whom_it_goes_through(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("staff"), assigned("alice", scope=container("other"))])
    found = explained(policy, ALICE, blob())
    assert found.allowed
    assert "entry 1" in found.why
    assert "Storage Blob Data Reader" in found.why
    own, group = found.reasons
    assert (own.via, own.covers, own.outcome) == ("the principal itself", False, "nothing")
    assert (group.via, group.covers, group.outcome) == ("group staff", True, "grants")


def test_a_condition_is_taken_apart_with_the_values_that_it_saw(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, [assigned("alice", condition=f"{CASCADE} OR @Environment[isPrivateLink] BoolEquals true")])
    found = explained(policy, ALICE, blob(Project="Baker"))
    (reason,) = found.reasons
    assert reason.clause is not None
    assert [part.truth for part in reason.clause.parts] == [False, None]
    assert "unknown" in reason.why
    assert "isPrivateLink" in reason.why
    shown = json.dumps(found.as_dict())
    assert '"Baker"' in shown
    assert reason.condition is not None
    assert reason.condition.startswith(PROJECT)


def test_nothing_assigned_and_nothing_that_fits_are_told_apart(tmp_path: Path) -> None:
    assert "no role is assigned" in explained(policy_of(tmp_path, []), ALICE, blob()).why
    elsewhere = explained(policy_of(tmp_path, [assigned("alice", scope=container("x"))]), ALICE, blob()).why
    assert f"scope does not cover the blob, which lies in account {blob().account!r}" in elsewhere
    assert "no valid id" in explained(policy_of(tmp_path, [assigned("staff")]), NOBODY, blob()).why


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (assigned("alice", "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"), "holds no data action"),
        (assigned("alice", "77777777-0000-4000-8000-000000000000"), "is unknown"),
        (assigned("alice", scope=GROUP + "2"), "no storage account is known"),
        (assigned("alice", condition=CASCADE), "is missing"),
    ],
)
def test_an_assignment_that_does_not_grant_says_why(tmp_path: Path, entry: dict[str, object], why: str) -> None:
    (reason,) = explained(policy_of(tmp_path, [entry]), ALICE, blob()).reasons
    assert reason.outcome == "nothing"
    assert why in reason.why


def test_a_denial_is_named(tmp_path: Path) -> None:
    deny = [denied(scope=container("docs"), condition=CASCADE), denied(scope=container("other"))]
    found = explained(policy_of(tmp_path, [assigned("alice")], deny=deny), ALICE, blob())
    assert not found.allowed
    assert "deny assignment entry 1" in found.why
    assert [reason.outcome for reason in found.reasons] == ["denies", "nothing", "grants"]
    assert found.reasons[0].via == "everyone"


@pytest.mark.parametrize(("text", "outcomes"), [(OPEN_FILE, ["passes", "passes", "passes"]), (CLOSED_FILE, ["passes", "passes", "stops"])])
def test_acls_are_told_from_the_root_to_the_blob(tmp_path: Path, text: str, outcomes: list[str]) -> None:
    folders = dict.fromkeys(("", "a"), acl("user::rwx,group::---,other::--x"))
    table = AclTable(version="1", folders={("local", "docs"): folders}, files=frozenset({acl(text)}))
    found = explained(policy_of(tmp_path, [], acls=lambda: table), ALICE, blob(acl=acl(text)))
    assert [reason.name for reason in found.reasons] == ["/", "a", "a/x.md"]
    assert [reason.outcome for reason in found.reasons] == outcomes
    assert found.allowed is ("stops" not in outcomes)
    assert ("ACLs of the blob grant" if found.allowed else "'a/x.md' stops it") in found.why


def test_a_superuser_is_told_so(tmp_path: Path) -> None:
    guarded = f"!(ActionMatches{{'{BLOBS}/read'}}) OR {CASCADE}"
    found = explained(policy_of(tmp_path, [assigned("alice", OWNER, condition=guarded)]), ALICE, blob(acl=acl(CLOSED_FILE)))
    assert found.allowed
    assert [reason.outcome for reason in found.reasons] == ["nothing", "grants", "stops"]
    assert "runAsSuperUser" in found.reasons[1].why


def test_a_superuser_who_is_denied_that_action_is_told_so(tmp_path: Path) -> None:
    guarded = f"!(ActionMatches{{'{BLOBS}/read'}}) OR {CASCADE}"
    deny = [denied("alice", actions=[f"{BLOBS}/runAsSuperUser/action"])]
    policy = policy_of(tmp_path, [assigned("alice", OWNER, condition=guarded)], deny=deny)
    found = explained(policy, ALICE, blob(acl=acl(CLOSED_FILE)))
    assert not found.allowed
    assert "grants" not in {reason.outcome for reason in found.reasons}


def test_lists_of_ids_are_explained() -> None:
    policy = GroupsPolicy(tag_key="allow")
    granted = explained(policy, ALICE, blob(allow="bob staff"))
    assert granted.allowed
    assert granted.reasons[0].via == "group staff"
    refused = explained(policy, ALICE, blob(allow="bob"))
    assert "it lists 1 id: not the principal's" in refused.reasons[0].why
    assert "nobody's" in explained(policy, ALICE, blob()).why
    assert "no valid id" in explained(policy, replace(NOBODY, id=""), blob(allow="staff")).why


def test_rules_are_explained(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('"a/**" = "alice"\n', encoding="utf-8")
    policy = open_policy({"mode": "groups", "rules": "rules.toml"}, tmp_path)
    assert "rule 'a/**'" in explained(policy, ALICE, blob()).why
    assert "nobody's" in explained(policy, ALICE, blob("b/x")).why


def test_open_mode_is_explained() -> None:
    assert "every principal" in explained(OpenPolicy(), ALICE, blob()).why
    assert "no id" in explained(OpenPolicy(), NOBODY, blob()).why
