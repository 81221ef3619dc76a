"""`ragstore explain`: a blob and a principal in; the decision, and all that was looked at for it, out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore.cli.outcome import Exit
from tests.support.commands import Ragstore
from tests.unit.test_cli_policy import ALICE, GOOD, assignment, saved

STAFF = "bbbbbbbb-0000-0000-0000-000000000002"
BOB = "cccccccc-0000-0000-0000-000000000003"


@pytest.fixture
def indexed(ragstore: Ragstore, docs: Path, tmp_path: Path) -> Path:
    """Two documents; staff read what is tagged `Matter=Halyard`."""
    saved(tmp_path / "assignments.json", [assignment(GOOD, principalId=STAFF)])
    people = [{"id": ALICE, "name": "Alice", "groups": [STAFF]}, {"id": BOB, "name": "Bob"}]
    saved(tmp_path / "principals.json", people)
    saved(tmp_path / "tags.json", {"food.md": {"Matter": "Halyard"}, "keys.md": {"Matter": "Pinion"}})
    saved(
        tmp_path / "ragstore.toml",
        f'[source]\ntype = "folder"\npath = "{docs}"\ntags = "tags.json"\n[embedder]\ntype = "hash"\n'
        '[access]\nmode = "azure"\nassignments = "assignments.json"\ndeny_assignments = "none"\nprincipals = "principals.json"\n',
    )
    file = tmp_path / "ragstore.toml"
    assert ragstore("index", "-c", str(file)).code == Exit.DONE
    return file


def test_a_grant_is_explained_by_the_assignment_and_the_values_seen(ragstore: Ragstore, indexed: Path) -> None:
    ran = ragstore("explain", "docs/food.md", "--as", "Alice", "-c", str(indexed), "--json")
    assert (ran.code, ran.json["shown"], ran.json["mode"]) == (Exit.DONE, True, "azure")
    [reason] = ran.json["reasons"]
    assert (reason["kind"], reason["outcome"], reason["via"]) == ("assignment", "grants", f"group {STAFF}")
    assert list(reason["clause"]["seen"].values()) == ["Halyard"]


def test_a_refusal_names_the_clause_that_decided(ragstore: Ragstore, indexed: Path) -> None:
    ran = ragstore("explain", "docs/keys.md", "--as", "Alice", "-c", str(indexed))
    assert ran.code == Exit.DONE
    assert ran.out.startswith(f"Alice ({ALICE}) cannot read docs/keys.md\n")
    assert "false  @Resource[" in ran.out
    assert "= 'Pinion'" in ran.out


def test_whoever_has_no_assignment_is_told_so(ragstore: Ragstore, indexed: Path) -> None:
    ran = ragstore("explain", "docs/food.md", "--as", "Bob", "-c", str(indexed), "--json")
    assert (ran.json["shown"], ran.json["reasons"]) == (False, [])
    assert "no role is assigned" in ran.json["why"]


def test_who_reads_a_blob_lists_every_known_principal(ragstore: Ragstore, indexed: Path) -> None:
    ran = ragstore("explain", "--who", "docs/food.md", "-c", str(indexed), "--json")
    assert {one["name"]: one["reads"] for one in ran.json["principals"]} == {"Alice": True, "Bob": False}
    assert f"{ALICE}\tAlice\tyes" in ragstore("explain", "--who", "docs/food.md", "-c", str(indexed)).out


def test_in_mode_open_nobody_need_be_listed_to_read(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    file = saved(
        tmp_path / "ragstore.toml",
        f'source = {{type = "folder", path = "{docs}"}}\nembedder = {{type = "hash"}}\naccess = {{mode = "open"}}\n',
    )
    ragstore("index", "-c", file)
    ran = ragstore("explain", "--who", "docs/food.md", "-c", file)
    assert (ran.code, ran.out) == (Exit.DONE, "")
    assert "whoever asks is answered alike" in ran.err


def test_a_tag_that_was_added_since_is_not_enough_until_it_is_seen(ragstore: Ragstore, indexed: Path) -> None:
    saved(indexed.parent / "tags.json", {"food.md": {"Matter": "Halyard"}, "keys.md": {"Matter": "Halyard"}})
    assert not ragstore("explain", "docs/keys.md", "--as", "Alice", "-c", str(indexed), "--json").json["shown"]
    assert ragstore("index", "--access-only", "-c", str(indexed), "--json").json["retagged"] == 1
    assert ragstore("explain", "docs/keys.md", "--as", "Alice", "-c", str(indexed), "--json").json["shown"]
    assert {hit["blob"] for hit in ragstore("search", "keys", "--as", "Alice", "-c", str(indexed), "--json").json["hits"]} >= {
        "docs/keys.md"
    }


def test_a_blob_that_is_gone_is_shown_to_nobody(ragstore: Ragstore, indexed: Path, docs: Path) -> None:
    (docs / "food.md").unlink()
    ragstore("index", "-c", str(indexed))
    ran = ragstore("explain", "docs/food.md", "--as", "Alice", "-c", str(indexed), "--json")
    assert (ran.json["shown"], ran.json["why"]) == (False, "nobody is shown it: it is deleted")
    who = ragstore("explain", "--who", "docs/food.md", "-c", str(indexed), "--json").json["principals"]
    assert [one["reads"] for one in who] == [False, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("docs/nothing.md", "--as", "Alice"), "no blob"),
        (("docs/food.md",), "--as"),
        (("docs/food.md", "--as", "Nobody"), "unknown"),
        (("docs/food.md", "--as", "Alice", "--who"), "--who"),
    ],
)
def test_what_cannot_be_explained_is_one_line(ragstore: Ragstore, indexed: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = ragstore("explain", *arguments, "-c", str(indexed))
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert said in ran.err


def test_hostile_names_stay_data(ragstore: Ragstore, indexed: Path) -> None:
    for name in ("' OR '1'='1", "docs/\x1b[31m", "a/b/c", "/", "docs/" + "x" * 10_000, "%", "docs/\ud800"):
        ran = ragstore("explain", name, "--as", "Alice", "-c", str(indexed))
        assert (ran.code, ran.out) == (Exit.USAGE, "")
        assert "\x1b" not in ran.err


def test_in_mode_groups_the_list_that_decided_is_shown(ragstore: Ragstore, indexed: Path) -> None:
    text = indexed.read_text().partition("[access]")[0]
    saved(indexed, text + '[access]\nmode = "groups"\ntag_key = "Matter"\nprincipals = "principals.json"\n')
    ragstore("index", "-c", str(indexed))
    ran = ragstore("explain", "docs/food.md", "--as", "Alice", "-c", str(indexed), "--json")
    assert (ran.json["mode"], ran.json["shown"]) == ("groups", False)
    assert json.dumps(ran.json).isascii()
