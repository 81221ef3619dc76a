from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ragstore.ledger import Ledger
from ragstore.ledger.schema import SCHEMA_VERSION
from ragstore.models import BlobState
from tests.support.ledgers import blob, commit_of

PLACE = ("local", "docs")
OPEN = "owner=ann;group=staff;user::rwx,group::r-x,other::r-x"
CLOSED = "owner=ann;group=staff;user::rwx,group::---,other::---"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = "sqlite:///ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    opened = Ledger(url, base=tmp_path)
    yield opened
    opened.close()


def with_acl(path: str, acl: str | None = OPEN) -> BlobState:
    state = blob(path)
    return replace(state, access=replace(state.access, acl=acl))


def commit(ledger: Ledger, state: BlobState) -> None:
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state)])


def folders(ledger: Ledger) -> dict[str, str]:
    return {path: acl for account, container, path, acl in ledger.acls.folders() if (account, container) == PLACE}


def test_a_commit_makes_its_acl_known_and_every_folder_above_it_as_one_that_nobody_may_traverse(ledger: Ledger) -> None:
    assert ledger.acls.version() == ""
    commit(ledger, with_acl("a/b/x.md"))
    commit(ledger, with_acl("a/y.md"))
    assert ledger.acls.files() == [OPEN]
    assert folders(ledger) == {"": "", "a": "", "a/b": ""}
    assert ledger.acls.unseen([(*PLACE, "a"), (*PLACE, "c")]) == {(*PLACE, "a"), (*PLACE, "c")}


def test_attributes_that_were_seen_make_their_acl_known_too(ledger: Ledger) -> None:
    commit(ledger, with_acl("x.md"))
    before = ledger.acls.version()
    ledger.documents.see_access({blob("x.md").id.document_id: with_acl("x.md", CLOSED).access})
    assert sorted(ledger.acls.files()) == sorted([OPEN, CLOSED])
    assert ledger.acls.version() != before


def test_blobs_without_an_acl_leave_no_trace(ledger: Ledger) -> None:
    commit(ledger, blob("a/x.md"))
    assert (ledger.acls.version(), ledger.acls.files(), ledger.acls.folders()) == ("", [], [])


def test_what_is_known_already_leaves_the_version_as_it_is(ledger: Ledger) -> None:
    commit(ledger, with_acl("a/x.md"))
    before = ledger.acls.version()
    commit(ledger, with_acl("a/y.md"))
    assert ledger.acls.version() == before


def test_a_folder_that_is_known_is_not_made_unknown_by_a_blob_that_comes(ledger: Ledger) -> None:
    ledger.acls.set_folders({(*PLACE, ""): OPEN, (*PLACE, "a"): CLOSED}, at=1.0)
    commit(ledger, with_acl("a/x.md"))
    assert folders(ledger) == {"": OPEN, "a": CLOSED}
    assert ledger.acls.unseen([(*PLACE, "a")]) == set()


def test_only_folders_that_changed_count(ledger: Ledger) -> None:
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": OPEN, "b": OPEN}, at=1.0, listed_at=1.0) == 3
    before = ledger.acls.version()
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": OPEN, "b": OPEN}, at=2.0, listed_at=2.0) == 0
    assert ledger.acls.version() == before
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": CLOSED, "b": OPEN}, at=3.0, listed_at=3.0) == 1
    assert ledger.acls.version() != before
    assert folders(ledger) == {"": OPEN, "a": CLOSED, "b": OPEN}


def test_a_folder_that_is_gone_denies_first_and_then_is_forgotten(ledger: Ledger) -> None:
    ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": OPEN}, at=1.0, listed_at=1.0)
    ledger.acls.keep_folders("local", "other", {"": OPEN, "a": OPEN}, at=1.0, listed_at=1.0)
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=2.0, listed_at=2.0) == 1
    assert folders(ledger) == {"": OPEN, "a": ""}
    before = ledger.acls.version()
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=3.0, listed_at=3.0) == 0
    assert folders(ledger) == {"": OPEN}
    assert ledger.acls.version() != before
    assert ("local", "other", "a", OPEN) in ledger.acls.folders()


def test_a_folder_that_came_while_the_listing_ran_stays(ledger: Ledger) -> None:
    commit(ledger, with_acl("new/x.md"))
    ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=1.0, listed_at=1.0)
    assert folders(ledger) == {"": OPEN, "new": ""}
    ledger.acls.keep_folders(*PLACE, {"": OPEN, "new": CLOSED}, at=2.0, listed_at=2.0)
    assert folders(ledger) == {"": OPEN, "new": CLOSED}


def test_an_acl_that_was_read_earlier_does_not_replace_one_that_was_read_later(ledger: Ledger) -> None:
    ledger.acls.set_folders({(*PLACE, "a"): CLOSED}, at=5.0)
    assert ledger.acls.set_folders({(*PLACE, "a"): OPEN}, at=4.0) == 0
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": OPEN}, at=4.0, listed_at=4.0) == 1
    assert folders(ledger) == {"": OPEN, "a": CLOSED}
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=4.5, listed_at=4.5) == 0
    assert ledger.acls.keep_folders(*PLACE, {"": OPEN, "a": OPEN}, at=6.0, listed_at=6.0) == 1
    assert folders(ledger) == {"": OPEN, "a": OPEN}


def test_a_folder_that_an_event_told_of_while_the_listing_ran_stays(ledger: Ledger) -> None:
    ledger.acls.set_folders({(*PLACE, "new"): OPEN}, at=5.0)
    ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=6.0, listed_at=4.0)
    assert folders(ledger) == {"": OPEN, "new": OPEN}
    ledger.acls.keep_folders(*PLACE, {"": OPEN}, at=9.0, listed_at=8.0)
    assert folders(ledger) == {"": OPEN, "new": ""}


def test_paths_of_any_length_are_kept(ledger: Ledger) -> None:
    path = "/".join(["é" * 200] * 5)
    ledger.acls.set_folders({(*PLACE, path): OPEN}, at=1.0)
    ledger.acls.set_folders({(*PLACE, path): CLOSED}, at=2.0)
    assert folders(ledger) == {path: CLOSED}


def test_a_ledger_of_the_second_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    ledger = Ledger("sqlite:///old.db", base=tmp_path)
    ledger.documents.mark_pending([blob("x.md")])
    ledger.documents.commit([commit_of(blob("x.md"))])
    ledger.set_setting("schema_version", "2")
    ledger.close()
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.execute("DROP TABLE directories")
        old.execute("DROP TABLE acls")
    old.close()
    ledger = Ledger("sqlite:///old.db", base=tmp_path)
    assert ledger.setting("schema_version") == str(SCHEMA_VERSION)
    assert ledger.acls.set_folders({(*PLACE, ""): OPEN}, at=1.0) == 1
    assert ledger.documents.get(blob("x.md").id.document_id) is not None
    ledger.close()
