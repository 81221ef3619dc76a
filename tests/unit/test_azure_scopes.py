from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.access.azure.scopes import Accounts, AzureScope, accounts_of, joined, parse_scope, reach_of_denial, reach_of_grant
from ragstore.access.conditions.evaluation import evaluate
from ragstore.access.conditions.resource import resource_of
from ragstore.access.conditions.tree import Context
from ragstore.errors import ConfigError
from ragstore.models import AccessAttributes

GROUP = "/subscriptions/s1/resourceGroups/rg1"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/acc"
CONTAINER = f"{ACCOUNT}/blobServices/default/containers/docs"


def scope(text: str) -> AzureScope:
    found = parse_scope(text)
    assert found is not None
    return found


def accounts(*told: str, scopes: tuple[str, ...] = ()) -> Accounts:
    return accounts_of(told, [scope(text) for text in scopes])


def grants(text: str, known: Accounts, account: str = "acc", container: str = "docs") -> bool:
    return reach_of_grant(scope(text), known).covers(account, container)


def denies(text: str, known: Accounts, account: str = "acc", container: str = "docs", *, only_itself: bool = False) -> bool:
    return reach_of_denial(scope(text), known, only_itself=only_itself).covers(account, container)


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "/providers/Microsoft.Management/managementGroups/all",
        "/subscriptions/s1",
        GROUP,
        ACCOUNT,
        f"{ACCOUNT}/blobServices/default",
        CONTAINER,
        f"{CONTAINER}/",
        CONTAINER.upper(),
        GROUP.lower(),
    ],
)
def test_a_scope_covers_the_blobs_below_it_whatever_the_case(text: str) -> None:
    known = accounts(ACCOUNT)
    assert grants(text, known)
    assert denies(text, known)


@pytest.mark.parametrize(
    "text",
    [
        "/subscriptions/s2",
        "/subscriptions/s",
        "/subscriptions/s1/resourceGroups/rg",
        "/subscriptions/s2/resourceGroups/rg1",
        f"{ACCOUNT}2",
        ACCOUNT.removesuffix("c"),
        CONTAINER.removesuffix("s"),
        f"{CONTAINER}2",
        f"{ACCOUNT}/queueServices/default",
        f"{ACCOUNT}/queueServices/default/queues/docs",
        f"{ACCOUNT}/fileServices/default/fileshares/docs",
        f"{ACCOUNT}/tableServices/default/tables/docs",
        f"{GROUP}/providers/Microsoft.Compute/virtualMachines/acc",
        "/subscriptions/s1/providers/Microsoft.Storage/whatever",
    ],
)
def test_a_scope_beside_the_blob_neither_grants_nor_denies(text: str) -> None:
    known = accounts(ACCOUNT)
    assert not grants(text, known)
    assert not denies(text, known)


@pytest.mark.parametrize(
    "text", ["", " ", "subscriptions/s1", "/subscriptions", "/subscriptions/", "/subscriptions//x", "/x", f" {GROUP}", GROUP + "//x"]
)
def test_what_is_no_arm_id_is_no_scope(text: str) -> None:
    assert parse_scope(text) is None


@pytest.mark.parametrize("text", [f"{CONTAINER}/blobs/a.md", f"{ACCOUNT}/blobServices", f"{ACCOUNT}/blobServices/other"])
def test_a_scope_that_no_blob_has_grants_nothing_and_denies_all_around_it(text: str) -> None:
    known = accounts(ACCOUNT)
    assert not grants(text, known)
    assert reach_of_grant(scope(text), known).doubt
    assert denies(text, known)


@pytest.mark.parametrize("text", ["/subscriptions/s1", GROUP])
def test_without_the_place_of_the_account_wide_scopes_grant_nothing_and_deny(text: str) -> None:
    known = accounts(scopes=(text,))
    assert not grants(text, known)
    assert "[access] accounts" in (reach_of_grant(scope(text), known).doubt or "")
    assert denies(text, known)


def test_another_scope_that_names_the_account_tells_where_it_lies() -> None:
    known = accounts(scopes=(GROUP, f"{ACCOUNT}/queueServices/default", CONTAINER.replace("/docs", "/other")))
    assert grants(GROUP, known)
    assert grants("/subscriptions/S1", known)
    assert not grants(GROUP, known, account="another")
    assert denies(GROUP, known, account="another")


def test_an_account_in_two_places_is_in_none_until_it_is_told() -> None:
    moved = ACCOUNT.replace("rg1", "rg2")
    known = accounts(scopes=(ACCOUNT, moved))
    for text in (GROUP, ACCOUNT, moved, CONTAINER):
        assert not grants(text, known)
        assert denies(text, known)
    told = accounts(ACCOUNT, scopes=(ACCOUNT, moved))
    assert grants(GROUP, told)
    assert grants(CONTAINER, told)
    assert not grants(moved, told)
    assert denies(moved, told)


def test_management_groups_reach_the_only_subscription_of_an_export() -> None:
    known = accounts(scopes=("/subscriptions/s1/resourceGroups/other",))
    assert grants("/providers/Microsoft.Management/managementGroups/all", known)
    assert grants("/", accounts())


def test_management_groups_reach_no_unknown_account_where_there_are_several_subscriptions() -> None:
    for text in ("/", "/providers/Microsoft.Management/managementGroups/all"):
        unknown = accounts(scopes=("/subscriptions/s1", "/subscriptions/s2"))
        assert not grants(text, unknown)
        assert reach_of_grant(scope(text), unknown).doubt
        assert denies(text, unknown)
        assert grants(text, accounts(ACCOUNT, scopes=("/subscriptions/s1", "/subscriptions/s2")))
        assert not grants(text, accounts(ACCOUNT, scopes=("/subscriptions/s2",)))


def test_a_denial_that_leaves_out_child_scopes_is_about_containers_at_most() -> None:
    known = accounts(ACCOUNT)
    for text in ("/", "/subscriptions/s1", GROUP, ACCOUNT, f"{ACCOUNT}/blobServices/default"):
        assert not denies(text, known, only_itself=True)
    assert denies(CONTAINER, known, only_itself=True)


def test_a_name_that_only_looks_alike_is_another() -> None:
    known = accounts(ACCOUNT.replace("acc", "kacc"))
    assert not grants(ACCOUNT.replace("acc", "kacc"), known, account="\N{KELVIN SIGN}acc")


@pytest.mark.parametrize("text", ["acc", GROUP, CONTAINER, "/", ""])
def test_an_account_that_is_told_must_be_the_id_of_one(text: str) -> None:
    with pytest.raises(ConfigError, match="is not the id of a storage account"):
        accounts(text)


def test_an_account_told_twice_in_two_places_is_an_error() -> None:
    with pytest.raises(ConfigError, match="two places"):
        accounts(ACCOUNT, ACCOUNT.replace("rg1", "rg2"))


NAMES = st.sampled_from(["a", "b"])
SCOPES = st.builds(
    lambda parts, depth: "".join(parts[:depth]) or "/",
    st.tuples(
        st.builds("/subscriptions/{}".format, NAMES),
        st.builds("/resourceGroups/{}".format, NAMES),
        st.builds("/providers/Microsoft.Storage/storageAccounts/{}".format, NAMES),
        st.sampled_from(["/blobServices/default", "/queueServices/default"]),
        st.builds("/containers/{}".format, NAMES),
    ),
    st.integers(0, 5),
)


@given(
    texts=st.lists(SCOPES, min_size=1, max_size=6),
    account=st.sampled_from(["a", "b", "c", "A"]),
    container=st.sampled_from(["a", "b", "B"]),
)
def test_the_condition_of_a_reach_says_the_same_and_a_denial_never_reaches_less(texts: list[str], account: str, container: str) -> None:
    known = accounts(scopes=tuple(texts))
    resource, tags = resource_of(AccessAttributes(account=account, container=container, path="p"))
    granted = reach_of_grant(scope(texts[0]), known)
    denied = reach_of_denial(scope(texts[0]), known)
    for reach in (granted, denied):
        assert reach.covers(account, container) is (evaluate(joined([reach]), Context(resource=resource, tags=tags)) is True)
    assert denied.covers(account, container) or not granted.covers(account, container)
    reaches = [reach_of_grant(scope(text), known) for text in texts]
    covered = any(reach.covers(account, container) for reach in reaches)
    assert covered is (evaluate(joined(reaches), Context(resource=resource, tags=tags)) is True)
