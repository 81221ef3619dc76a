from __future__ import annotations

import pytest

from ragstore.access.acl import EXECUTE, READ, SUPERUSER, UNREADABLE, WRITE, Acl, Caller, acl_text, can, decide, folders_above, parse_acl
from ragstore.models import Principal

OWNER = "0a000000-0000-0000-0000-000000000001"
ALICE = "0a000000-0000-0000-0000-000000000002"
STAFF = "0b000000-0000-0000-0000-000000000001"
BOARD = "0b000000-0000-0000-0000-000000000002"
OWNING = "0b000000-0000-0000-0000-000000000003"


def acl_of(entries: str, *, owner: str = OWNER, group: str = OWNING) -> Acl:
    parsed = parse_acl(acl_text(owner=owner, group=group, permissions=None, acl=entries))
    assert parsed is not None, entries
    return parsed


def caller(id: str, *groups: str, superuser: bool = False) -> Caller:
    return Caller(id=id, groups=frozenset(groups), superuser=superuser)


# -- the rules in their order


def test_a_superuser_may_do_everything() -> None:
    nothing = acl_of("user::---,group::---,other::---")
    assert can(nothing, caller(ALICE, superuser=True), READ | WRITE | EXECUTE)
    assert can(None, caller(ALICE, superuser=True), READ)


def test_the_owners_entry_is_not_masked() -> None:
    for mask in ("---", "--x", "-w-"):
        acl = acl_of(f"user::rw-,user:{ALICE}:rw-,group::r--,mask::{mask},other::---")
        assert can(acl, caller(OWNER), READ | WRITE)
        assert not can(acl, caller(ALICE), READ)


def test_the_owner_is_denied_by_its_entry_whatever_groups_and_others_may_do() -> None:
    acl = acl_of(f"user::-w-,user:{OWNER}:rwx,group::rwx,group:{STAFF}:rwx,mask::rwx,other::rwx")
    assert not can(acl, caller(OWNER, OWNING, STAFF), READ)


def test_a_named_user_is_denied_by_its_entry_whatever_its_groups_may_do() -> None:
    acl = acl_of(f"user::rwx,user:{ALICE}:---,group::rwx,group:{STAFF}:r--,mask::rwx,other::r--")
    assert not can(acl, caller(ALICE, STAFF, OWNING), READ)


def test_a_named_users_entry_is_masked() -> None:
    acl = acl_of(f"user::rwx,user:{ALICE}:rwx,group::rwx,mask::-wx,other::r--")
    assert can(acl, caller(ALICE), WRITE | EXECUTE)
    assert not can(acl, caller(ALICE), READ)


def test_the_owning_group_and_named_groups_grant() -> None:
    acl = acl_of(f"user::---,group::r--,group:{STAFF}:-w-,mask::rwx,other::---")
    assert can(acl, caller(ALICE, OWNING), READ)
    assert can(acl, caller(ALICE, STAFF), WRITE)
    assert not can(acl, caller(ALICE, BOARD), READ)


def test_one_single_entry_of_the_groups_must_have_all_that_is_wanted() -> None:
    acl = acl_of(f"user::---,group::r--,group:{STAFF}:--x,mask::rwx,other::---")
    member = caller(ALICE, OWNING, STAFF)
    assert can(acl, member, READ)
    assert can(acl, member, EXECUTE)
    assert not can(acl, member, READ | EXECUTE)


def test_groups_that_the_mask_cuts_fall_through_to_the_entry_of_all_others_which_it_cuts_as_well() -> None:
    acl = acl_of(f"user::rwx,group::rwx,group:{STAFF}:rwx,mask::--x,other::r-x")
    assert not can(acl, caller(ALICE, STAFF), READ)
    assert can(acl, caller(ALICE, STAFF), EXECUTE)
    assert not can(acl, caller(ALICE), READ)


def test_a_member_whose_groups_do_not_suffice_has_what_all_others_have() -> None:
    acl = acl_of(f"user::rwx,group::---,group:{STAFF}:---,mask::rwx,other::r--")
    assert can(acl, caller(ALICE, STAFF, OWNING), READ)


def test_without_a_mask_the_owning_group_and_all_others_are_not_masked() -> None:
    acl = acl_of("user::---,group::r-x,other::--x")
    assert can(acl, caller(ALICE, OWNING), READ | EXECUTE)
    assert can(acl, caller(ALICE), EXECUTE)
    assert not can(acl, caller(ALICE), READ)


def test_what_a_shared_key_made_is_owned_by_nobody_who_asks() -> None:
    acl = acl_of("user::rwx,group::---,other::---", owner=SUPERUSER, group=SUPERUSER)
    assert not can(acl, caller(ALICE, STAFF), READ)
    assert Caller.of(Principal(id=SUPERUSER, name="x")) is None


def test_a_group_is_no_user_and_a_user_is_no_group() -> None:
    acl = acl_of(f"user::---,user:{STAFF}:rwx,group::---,group:{ALICE}:rwx,mask::rwx,other::---", owner=BOARD)
    assert not can(acl, caller(ALICE, STAFF, BOARD), READ)


def test_a_missing_acl_grants_nothing() -> None:
    assert not can(None, caller(OWNER), EXECUTE)


def test_the_entry_that_decided_is_named_with_its_mask() -> None:
    acl = acl_of(f"user::rw-,user:{ALICE}:rwx,group::r--,group:{STAFF}:r--,mask::r--,other::---")
    assert decide(acl, caller(ALICE), WRITE).entry == f"user:{ALICE}:rwx & mask::r--"
    assert decide(acl, caller("bob", STAFF), READ).entry == f"group:{STAFF}:r-- & mask::r--"
    assert decide(acl, caller("bob"), READ).entry == "other::--- & mask::r--"
    assert "owner" in decide(acl, caller(OWNER), READ).entry


# -- text


def test_equal_acls_have_equal_text_whatever_the_order_of_entries_and_the_case_of_ids() -> None:
    one = acl_text(owner=OWNER, group=OWNING, permissions=None, acl=f"user::rwx,group::r--,user:{ALICE}:r--,mask::r--,other::---")
    other = acl_text(
        owner=OWNER.upper(),
        group=OWNING.upper(),
        permissions="x",
        acl=f"other::---,mask::r--,user:{ALICE.upper()}:r--,group::r--,user::rwx",
    )
    assert one == other == f"owner={OWNER};group={OWNING};user::rwx,user:{ALICE}:r--,group::r--,mask::r--,other::---"
    parsed = parse_acl(one)
    assert parsed is not None
    assert parsed.to_text() == one


def test_default_entries_say_nothing_of_the_path_itself() -> None:
    template = f"default:user::rwx,default:user:{ALICE}:rwx,default:group::rwx,default:mask::rwx,default:other::rwx"
    acl = f"user::rwx,group::---,other::---,{template}"
    assert not can(acl_of(acl), caller(ALICE), READ)
    assert acl_of(acl) == acl_of("user::rwx,group::---,other::---")


@pytest.mark.parametrize(
    ("permissions", "entries"),
    [
        ("rwxr-x--x", "user::rwx,group::r-x,other::--x"),
        ("rw-r-----", "user::rw-,group::r--,other::---"),
        ("rwxr-xr-t", "user::rwx,group::r-x,other::r-x"),
        ("rwxr-xr-T", "user::rwx,group::r-x,other::r--"),
    ],
)
def test_permissions_alone_are_enough_where_there_are_no_named_entries(permissions: str, entries: str) -> None:
    text = acl_text(owner=OWNER, group=OWNING, permissions=permissions, acl=None)
    assert text == f"owner={OWNER};group={OWNING};{entries}"


@pytest.mark.parametrize("permissions", ["rwxr-x---+", "rwxr-xr-t+", "", "rwx", "rwxrwxrwxrwx", "xwrxwrxwr", "0750"])
def test_permissions_that_do_not_tell_all_grant_nothing(permissions: str) -> None:
    assert acl_text(owner=OWNER, group=OWNING, permissions=permissions, acl=None) == UNREADABLE


@pytest.mark.parametrize(
    "entries",
    [
        "",
        "nonsense",
        "user::rwx,group::rwx",
        "user::rwx,other::rwx",
        "group::rwx,other::rwx",
        "user::rwx,group::rwx,other::rwx,",
        "user::rwx,user::r--,group::rwx,other::rwx",
        f"user::rwx,user:{ALICE}:rwx,user:{ALICE.upper()}:---,group::rwx,mask::rwx,other::rwx",
        f"user::rwx,user:{ALICE}:rwx,group::rwx,other::rwx",
        f"user::rwx,group::rwx,group:{STAFF}:rwx,other::rwx",
        "user::rwx,user:not an id:rwx,group::rwx,mask::rwx,other::rwx",
        "user::rwx,group::rwx,mask:x:rwx,other::rwx",
        f"user::rwx,group::rwx,other:{ALICE}:rwx",
        "user::wrx,group::rwx,other::rwx",
        "user::rwxt,group::rwx,other::rwx",
        "user::7,group::rwx,other::rwx",
        "User::rwx,group::rwx,other::rwx",
        "user:rwx,group::rwx,other::rwx",
        "user::rwx,group::rwx,other::rwx,robot::rwx",
        "user::rwx, group::rwx,other::rwx",
        "user::rwx,group::rwx,other::rwx;other::rwx",
    ],
)
def test_what_does_not_parse_grants_nothing(entries: str) -> None:
    text = acl_text(owner=OWNER, group=OWNING, permissions="rwxrwxrwx+", acl=entries)
    assert text == UNREADABLE
    assert parse_acl(text) is None
    assert parse_acl(f"owner={OWNER};group={OWNING};{entries}") is None


@pytest.mark.parametrize("missing", ["owner", "group"])
def test_an_acl_without_its_owner_or_group_grants_nothing(missing: str) -> None:
    ids = {"owner": OWNER, "group": OWNING, missing: None}
    assert acl_text(owner=ids["owner"], group=ids["group"], permissions="rwxrwxrwx", acl="user::rwx,group::rwx,other::rwx") == UNREADABLE
    assert parse_acl("user::rwx,group::rwx,other::rwx") is None


def test_every_folder_from_the_root_down_is_above_a_path() -> None:
    assert list(folders_above("a/b/c.md")) == ["", "a", "a/b"]
    assert list(folders_above("c.md")) == [""]


def test_a_principal_without_a_valid_id_is_no_caller() -> None:
    assert Caller.of(Principal(id="", name="x", groups=frozenset({STAFF}))) is None
    assert Caller.of(Principal(id=ALICE.upper(), name="x", groups=frozenset({STAFF.upper(), "no id"}))) == caller(ALICE, STAFF)
