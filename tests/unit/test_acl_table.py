from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from ragstore.access.acl import UNREADABLE
from ragstore.access.acl_table import MOST_PREFIXES, NO_ACLS, AclTable, AclTables
from ragstore.access.labels import acl_label
from ragstore.filters import NEVER, matches
from ragstore.models import AccessAttributes, AccessColumns, Principal

ALICE = Principal(id="alice", name="Alice", groups=frozenset({"staff"}))
EVE = Principal(id="eve", name="Eve")
PLACE = ("acme", "docs")


def acl(entries: str) -> str:
    return f"owner=root;group=root;{entries}"


OPEN = acl("user::rwx,group::r-x,other::r-x")
STAFF = acl("user::rwx,group::---,group:staff:r-x,mask::r-x,other::---")
CLOSED = acl("user::rwx,group::---,other::---")


def blob(path: str, text: str | None = OPEN, container: str = "docs") -> AccessAttributes:
    return AccessAttributes(account="acme", container=container, path=path, acl=text)


def row(attributes: AccessAttributes) -> AccessColumns:
    labels = () if attributes.acl is None else (acl_label(attributes.acl),)
    return AccessColumns(account=attributes.account, container=attributes.container, path=attributes.path, labels=labels)


def table(folders: Mapping[str, str], *files: str) -> AclTable:
    return AclTable(version="1", folders={PLACE: folders}, files=frozenset(files or (OPEN, STAFF, CLOSED)))


def test_a_blob_is_read_where_its_own_acl_and_every_folder_above_it_grant() -> None:
    acls = table({"": OPEN, "a": STAFF, "a/b": OPEN})
    assert acls.readable(ALICE, blob("a/b/x.md"))
    assert not acls.readable(EVE, blob("a/b/x.md"))
    assert not acls.readable(ALICE, blob("a/b/x.md", CLOSED))


def test_execute_is_asked_of_folders_and_read_of_the_blob() -> None:
    passage = acl("user::---,group::---,other::--x")
    reading = acl("user::---,group::---,other::r--")
    assert table({"": passage, "a": passage}).readable(EVE, blob("a/x.md", reading))
    assert not table({"": passage, "a": reading}).readable(EVE, blob("a/x.md", reading))
    assert not table({"": passage, "a": passage}).readable(EVE, blob("a/x.md", passage))


@pytest.mark.parametrize("missing", ["", "a", "a/b"])
def test_a_folder_that_nobody_has_seen_cannot_be_traversed(missing: str) -> None:
    acls = table({folder: OPEN for folder in ("", "a", "a/b") if folder != missing})
    assert not acls.readable(ALICE, blob("a/b/x.md"))


@pytest.mark.parametrize("text", [None, UNREADABLE, "user::rwx,group::rwx,other::rwx"])
def test_a_blob_whose_acl_is_missing_or_unreadable_is_not_read(text: str | None) -> None:
    assert not table({"": OPEN}).readable(ALICE, blob("x.md", text))
    assert not matches(table({"": OPEN}, UNREADABLE).filter_for(ALICE)[0], row(blob("x.md", text)))


def test_a_superuser_needs_no_acl_but_an_account_that_has_them() -> None:
    assert NO_ACLS.readable(ALICE, blob("a/x.md", UNREADABLE), superuser=True)
    assert not NO_ACLS.readable(ALICE, blob("a/x.md", None), superuser=True)


def test_nobody_reads_anything_of_an_index_without_acls() -> None:
    assert not NO_ACLS.readable(ALICE, blob("x.md"))
    assert NO_ACLS.filter_for(ALICE) == (NEVER, True)


def test_a_principal_without_an_id_reads_nothing() -> None:
    nobody = Principal(id=" ", name="", groups=frozenset({"staff"}))
    acls = table({"": OPEN})
    assert not acls.readable(nobody, blob("x.md"))
    assert not acls.readable(nobody, blob("x.md"), superuser=True)
    assert acls.filter_for(nobody) == (NEVER, True)


def test_the_filter_says_what_readable_says() -> None:
    acls = table({"": OPEN, "a": STAFF, "a/b": CLOSED, "ab": OPEN, "a/c": OPEN})
    filter_, exact = acls.filter_for(ALICE)
    assert exact
    for path in ("x", "a/x", "a/b/x", "ab/x", "a/c/x", "a/bx"):
        for text in (OPEN, STAFF, CLOSED):
            assert matches(filter_, row(blob(path, text))) == acls.readable(ALICE, blob(path, text)), (path, text)


def test_a_container_whose_root_is_closed_or_unseen_gives_nothing() -> None:
    acls = AclTable(folders={("acme", "docs"): {"": CLOSED, "a": OPEN}, ("acme", "other"): {"a": OPEN}}, files=frozenset({OPEN}))
    assert acls.filter_for(ALICE) == (NEVER, True)


def test_the_folders_of_one_container_say_nothing_of_another() -> None:
    acls = AclTable(folders={("acme", "docs"): {"": OPEN, "a": CLOSED}, ("acme", "other"): {"": OPEN, "a": OPEN}}, files=frozenset({OPEN}))
    filter_, exact = acls.filter_for(ALICE)
    assert exact
    assert not matches(filter_, row(blob("a/x")))
    assert matches(filter_, row(blob("a/x", container="other")))
    assert not matches(filter_, row(blob("x", container="third")))


def test_a_folder_is_excluded_once_with_all_that_is_below_it() -> None:
    folders = {"": OPEN, "a": CLOSED, **{f"a/{number}": CLOSED for number in range(1000)}}
    filter_, exact = table(folders).filter_for(ALICE)
    assert exact
    assert len(repr(filter_)) < 1000


def test_too_many_denied_folders_leave_a_superset_that_says_so() -> None:
    many = MOST_PREFIXES + 10
    folders = {"": OPEN, "open": OPEN, **{f"f{number}": CLOSED for number in range(many)}, "f7/deep": CLOSED}
    acls = table(folders)
    filter_, exact = acls.filter_for(ALICE)
    assert not exact
    assert matches(filter_, row(blob("open/x")))
    assert not matches(filter_, row(blob("f7/x"))), "the folder under which most is denied is excluded first"
    assert sum(matches(filter_, row(blob(f"f{number}/x"))) for number in range(many)) == 10
    assert not any(acls.readable(ALICE, blob(f"f{number}/x")) for number in range(many))


def test_what_each_acl_said_is_told_from_the_root_down() -> None:
    steps = table({"": OPEN, "a": STAFF}).steps(EVE, blob("a/x.md"))
    assert [(step.path, step.wanted, step.decision.granted) for step in steps] == [
        ("", "x", True),
        ("a", "x", False),
        ("a/x.md", "r", True),
    ]
    assert steps[1].decision.entry == "other::--- & mask::r-x"


@dataclass
class Records:
    number: int = 1
    reads: int = 0
    places: dict[str, str] = field(default_factory=lambda: {"": OPEN})

    def version(self) -> str:
        return str(self.number)

    def folders(self) -> Iterator[tuple[str, str, str, str]]:
        self.reads += 1
        yield from (("acme", "docs", path, text) for path, text in self.places.items())

    def files(self) -> list[str]:
        return [OPEN]


def test_the_table_is_read_again_only_when_its_version_changes() -> None:
    records = Records()
    tables = AclTables(lambda: records)
    assert tables() is tables()
    assert records.reads == 1
    records.places[""] = CLOSED
    records.number = 2
    assert not tables().readable(ALICE, blob("x"))
    assert (records.reads, tables().version) == (2, "2")
