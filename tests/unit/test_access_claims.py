"""Verified claims and a directory in memory in; the principal, or the error instead of one with too few groups, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from ragstore.access.claims import principal_of_claims
from ragstore.contracts import GroupResolver
from ragstore.errors import AccessError, TransientError
from ragstore.models import AttributeScalar, Principal

ALICE = "0a1b2c3d-0000-4000-8000-00000000000f"
STAFF = "5a1b2c3d-0000-4000-8000-00000000000a"
LEGAL = "6a1b2c3d-0000-4000-8000-00000000000b"
OVERAGE = {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://elsewhere.example/getMemberObjects"}}}


class Directory(GroupResolver):
    """One that knows Alice."""

    def __init__(self, *groups: str, attributes: Mapping[str, tuple[AttributeScalar, ...]] | None = None) -> None:
        self.known = frozenset(groups)
        self.assigned = attributes or {}
        self.asked: list[str] = []

    @override
    async def groups(self, object_id: str) -> frozenset[str]:
        self.asked.append(object_id)
        return self.known

    @override
    async def attributes(self, object_id: str) -> Mapping[str, tuple[AttributeScalar, ...]]:
        return self.assigned

    @override
    async def close(self) -> None:
        """Nothing to give back."""


class Down(Directory):
    """One that cannot be reached."""

    @override
    async def groups(self, object_id: str) -> frozenset[str]:
        raise TransientError("down")


async def test_the_id_is_oid_and_the_groups_are_those_of_the_token() -> None:
    claims = {"oid": ALICE.upper(), "sub": "s", "upn": "u", "name": "Alice", "groups": [STAFF.upper(), LEGAL]}
    assert await principal_of_claims(claims, None) == Principal(id=ALICE, name="Alice", groups=frozenset({STAFF, LEGAL}))


async def test_a_list_of_groups_in_the_token_asks_nobody_and_an_empty_one_is_no_groups() -> None:
    directory = Directory(LEGAL)
    assert (await principal_of_claims({"oid": ALICE, "groups": [STAFF]}, directory)).groups == {STAFF}
    assert (await principal_of_claims({"oid": ALICE, "groups": []}, directory)).groups == frozenset()
    assert directory.asked == []


async def test_an_app_is_a_principal_by_the_oid_of_its_service_principal() -> None:
    claims = {"oid": ALICE, "idtyp": "app", "roles": ["Reader"], "appid": LEGAL, "app_displayname": "Indexer"}
    assert await principal_of_claims(claims, Directory(STAFF)) == Principal(id=ALICE, name="Indexer", groups=frozenset({STAFF}))


@pytest.mark.parametrize(
    ("claims", "name"),
    [({"name": "A", "preferred_username": "B"}, "A"), ({"name": " ", "preferred_username": "B"}, "B"), ({"name": 7}, ALICE), ({}, ALICE)],
)
async def test_the_name_is_for_people_only(claims: dict[str, Any], name: str) -> None:
    assert (await principal_of_claims({"oid": ALICE, "groups": [], **claims}, None)).name == name


@pytest.mark.parametrize("oid", [None, "", " ", 7, [ALICE], "alice", "alice@example.com", f"{ALICE} ", f"{ALICE}\n"])
async def test_without_an_object_id_there_is_no_principal(oid: object) -> None:
    with pytest.raises(AccessError, match="oid"):
        await principal_of_claims({"oid": oid, "sub": ALICE, "upn": "alice", "groups": []}, None)
    with pytest.raises(AccessError, match="oid"):
        await principal_of_claims({"sub": ALICE, "groups": []}, None)


@pytest.mark.parametrize(
    "marker",
    [
        OVERAGE,
        {"_claim_names": {"groups": "src1"}},
        {"_claim_names": "groups"},
        {"_claim_names": None},
        {"_claim_sources": {}},
        {"hasgroups": True},
        {"hasgroups": "true"},
        {"hasgroups": []},
        {"hasgroups": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("groups_claim", ["sometimes", "always", "ignored"])
@pytest.mark.parametrize("also", [{}, {"groups": [LEGAL]}, {"groups": []}], ids=["absent", "partial", "empty"])
async def test_an_overage_marker_asks_the_directory_whatever_else_is_said(marker: Any, groups_claim: Any, also: dict[str, Any]) -> None:
    claims = {"oid": ALICE, **marker, **also}
    directory = Directory(STAFF)
    assert (await principal_of_claims(claims, directory, groups_claim=groups_claim)).groups == {STAFF}
    assert directory.asked == [ALICE]
    with pytest.raises(AccessError, match=r"access\.graph"):
        await principal_of_claims(claims, None, groups_claim=groups_claim)


@pytest.mark.parametrize("claims", [{}, {"hasgroups": False}, {"hasgroups": "false"}, {"_claim_names": {"address": "src1"}}], ids=str)
async def test_absent_groups_are_no_groups_only_where_tokens_always_carry_them(claims: dict[str, Any]) -> None:
    token = {"oid": ALICE, **claims}
    assert (await principal_of_claims(token, Directory(STAFF))).groups == {STAFF}
    with pytest.raises(AccessError, match="groups_claim = 'always'"):
        await principal_of_claims(token, None)
    assert (await principal_of_claims(token, None, groups_claim="always")).groups == frozenset()
    assert (await principal_of_claims(token, Directory(STAFF), groups_claim="always")).groups == frozenset()


async def test_an_ignored_claim_leaves_the_groups_to_the_directory() -> None:
    claims = {"oid": ALICE, "groups": [LEGAL]}
    assert (await principal_of_claims(claims, Directory(STAFF), groups_claim="ignored")).groups == {STAFF}
    with pytest.raises(AccessError):
        await principal_of_claims(claims, None, groups_claim="ignored")


@pytest.mark.parametrize(
    "groups", [STAFF, {STAFF: 1}, None, 7, [STAFF, "staff"], [STAFF, None], [STAFF, ""], [[STAFF]], [f"{STAFF} {LEGAL}"]], ids=str
)
@pytest.mark.parametrize("groups_claim", ["sometimes", "always"])
async def test_groups_that_are_no_list_of_ids_refuse_the_token(groups: object, groups_claim: Any) -> None:
    with pytest.raises(AccessError, match="groups"):
        await principal_of_claims({"oid": ALICE, "groups": groups}, Directory(STAFF), groups_claim=groups_claim)


async def test_ids_of_other_issuers_count_where_that_is_said() -> None:
    claims = {"oid": "alice", "groups": ["staff", STAFF.upper()]}
    assert await principal_of_claims(claims, None, ids="any") == Principal(id="alice", name="alice", groups=frozenset({"staff", STAFF}))
    with pytest.raises(AccessError, match="no id"):
        await principal_of_claims({"oid": "alice", "groups": ["two words"]}, None, ids="any")


async def test_a_directory_that_names_a_group_without_an_id_gives_no_principal() -> None:
    with pytest.raises(AccessError, match="directory names"):
        await principal_of_claims({"oid": ALICE}, Directory(STAFF, "staff"))


async def test_a_directory_that_is_down_gives_no_principal() -> None:
    with pytest.raises(TransientError):
        await principal_of_claims({"oid": ALICE}, Down())


async def test_attributes_are_those_of_the_host_or_else_of_the_directory() -> None:
    claims = {"oid": ALICE, "groups": []}
    directory = Directory(attributes={"Eng_Project": ("Baker",)})
    assert (await principal_of_claims(claims, directory)).attributes == {"Eng_Project": ("Baker",)}
    assert (await principal_of_claims(claims, directory, attributes={})).attributes == {}
    assert (await principal_of_claims(claims, None, attributes={"n": (7,)})).attributes == {"n": (7,)}
    assert (await principal_of_claims(claims, None)).attributes == {}


async def test_the_environment_is_what_the_host_vouches_for_and_no_claim() -> None:
    claims = {"oid": ALICE, "groups": [], "environment": {"isPrivateLink": True}, "isPrivateLink": True}
    assert (await principal_of_claims(claims, None)).environment == {}
    assert (await principal_of_claims(claims, None, environment={"isPrivateLink": True})).environment == {"isPrivateLink": True}
