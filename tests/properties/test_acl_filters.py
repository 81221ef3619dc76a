"""The filter that ACLs compile to, against what they say blob by blob."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ragstore.access import acl_table
from ragstore.access.acl import UNREADABLE, Acl, Caller, can, folders_above, parse_acl
from ragstore.access.acl_table import AclTable
from ragstore.access.labels import acl_label
from ragstore.filters import matches
from ragstore.models import AccessAttributes, AccessColumns, Principal

IDS = ["ann", "bob", "crew", "team", "$superuser"]
rights = st.integers(0, 7)
names = st.sampled_from(IDS)
segments = st.sampled_from(["a", "b", "ab", "A", "%", "_", "é"])
paths = st.lists(segments, max_size=3).map("/".join)


@st.composite
def acls(draw: st.DrawFn) -> Acl:
    users = draw(st.dictionaries(names, rights, max_size=2))
    groups = draw(st.dictionaries(names, rights, max_size=2))
    mask = draw(rights) if users or groups else draw(st.none() | rights)
    return Acl(
        owner=draw(names),
        group=draw(names),
        owner_rights=draw(rights),
        group_rights=draw(rights),
        other_rights=draw(rights),
        mask=mask,
        users=users,
        groups=groups,
    )


texts = acls().map(Acl.to_text) | st.just(UNREADABLE)
principals = st.builds(
    Principal, id=st.sampled_from(["ann", "bob", "", "$superuser"]), name=st.just("x"), groups=st.frozensets(st.sampled_from(IDS))
)


@given(acl=acls())
def test_what_is_printed_parses_to_the_same(acl: Acl) -> None:
    assert parse_acl(acl.to_text()) == acl


@given(acl=acls(), caller=st.builds(Caller, id=names, groups=st.frozensets(names)), wanted=rights, more=rights)
def test_whoever_may_do_more_may_do_less(acl: Acl, caller: Caller, wanted: int, more: int) -> None:
    if can(acl, caller, wanted | more):
        assert can(acl, caller, wanted)


@st.composite
def tables(draw: st.DrawFn) -> tuple[AclTable, list[AccessAttributes]]:
    """A table as the ledger keeps it: it has every folder above every blob, those that were never read with an unreadable ACL."""
    kinds = draw(st.lists(texts, min_size=1, max_size=4))
    of_kind = st.sampled_from(kinds)
    blobs = [
        AccessAttributes(account="acme", container=container, path=path, acl=draw(of_kind | st.none()))
        for container, path in draw(st.lists(st.tuples(st.sampled_from(["one", "two"]), paths.filter(bool)), max_size=12))
    ]
    folders: dict[tuple[str, str], dict[str, str]] = {}
    for blob in blobs:
        if blob.acl is not None:
            for folder in folders_above(blob.path):
                folders.setdefault((blob.account, blob.container), {}).setdefault(folder, draw(of_kind))
    return AclTable(folders=folders, files=frozenset(blob.acl for blob in blobs if blob.acl is not None)), blobs


@given(known=tables(), principal=principals, most=st.sampled_from([0, 1, 500]))
@example(known=(AclTable(), []), principal=Principal(id="ann", name="x"), most=500)
def test_the_filter_finds_all_that_is_readable_and_where_exact_nothing_else(
    known: tuple[AclTable, list[AccessAttributes]], principal: Principal, most: int
) -> None:
    table, blobs = known
    usual = acl_table.MOST_PREFIXES
    acl_table.MOST_PREFIXES = most  # type: ignore[misc]
    try:
        filter_, exact = table.filter_for(principal)
    finally:
        acl_table.MOST_PREFIXES = usual  # type: ignore[misc]
    for blob in blobs:
        labels = () if blob.acl is None else (acl_label(blob.acl),)
        found = matches(filter_, AccessColumns(account=blob.account, container=blob.container, path=blob.path, labels=labels))
        readable = table.readable(principal, blob)
        assert found or not readable, blob
        assert not exact or found == readable, blob
