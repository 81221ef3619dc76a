"""`ragstore policy check` and `policy test`: policy files in; problems with place and remedy, failing cases, and an exit code out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragstore.cli.outcome import Exit
from tests.support.commands import Ragstore

TAG = "@Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs/tags:Matter<$key_case_sensitive$>]"
GOOD = f"({TAG} StringEquals 'Halyard')"
READER = "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
ALICE = "aaaaaaaa-0000-0000-0000-000000000001"


def assignment(condition: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "id": "/providers/Microsoft.Authorization/roleAssignments/11111111-0000-0000-0000-000000000001",
        "principalId": ALICE,
        "roleDefinitionId": READER,
        "scope": "/",
        "condition": condition,
        "conditionVersion": None if condition is None else "2.0",
        **fields,
    }


def saved(file: Path, content: object) -> str:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


# check


def test_a_condition_without_fault_has_nothing_to_complain_of(ragstore: Ragstore, tmp_path: Path) -> None:
    ran = ragstore("policy", "check", saved(tmp_path / "c.txt", f"{GOOD}\n"))
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert "nothing to complain of" in ran.out


def test_a_condition_that_does_not_parse_is_an_error_with_its_place_and_remedy(ragstore: Ragstore, tmp_path: Path) -> None:
    file = saved(tmp_path / "c.txt", GOOD.replace("'Halyard'", '"Halyard"'))
    ran = ragstore("policy", "check", file, "--json")
    assert ran.code == Exit.USAGE
    [problem] = ran.json["problems"]
    assert (problem["level"], problem["at"]) == ("error", GOOD.index("'") + 1)
    assert "single quotes" in problem["problem"]
    assert f"character {problem['at']}" in ragstore("policy", "check", file).out


def test_what_is_legal_but_doubtful_is_a_warning(ragstore: Ragstore, tmp_path: Path) -> None:
    ran = ragstore("policy", "check", saved(tmp_path / "c.txt", f"{TAG} StringNotEquals 'x'"), "--json")
    assert ran.code == Exit.DONE
    assert [problem["level"] for problem in ran.json["problems"]] == ["warning"]
    assert ran.json["problems"][0]["remedy"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "code"),
    [
        ("a.json", [assignment(GOOD)], "role assignments", Exit.DONE),
        ("a.json", [assignment("no condition at all")], "role assignments", Exit.USAGE),
        ("a.json", {"value": [{"id": "x", "properties": assignment()}]}, "role assignments", Exit.DONE),
        ("r.json", [{"name": "x", "roleName": "R", "permissions": []}], "role definitions", Exit.USAGE),
        ("d.json", [{"id": "d", "denyAssignmentName": "D", "permissions": [], "principals": []}], "deny assignments", Exit.USAGE),
        ("p.json", [{"id": "ada", "name": "Ada", "groups": ["staff"]}], "principals", Exit.DONE),
        ("p.json", [{"id": "", "groups": []}], "principals", Exit.USAGE),
        ("rules.toml", '"**" = ["staff"]\n"a/**" = ["board"]', "access rules", Exit.DONE),
        ("rules.toml", "not toml", "access rules", Exit.USAGE),
        ("v.json", [{"condition": GOOD, "decision": "deny"}], "cases", Exit.DONE),
        ("v.json", [{"condition": GOOD, "decision": "maybe"}], "cases", Exit.USAGE),
        ("nobody.json", [], "role assignments", Exit.DONE),
        ("broken.json", "[{", "role assignments", Exit.USAGE),
        ("empty.txt", "", "condition", Exit.USAGE),
    ],
)
def test_a_file_is_known_by_its_content(ragstore: Ragstore, tmp_path: Path, name: str, content: object, kind: str, code: Exit) -> None:
    ran = ragstore("policy", "check", saved(tmp_path / name, content), "--json")
    assert (ran.json["kind"], ran.code, ran.err) == (kind, code, "")


def test_an_assignment_that_grants_nothing_is_named_by_its_place(ragstore: Ragstore, tmp_path: Path) -> None:
    ran = ragstore("policy", "check", saved(tmp_path / "a.json", [assignment(), assignment(GOOD, conditionVersion="1.0")]))
    assert ran.code == Exit.USAGE
    assert "entry 2 (11111111-0000-0000-0000-000000000001)" in ran.out
    assert "1 error, 0 warnings" in ran.out


def test_bytes_that_are_no_text_are_no_crash(ragstore: Ragstore, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe\x00('" + bytes(range(256)))
    assert ragstore("policy", "check", str(tmp_path / "c.txt")).code == Exit.USAGE


def test_a_file_that_is_not_there_is_one_line(ragstore: Ragstore) -> None:
    ran = ragstore("policy", "check", "nowhere.json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)


def test_without_a_file_the_configured_policy_is_checked(ragstore: Ragstore, tmp_path: Path) -> None:
    saved(tmp_path / "assignments.json", [assignment(GOOD), assignment("(")])
    saved(tmp_path / "principals.json", [{"id": ALICE}])
    saved(
        tmp_path / "ragstore.toml",
        '[access]\nmode = "azure"\nassignments = "assignments.json"\ndeny_assignments = "none"\nprincipals = "principals.json"\n',
    )
    ran = ragstore("policy", "check", "--config", str(tmp_path / "ragstore.toml"), "--json")
    assert (ran.code, ran.json["mode"], ran.json["principals"]) == (Exit.USAGE, "azure", 1)
    assert [(file["file"], len(file["problems"])) for file in ran.json["files"]] == [("assignments.json", 1), ("principals.json", 0)]
    assert ran.json["problems"] == []


# test


def case(**fields: Any) -> dict[str, Any]:
    return {"id": "one", "condition": GOOD, "resource": {"tags": {"Matter": "Halyard"}}, "decision": "allow", **fields}


def test_cases_that_pass_are_counted(ragstore: Ragstore, tmp_path: Path) -> None:
    cases = [case(), case(resource={}, decision="deny", kleene="unknown")]
    ran = ragstore("policy", "test", saved(tmp_path / "v.json", cases), "--json")
    assert (ran.code, ran.json) == (Exit.DONE, {"passed": 2, "failed": 0, "failures": []})


def test_a_case_that_fails_says_what_was_seen(ragstore: Ragstore, tmp_path: Path) -> None:
    file = saved(tmp_path / "v.json", [case(), case(id="two", resource={"tags": {"Matter": "Pinion"}})])
    ran = ragstore("policy", "test", file, "--json")
    assert (ran.code, ran.json["passed"], ran.json["failed"]) == (Exit.DIFFERENT, 1, 1)
    [failure] = ran.json["failures"]
    assert (failure["id"], failure["expected"], failure["got"]) == ("two", "allow", "deny")
    assert "Pinion" in failure["reason"]
    assert "1 passed, 1 failed" in ragstore("policy", "test", file).out


@pytest.mark.parametrize("content", ["{", "{}", "[]", [{"condition": GOOD}], [3], [case(decision="perhaps")], [case(resource=[])]])
def test_a_file_that_holds_no_cases_is_one_line_that_says_what_to_write(ragstore: Ragstore, tmp_path: Path, content: object) -> None:
    ran = ragstore("policy", "test", saved(tmp_path / "v.json", content))
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)


def test_a_case_that_says_one_thing_twice_is_an_error_for_check_and_for_test(ragstore: Ragstore, tmp_path: Path) -> None:
    twice = json.dumps([case(decision="deny")]).replace('"decision":', '"decision": "allow", "decision":')
    (tmp_path / "v.json").write_text(twice, encoding="utf-8")
    for command in ("check", "test"):
        ran = ragstore("policy", command, str(tmp_path / "v.json"))
        assert ran.code == Exit.USAGE
        assert "there twice in one object: decision" in ran.out + ran.err


def test_a_policy_by_which_nobody_reads_anything_is_a_warning(ragstore: Ragstore, tmp_path: Path) -> None:
    ran = ragstore("policy", "check", saved(tmp_path / "assignments.json", []), "--json")
    assert [(problem["level"], "nobody reads" in problem["problem"]) for problem in ran.json["problems"]] == [("warning", True)]
