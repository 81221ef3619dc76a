"""Rules whose globs do not match what they seem to: a folder that was to be closed stays closed, and the rest is reported."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from ragstore.access import GroupsPolicy
from ragstore.filters import matches
from ragstore.models import AccessAttributes, Principal


def policy_of(folder: Path, *rules: tuple[str, str]) -> GroupsPolicy:
    file = folder / "rules.toml"
    file.write_text("".join(f"{json.dumps(glob, ensure_ascii=False)} = '{ids}'\n" for glob, ids in rules), encoding="utf-8")
    return GroupsPolicy(rules=file)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("glob", ["priv\u00e9/**", "prive\u0301/**", "priv?/**", "**/priv\u00e9/*"])
def test_a_rule_that_closes_a_folder_holds_however_the_accents_of_a_path_are_encoded(
    tmp_path: Path, glob: str, form: Literal["NFC", "NFD"]
) -> None:
    policy = policy_of(tmp_path, ("**", "alice"), (glob, "bob"))
    blob = AccessAttributes(account="local", container="docs", path=unicodedata.normalize(form, "priv\u00e9/a.md"))
    for who, reads in (("alice", False), ("bob", True)):
        principal = Principal(id=who, name=who)
        assert policy.grants(principal, blob) is reads
        assert matches(policy.filter_for(principal).filter, policy.columns(blob, media_type="")) is reads


@pytest.mark.parametrize("glob", ["{hr,law}/**", "!hr/**", " hr/**", "hr/** ", "hr\\**"])
def test_a_glob_that_means_something_else_in_other_tools_is_reported(tmp_path: Path, glob: str) -> None:
    (problem,) = policy_of(tmp_path, ("**", "alice"), (glob, "bob")).lint()
    assert "ends stand for themselves" in problem
