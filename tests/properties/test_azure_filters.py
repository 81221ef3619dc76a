"""The filter of mode `azure` against its decisions, over random assignments, denials, conditions, ACLs and blobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragstore.access.acl import folders_above
from ragstore.access.acl_table import AclTable
from ragstore.access.conditions.printing import to_text
from ragstore.models import AccessAttributes, Principal
from ragstore.testing.conditions import WORDS, access_attributes, conditions
from tests.support.azure_files import (
    CLOSED_FILE,
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

SCOPES = st.sampled_from(
    [account("acct"), account("other"), container("red", "acct"), container("docs", "other"), GROUP, SUBSCRIPTION, "/", f"{GROUP}2"]
)
HOLDERS = st.sampled_from(["p", "g1", "g2", "stranger"])
TEXTS = st.none() | conditions().map(to_text)
GRANTS = st.builds(
    lambda holder, role, scope, text: assigned(holder, role, scope=scope, condition=text),
    HOLDERS,
    st.sampled_from([READER, OWNER]),
    SCOPES,
    TEXTS,
)
DENIALS = st.builds(
    lambda holders, scope, text, excluded: denied(*holders, scope=scope, condition=text, excluded=excluded),
    st.lists(HOLDERS, max_size=2),
    SCOPES,
    TEXTS,
    st.lists(HOLDERS, max_size=1),
)
PRINCIPALS = st.builds(
    Principal,
    id=st.just("p"),
    name=st.just("p"),
    groups=st.frozensets(st.sampled_from(["g1", "g2"])),
    attributes=st.dictionaries(
        st.sampled_from(["Set_Project", "Set_Level"]), st.lists(st.sampled_from([*WORDS, 10, True]), max_size=2).map(tuple), max_size=2
    ),
    environment=st.fixed_dictionaries({}, optional={"isPrivateLink": st.booleans()}),
)
ACLS = st.sampled_from([acl(OPEN_FILE), acl(CLOSED_FILE), acl("user::rwx,group::---,group:g1:r-x,mask::r-x,other::--x")])
BLOBS_OF_BOTH = st.builds(
    lambda attributes, text: replace(attributes, acl=text if attributes.account == "other" else None), access_attributes(), ACLS
)
FOLDERS: Iterator[int] = count()
MAY_2023 = 1_682_946_000_000_000_000


def table_of(blobs: list[AccessAttributes], folder_acl: str) -> AclTable:
    folders: dict[tuple[str, str], dict[str, str]] = {}
    for one in blobs:
        if one.acl is not None:
            folders.setdefault((one.account, one.container), {}).update(dict.fromkeys(folders_above(one.path), folder_acl))
    return AclTable(version="1", folders=folders, files=frozenset(one.acl for one in blobs if one.acl is not None))


@given(
    grants=st.lists(GRANTS, min_size=1, max_size=5),
    denials=st.lists(DENIALS, max_size=1),
    asking=PRINCIPALS,
    blobs=st.lists(BLOBS_OF_BOTH, min_size=1, max_size=6),
    folder_acl=ACLS,
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_filter_loses_nothing_that_is_granted_and_an_exact_one_admits_nothing_else(
    tmp_path: Path, grants: list[object], denials: list[object], asking: Principal, blobs: list[AccessAttributes], folder_acl: str
) -> None:
    folder = tmp_path / str(next(FOLDERS))
    folder.mkdir()
    table = table_of(blobs, folder_acl)
    policy = policy_of(folder, grants, deny=denials, accounts=[account("acct")], acls=lambda: table, clock=lambda: MAY_2023)
    for attributes in blobs:
        granted = reads(policy, asking, attributes)
        explanation = policy.explain(asking, attributes)
        assert explanation.allowed is granted
        outcomes = {reason.outcome for reason in explanation.reasons}
        assert granted is ("denies" not in outcomes and ("grants" in outcomes or ("passes" in outcomes and "stops" not in outcomes)))
