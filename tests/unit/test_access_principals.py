from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragstore.access import LOCAL_PRINCIPAL, Principals, open_principals, principal_for
from ragstore.access.principals import access_digest, condition_attributes
from ragstore.errors import AccessError, ConfigError
from ragstore.models import Principal

GUID = "0a1b2c3d-0000-4000-8000-00000000000f"


def load(folder: Path, document: object) -> Principals:
    file = folder / "principals.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return open_principals({"principals": "principals.json"}, folder)


ENTRIES = [
    {
        "id": GUID.upper(),
        "name": "Alice",
        "groups": ["staff", GUID.upper()],
        "attributes": {"Eng_Project": ["Baker", "Cascade"], "n": 7, "b": True},
    },
    {"id": "bob"},
    {"id": "carol-1", "name": "Carol"},
    {"id": "carol-2", "name": "Carol"},
]


@pytest.mark.parametrize("document", [ENTRIES, {"principals": ENTRIES}], ids=["list", "object"])
@pytest.mark.parametrize("wanted", ["Alice", GUID, GUID.upper()])
def test_a_principal_is_found_by_name_and_by_id(tmp_path: Path, document: object, wanted: str) -> None:
    alice = load(tmp_path, document).get(wanted)
    assert alice == Principal(
        id=GUID,
        name="Alice",
        groups=frozenset({"staff", GUID}),
        attributes={"Eng_Project": ("Baker", "Cascade"), "n": (7,), "b": (True,)},
    )


def test_the_name_is_the_id_where_it_is_missing(tmp_path: Path) -> None:
    assert load(tmp_path, ENTRIES).get("bob") == Principal(id="bob", name="bob")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Carol", "ambiguous"),
        ("alice", "did you mean 'Alice'"),
        ("' OR '1'='1", "unknown"),
        ("\0", "unknown"),
        ("x" * 10_000, "unknown"),
        ("", "unknown; name one by its id or name"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        load(tmp_path, ENTRIES).get(name)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("mode", ["groups", "open"])
def test_a_name_never_takes_over_an_id(tmp_path: Path, mode: str) -> None:
    principals = load(tmp_path, [{"id": "y", "name": "bob"}, {"id": "bob", "name": "x"}, {"id": "z", "name": "bob"}])
    assert principal_for(mode, principals, "bob").name == "x"


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "[" * 100_000,
        "7",
        "{}",
        [7],
        [{"name": "Alice"}],
        [{"id": ""}],
        [{"id": 7}],
        [{"id": "a b"}],
        [{"id": "a", "name": " "}],
        [{"id": "a", "group": ["x"]}],
        [{"id": "a", "groups": "x"}],
        [{"id": "a", "groups": ["not ok"]}],
        [{"id": "a", "groups": [None]}],
        [{"id": "a", "attributes": []}],
        [{"id": "a", "attributes": {"x": None}}],
        [{"id": "a"}, {"id": "a"}],
        [{"id": GUID}, {"id": GUID.upper()}],
        '[{"id": "a", "groups": ["x"], "groups": []}]',
    ],
)
def test_a_file_that_is_wrong_is_an_error_that_names_it(tmp_path: Path, document: object) -> None:
    with pytest.raises(ConfigError, match=r"principals\.json"):
        load(tmp_path, document)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot read '[^']*none\.json': No such file or directory; bring the file back"):
        Principals.load(tmp_path / "none.json")


def test_more_than_we_read_may_stand_in_an_entry(tmp_path: Path) -> None:
    assert load(tmp_path, [{"id": "a", "userPrincipalName": "a@example.com"}]).get("a").id == "a"


def test_a_principal_taken_out_of_the_file_is_unknown_at_once(tmp_path: Path) -> None:
    principals = load(tmp_path, [{"id": "a"}, {"id": "b"}])
    assert principals.get("a").id == "a"
    load(tmp_path, [{"id": "b"}])
    with pytest.raises(ConfigError, match="unknown"):
        principals.get("a")


def test_a_file_that_becomes_unreadable_denies(tmp_path: Path) -> None:
    principals = load(tmp_path, [{"id": "a"}])
    (tmp_path / "principals.json").write_text("[", encoding="utf-8")
    with pytest.raises(AccessError):
        principals.get("a")


def test_in_open_mode_any_name_will_do_and_none_is_the_local_user() -> None:
    assert principal_for("open", Principals(), None) == LOCAL_PRINCIPAL
    assert principal_for("open", Principals(), "any one").id == "any one"


def test_in_open_mode_a_known_principal_keeps_its_groups(tmp_path: Path) -> None:
    assert principal_for("open", load(tmp_path, ENTRIES), "Alice").groups == {"staff", GUID}


@pytest.mark.parametrize("name", [None, "", " ", "nobody"])
def test_in_groups_mode_a_missing_or_unknown_principal_is_an_error(tmp_path: Path, name: str | None) -> None:
    with pytest.raises(ConfigError):
        principal_for("groups", load(tmp_path, ENTRIES), name)
    with pytest.raises(ConfigError):
        principal_for("groups", Principals(), name)


SET = {
    "@odata.type": "#microsoft.graph.customSecurityAttributeValue",
    "Engineering": {
        "@odata.type": "#Microsoft.DirectoryServices.CustomSecurityAttributeValue",
        "Project@odata.type": "#Collection(String)",
        "Project": ["Baker", "Cascade"],
        "NumVendors@odata.type": "#Int32",
        "NumVendors": 4,
        "Certification": True,
    },
}
FULL = "Microsoft.Directory/CustomSecurityAttributes/Id:"


@pytest.mark.parametrize(
    "attributes",
    [
        SET,
        {"Engineering_Project": ["Baker", "Cascade"], "Engineering_NumVendors": 4, "Engineering_Certification": True},
        {f"{FULL}Engineering_Project": ["Baker", "Cascade"], "Engineering": {"NumVendors": [4]}, "Engineering_Certification": [True]},
    ],
    ids=["as Graph gives it", "short", "mixed"],
)
def test_conditions_see_attributes_under_their_full_names_and_in_their_types(tmp_path: Path, attributes: object) -> None:
    seen = condition_attributes(load(tmp_path, [{"id": "a", "attributes": attributes}]).get("a"))
    assert seen == {
        f"{FULL}Engineering_Project": ("Baker", "Cascade"),
        f"{FULL}Engineering_NumVendors": 4,
        f"{FULL}Engineering_Certification": True,
    }
    assert seen[f"{FULL}Engineering_Certification"] is True


def test_an_attribute_without_values_is_missing(tmp_path: Path) -> None:
    assert condition_attributes(load(tmp_path, [{"id": "a", "attributes": {"x": []}}]).get("a")) == {}


@pytest.mark.parametrize(
    "attributes",
    [
        {"Eng_P": "a", "eng_p": "b"},
        {"Eng_P": "a", "Eng": {"P": "b"}},
        {"Eng_P": "a", FULL.lower() + "Eng_P": "b"},
        {"Eng_P": 1.5},
        {"Eng_P": [["a"]]},
        {"Eng": {"P": {"x": "a"}}},
        {"Eng": {"P": None}},
        {"Microsoft.Directory/Other:P": "a"},
        {" ": "a"},
    ],
)
def test_an_attribute_that_is_there_twice_or_is_none_is_an_error(tmp_path: Path, attributes: object) -> None:
    with pytest.raises(ConfigError, match="attribute"):
        load(tmp_path, [{"id": "a", "attributes": attributes}])


def test_two_names_of_one_attribute_from_the_host_deny() -> None:
    with pytest.raises(AccessError, match="twice"):
        condition_attributes(Principal(id="a", name="a", attributes={"Eng_P": ("x",), f"{FULL}eng_p": ("y",)}))


def test_an_environment_is_never_read_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host vouches"):
        load(tmp_path, [{"id": "a", "environment": {"isPrivateLink": True}}])


def test_one_text_is_no_list_of_groups_or_values() -> None:
    with pytest.raises(TypeError):
        Principal(id="a", name="a", groups="staff")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Principal(id="a", name="a", attributes={"x": "abc"})  # type: ignore[dict-item]


def test_the_digest_is_that_of_all_that_decides_and_of_nothing_else() -> None:
    facts: dict[str, Any] = {
        "id": "a",
        "groups": frozenset({"g", "h"}),
        "attributes": {"x": (1,), "y": ("a", "b")},
        "environment": {"isPrivateLink": True},
    }
    digest = access_digest(Principal(name="A", **facts))
    assert digest == access_digest(Principal(name="B", **{**facts, "attributes": {"y": ("a", "b"), "x": (1,)}}))
    assert digest == "51edc8cf084240d44a0eb60adaf7debd"
    others: list[dict[str, Any]] = [
        {"id": "b"},
        {"groups": frozenset({"g"})},
        {"groups": frozenset({"g\nh"})},
        {"groups": frozenset({"g\nh", "i"})},
        {"groups": frozenset({"g", "h\ni"})},
        {"groups": frozenset({"\ud800"})},
        {"attributes": {"x": ("1",), "y": ("a", "b")}},
        {"attributes": {"x": (True,), "y": ("a", "b")}},
        {"attributes": {"x": (1,), "y": ("a,b",)}},
        {"environment": {}},
        {"environment": {"isPrivateLink": "true"}},
    ]
    digests = {access_digest(Principal(name="A", **{**facts, **other})) for other in others}
    assert len(digests | {digest}) == len(others) + 1
