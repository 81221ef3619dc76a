"""`ragstore purge` in; a table or one JSON document, and an exit code that says whether anything is left, out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ragstore.cli.outcome import Exit
from tests.support.commands import Ragstore

COUNTS = ("rows", "ledger", "chunks", "queued", "failures", "cached_vectors", "unused_texts", "turns", "spool_files")


@pytest.fixture
def without_food(ragstore: Ragstore, docs: Path) -> None:
    """Both documents are indexed, and one was deleted since."""
    ragstore("index", "docs")
    (docs / "food.md").unlink()


@pytest.mark.usefixtures("without_food")
def test_the_proof_is_one_json_document(ragstore: Ragstore) -> None:
    ran = ragstore("purge", "docs/food.md", "--json")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert {name: ran.json[name] for name in ("blob", "account", "in_source", "left")} == {
        "blob": "docs/food.md", "account": "local", "in_source": False, "left": [],
    }  # fmt: skip
    assert [ran.json[name] for name in COUNTS] == [0] * len(COUNTS)
    assert (ran.json["removed"]["rows"], ran.json["removed"]["cached_vectors"]) == (1, 1)
    assert ran.json["files_searched"] > 0
    assert ran.json["samples"] > 2
    assert ragstore("verify").code == Exit.DONE
    assert [hit["blob"] for hit in ragstore("search", "lentil soup", "--json").json["hits"]] == ["docs/keys.md"]


@pytest.mark.usefixtures("without_food")
def test_the_table_says_what_went_and_that_nothing_is_left(ragstore: Ragstore) -> None:
    ran = ragstore("purge", "docs/food.md")
    assert ran.code == Exit.DONE
    assert "cached vectors\t1\t0\n" in ran.out
    assert "nothing is left" in ran.out


def test_a_blob_that_would_come_back_stops_it_with_4(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("purge", "docs/food.md", "--json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.STOPPED, "", 1)
    assert "[source] exclude" in ran.err
    forced = ragstore("purge", "docs/food.md", "--json", "--force")
    assert (forced.code, forced.json["in_source"], forced.json["left"]) == (Exit.DONE, True, [])
    assert "the next pass indexes it again" in forced.err
    assert ragstore("index", "--json").json["added"] == 1


@pytest.mark.usefixtures("without_food")
def test_an_unknown_blob_ends_with_2_and_says_how_names_are_written(ragstore: Ragstore) -> None:
    ran = ragstore("purge", "food.md")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert "CONTAINER/PATH" in ran.err


@pytest.mark.usefixtures("without_food")
def test_something_left_ends_with_5_and_names_it(ragstore: Ragstore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragstore.ledger.sqlite._READERS_MAY_TAKE", 50)
    reader = sqlite3.connect(".ragstore/ledger.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM blobs").fetchall()
    ran = ragstore("purge", "docs/food.md")
    reader.close()
    assert ran.code == Exit.DIFFERENT
    assert "left\tthe log of" in ran.out
    assert ragstore("purge", "docs/food.md", "--json").json["left"] == []


@pytest.mark.usefixtures("without_food")
def test_an_index_without_its_source_can_be_purged_by_force(ragstore: Ragstore, docs: Path) -> None:
    (docs / "keys.md").unlink()
    docs.rmdir()
    ran = ragstore("purge", "docs/food.md", "--force", "--json")
    assert (ran.code, ran.json["left"]) == (Exit.DONE, [])
