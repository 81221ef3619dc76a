from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.access import GroupsPolicy, OpenPolicy, Policy, open_policy
from ragstore.access.labels import columns_of, label, label_key
from ragstore.access.rules import parse_rules
from ragstore.access.watched import is_settled
from ragstore.errors import AccessError, ConfigError
from ragstore.filters import ALWAYS, NEVER, matches
from ragstore.models import AccessAttributes, Principal

GUID = "0a1b2c3d-0000-4000-8000-00000000000f"
HOSTILE = ["' OR '1'='1", '"', "%", "\\", "$ne", "x" * 10_000, "\N{PILE OF POO}", "\0", "a\0b", "\x1f", "\x1e", "\ud800", "", " ", "*"]


def attributes(
    path: str = "reports/q3.md", *, tags: dict[str, str] | None = None, metadata: dict[str, str] | None = None
) -> AccessAttributes:
    return AccessAttributes(account="local", container="docs", path=path, tags=tags or {}, metadata=metadata or {})


def principal(id: str = "alice", *groups: str) -> Principal:
    return Principal(id=id, name=id, groups=frozenset(groups))


def rules_policy(folder: Path, text: str) -> GroupsPolicy:
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    policy = open_policy({"mode": "groups", "rules": "rules.toml"}, folder)
    assert isinstance(policy, GroupsPolicy)
    return policy


METADATA = GroupsPolicy(metadata_key="Allow")
TAGS = GroupsPolicy(tag_key="allow")


def test_open_mode_grants_everything_to_everyone_with_an_id() -> None:
    assert OpenPolicy().grants(principal("anybody at all"), attributes())
    assert OpenPolicy().filter_for(principal("anybody at all")).filter == ALWAYS


@pytest.mark.parametrize("policy", [OpenPolicy(), METADATA, TAGS], ids=["open", "metadata", "tags"])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_principal_without_an_id_gets_never_in_every_mode(policy: Policy, blank: str) -> None:
    asking = Principal(id=blank, name="", groups=frozenset({"staff"}))
    assert policy.filter_for(asking).filter == NEVER
    assert not policy.grants(asking, attributes(tags={"allow": "staff"}, metadata={"allow": "staff"}))


@pytest.mark.parametrize("ids", ["alice", "bob alice", "bob,alice", "bob, alice", " alice ", "staff", "bob,,staff"])
def test_metadata_lists_ids_separated_by_spaces_or_commas(ids: str) -> None:
    assert METADATA.grants(principal("alice", "staff"), attributes(metadata={"allow": ids}))


@pytest.mark.parametrize("metadata", [{}, {"allow": ""}, {"allow": " , "}, {"other": "alice"}, {"allow": "Alice"}, {"allow": "alice\tbob"}])
def test_an_empty_or_missing_list_is_nobody(metadata: dict[str, str]) -> None:
    blob = attributes(metadata=metadata)
    assert not METADATA.grants(principal("alice"), blob)
    assert not matches(METADATA.filter_for(principal("alice")).filter, METADATA.columns(blob, media_type="text/plain"))


def test_guids_are_compared_without_case() -> None:
    blob = attributes(metadata={"allow": GUID.upper()})
    assert METADATA.grants(principal("bob", GUID), blob)
    assert METADATA.grants(Principal(id=GUID.upper(), name="Bob"), blob)
    assert METADATA.columns(blob, media_type="").allowed == (GUID,)


def test_a_tag_list_goes_on_in_numbered_tags() -> None:
    blob = attributes(tags={"allow": "a b", "allow-1": "c", "allow-12": "d", "allow-x": "e", "allow-01": "f", "Allow": "g", "allowed": "h"})
    assert TAGS.columns(blob, media_type="").allowed == ("a", "b", "c", "d")


def test_a_comma_in_a_tag_separates_nothing() -> None:
    assert TAGS.columns(attributes(tags={"allow": "a,b c"}), media_type="").allowed == ("c",)


def test_six_guids_fit_into_one_tag() -> None:
    ids = [f"0000000{n}-0000-4000-8000-000000000000" for n in range(6)]
    value = " ".join(ids)
    assert len(value) <= 256 < len(value) + 37
    assert TAGS.columns(attributes(tags={"allow": value}), media_type="").allowed == tuple(ids)


def test_an_id_that_does_not_parse_is_reported_and_grants_nothing_to_anyone() -> None:
    blob = attributes(metadata={"allow": "alice, -x, b$b"})
    problems = METADATA.problems(blob)
    assert len(problems) == 2
    assert "'-x'" in problems[0]
    assert METADATA.columns(blob, media_type="").allowed == ("alice",)
    assert not METADATA.grants(principal("b$b"), blob)
    assert not METADATA.grants(principal("bob", "b$b", "-x"), blob)


def test_the_report_of_a_flood_of_bad_ids_is_short() -> None:
    problems = METADATA.problems(attributes(metadata={"allow": " ".join(["$" * 1000] * 1000)}))
    assert len(problems) == 6
    assert sum(map(len, problems)) < 2000


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_data(value: str) -> None:
    for policy in (METADATA, TAGS):
        blob = attributes(path=value, tags={"allow": value, value: "x"}, metadata={"allow": value, value: "x"})
        asking = principal(value, value)
        assert isinstance(policy.problems(blob), list)
        columns = policy.columns(blob, media_type=value)
        assert not any(set(text) & {"\0", "\ud800"} for text in (*columns.labels, *columns.label_keys))
        assert matches(policy.filter_for(asking).filter, columns) == policy.grants(asking, blob)


IDS = st.sampled_from(["a", "b", "A", GUID, GUID.upper(), "$x", "", "a b"])


@given(own=IDS, groups=st.frozensets(IDS), listed=st.lists(IDS), more=st.lists(IDS))
def test_the_filter_admits_all_that_is_granted(own: str, groups: frozenset[str], listed: list[str], more: list[str]) -> None:
    asking = Principal(id=own, name=own, groups=groups)
    blob = attributes(tags={"allow": " ".join(listed), "allow-1": " ".join(more)}, metadata={"allow": ",".join(listed)})
    for policy in (METADATA, TAGS):
        assert matches(policy.filter_for(asking).filter, policy.columns(blob, media_type="")) == policy.grants(asking, blob)


def test_labels_carry_tags_and_metadata() -> None:
    columns = columns_of(attributes(tags={"Dept": "HR"}, metadata={"Level": "3"}), media_type="text/plain")
    assert columns.labels == ("m\x1flevel\x1f3", "t\x1fDept\x1fHR")
    assert columns.label_keys == ("m\x1flevel", "t\x1fDept")


TEXT = st.text(st.sampled_from("ab\x1e\x1f\0\ud800"), max_size=4)


@given(first=st.tuples(TEXT, TEXT), second=st.tuples(TEXT, TEXT))
def test_different_tags_never_share_a_label(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert (label("tag", *first) == label("tag", *second)) == (first == second)
    assert (label_key("tag", first[0]) == label_key("tag", second[0])) == (first[0] == second[0])


def test_the_last_matching_rule_decides(tmp_path: Path) -> None:
    policy = rules_policy(
        tmp_path, '"**" = "staff"\n"hr/**" = ["hr-team"]\n"hr/public/**" = "staff, hr-team"\n"hr/public/secret.md" = []\n'
    )
    staff = principal("alice", "staff")
    expected = {"a.md": True, "hr/a.md": False, "hr/public/a.md": True, "hr/public/secret.md": False}
    assert {path: policy.grants(staff, attributes(path)) for path in expected} == expected


def test_no_matching_rule_is_nobody(tmp_path: Path) -> None:
    policy = rules_policy(tmp_path, '"hr/**" = "alice"')
    assert not policy.grants(principal("alice"), attributes("it/a.md"))
    assert policy.columns(attributes("it/a.md"), media_type="").allowed == ()


def test_a_rules_table_is_read_as_well(tmp_path: Path) -> None:
    policy = rules_policy(tmp_path, '"a/**" = "x"\n[rules]\n"b/**" = "y"\n')
    assert policy.grants(principal("x"), attributes("a/1"))
    assert policy.grants(principal("y"), attributes("b/1"))


def test_ids_in_the_rules_that_do_not_parse_are_reported_with_blob_and_file(tmp_path: Path) -> None:
    policy = rules_policy(tmp_path, '"a/**" = ["ok", "not ok"]')
    assert "'not ok'" in policy.problems(attributes("a/1"))[0]
    assert policy.problems(attributes("b/1")) == []
    assert "'not ok'" in policy.lint()[0]


@pytest.mark.parametrize("general", ["**", "**/*", "hr/**", "hr/private/**"])
def test_a_later_general_rule_that_makes_earlier_ones_moot_is_reported(tmp_path: Path, general: str) -> None:
    problems = rules_policy(tmp_path, f'"hr/private/*.md" = "a"\n"{general}" = "b"').lint()
    assert len(problems) == 1
    assert "never decides" in problems[0]


@pytest.mark.parametrize("later", ["it/**", "hr/private/x.md", "h*/**", "hr"])
def test_rules_that_leave_each_other_alone_are_not_reported(tmp_path: Path, later: str) -> None:
    assert rules_policy(tmp_path, f'"hr/private/*.md" = "a"\n"{later}" = "b"').lint() == []


@pytest.mark.parametrize(
    "text", ["hr/** = 'a'", '"a" = 1', '"a" = ["x", 1]', 'docs.md = "x"', '"a/[" = "x"', "\x00", '"a" = {b = "c"}', "a = " + "[" * 5000]
)
def test_rules_that_cannot_be_read_are_an_error_that_says_what_to_write(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"rules\.toml"):
        rules_policy(tmp_path, text)


def test_rules_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    policy = rules_policy(tmp_path, '"**" = "alice"')
    before = policy.fingerprint
    assert policy.grants(principal("alice"), attributes())
    (tmp_path / "rules.toml").write_text('"**" = "carol"', encoding="utf-8")
    assert not policy.grants(principal("alice"), attributes())
    assert policy.fingerprint != before


def test_a_grant_by_folder_or_name_is_found_before_the_index_is_retagged(tmp_path: Path) -> None:
    policy = rules_policy(tmp_path, '"**" = "carol"')
    paths = ("hr/a.md", "hr/b/c.md", "hr/private/d.md", "one.md", "two.md")
    stored = {path: policy.columns(attributes(path), media_type="") for path in paths}
    (tmp_path / "rules.toml").write_text('"**" = "carol"\n"hr/**" = "alice"\n"hr/private/**" = []\n"one.md" = "alice"', encoding="utf-8")
    found = {path for path in paths if matches(policy.filter_for(principal("alice")).filter, stored[path])}
    assert found == {path for path in paths if policy.grants(principal("alice"), attributes(path))} == {"hr/a.md", "hr/b/c.md", "one.md"}


GLOBS = st.sampled_from(["**", "**/*", "a/**", "a/b/**", "a/b", "a", "a/*", "**/b", "?", "a**", "[a]/**", "*/b/**"])


@given(
    rules=st.lists(st.tuples(GLOBS, st.sampled_from(["x", "y", ""])), max_size=5, unique_by=lambda rule: rule[0]),
    path=st.sampled_from(["a", "b", "a/b", "a/b/c", "a/", "ab", "b/b/c", "[a]/x"]),
)
def test_rules_as_a_filter_admit_nothing_that_is_not_granted(rules: list[tuple[str, str]], path: str) -> None:
    text = "\n".join(f'"{glob}" = "{ids}"' for glob, ids in rules)
    parsed = parse_rules(text.encode(), file=Path("rules.toml"))
    granted = "x" in parsed.ids_for(path).granted
    admitted = matches(parsed.surely_granted(frozenset({"x"})), columns_of(attributes(path), media_type=""))
    assert granted or not admitted
    if all(glob in {"**", "**/*", "a/**", "a/b/**", "a/b", "a"} for glob, _ in rules):
        assert granted == admitted


@pytest.mark.parametrize("damage", ["broken", "missing"])
def test_rules_that_become_unreadable_deny_everyone_until_they_are_mended(tmp_path: Path, damage: str) -> None:
    policy = rules_policy(tmp_path, '"**" = "alice"')
    if damage == "broken":
        (tmp_path / "rules.toml").write_text('"**" = ', encoding="utf-8")
    else:
        (tmp_path / "rules.toml").unlink()
    for _ in range(2):
        with pytest.raises(AccessError):
            policy.filter_for(principal("alice"))
        with pytest.raises(AccessError):
            policy.grants(principal("alice"), attributes())
    (tmp_path / "rules.toml").write_text('"**" = "alice"', encoding="utf-8")
    assert policy.grants(principal("alice"), attributes())


def test_a_file_is_read_again_as_long_as_another_write_could_bear_the_same_time() -> None:
    second = 1_000_000_000
    fine, coarse = 1_700_000_000 * second + 4_000_000, 1_700_000_000 * second
    assert not is_settled(fine, fine, now=fine + second // 20)
    assert is_settled(fine, fine, now=fine + second // 5)
    assert not is_settled(coarse, coarse, now=coarse + 2 * second)  # FAT has ticks of two seconds
    assert is_settled(coarse, coarse, now=coarse + 4 * second)
    assert not is_settled(fine, fine, now=fine - second)  # the clock of a server that is ahead of ours


def test_what_is_wrong_with_the_rules_is_for_the_log_and_not_for_whoever_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = rules_policy(tmp_path, '"**" = "alice"')
    (tmp_path / "rules.toml").write_text('"merger-with-acme/**" = 3', encoding="utf-8")
    for _ in range(3):
        with pytest.raises(AccessError) as refused:
            policy.filter_for(principal("alice"))
        assert "acme" not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)
    assert caplog.text.count("merger-with-acme") == 1


def test_fingerprints_tell_the_places_of_the_list_apart() -> None:
    policies = [OpenPolicy(), METADATA, TAGS, GroupsPolicy(tag_key="acl"), GroupsPolicy(metadata_key="acl")]
    assert len({policy.fingerprint for policy in policies}) == len(policies)
    assert GroupsPolicy(metadata_key="ALLOW").fingerprint == METADATA.fingerprint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "has no mode"),
        ({"mode": "azure"}, "needs assignments"),
        ({"mode": "azure", "assignments": "a.json"}, 'needs deny_assignments: .* or deny_assignments = "none"'),
        ({"mode": "azure", "assignments": "a.json", "deny_assignments": ""}, "needs deny_assignments"),
        ({"mode": "azure", "assignments": "a.json", "deny_assignments": "none"}, r"a\.json"),
        ({"mode": "azure", "assignments": "none", "deny_assignments": "none"}, "cannot read"),
        ({"mode": "azure", "assignments": "a", "deny_assignments": "none", "role_definitions": ""}, "role_definitions is empty"),
        ({"mode": "azure", "assignments": "a", "deny_assignments": "none", "accounts": "x"}, "must be a list"),
        ({"mode": "azure", "assignments": "a", "deny_assignments": "none", "accounts": [1]}, "must be a list"),
        ({"mode": "azure", "assignments": "a", "deny_assignments": "none", "tag_key": "a"}, "does not read tag_key"),
        ({"mode": "azure", "assignment": "a"}, "did you mean 'assignments'"),
        ({"mode": "groups", "tag_key": "a", "assignments": "b"}, "does not read assignments"),
        ({"mode": "open", "deny_assignments": "none"}, "does not read deny_assignments"),
        ({"mode": "group"}, "did you mean 'groups'"),
        ({"mode": "groups"}, "exactly one"),
        ({"mode": "groups", "tag_key": "a", "metadata_key": "b"}, "exactly one"),
        ({"mode": "groups", "tag_key": ""}, "is empty"),
        ({"mode": "groups", "tagkey": "a"}, "did you mean 'tag_key'"),
        ({"mode": "groups", "tag_key": 1}, "must be a string"),
        ({"mode": "groups", "rules": "missing.toml"}, r"missing\.toml"),
        ({"mode": "groups", "rules": "\0"}, "cannot read"),
        ({"mode": "open", "tag_key": "a"}, "has no effect"),
        ({"mode": ["open"]}, "unknown"),
    ],
)
def test_a_wrong_access_table_is_an_error_that_says_what_to_do(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_policy(settings, tmp_path)


def test_options_that_are_none_count_as_absent(tmp_path: Path) -> None:
    assert open_policy({"mode": "open", "tag_key": None, "rules": None, "assignments": None, "accounts": ()}, tmp_path).mode == "open"
    assert open_policy({"mode": "groups", "tag_key": "a", "principals": "p.json"}, tmp_path).mode == "groups"


def test_attributes_beside_the_list_never_grant() -> None:
    blob = dataclasses.replace(attributes(path="alice", tags={"owner": "alice"}, metadata={"owner": "alice"}), acl="user:alice:rwx")
    assert not METADATA.grants(principal("alice"), blob)
    assert not TAGS.grants(principal("alice"), blob)
