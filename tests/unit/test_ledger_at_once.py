"""A look at a few chunks from an event loop's own thread: as `committed` says it, or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ragstore.ledger import Ledger
from ragstore.ledger.sqlite import SQLiteConnections
from tests.support.ledgers import blob, commit_of

URL = "sqlite:///ledger.db"


def test_a_look_at_once_sees_what_was_committed_and_never_waits(tmp_path: Path) -> None:
    ledger = Ledger(URL, base=tmp_path)
    documents = ledger.documents
    states = [blob("x", tags={"k": "v"}), blob("y")]
    documents.mark_pending(states)
    assert documents.committed_at_once(["x-a"]) == {}
    documents.commit([commit_of(state, chunks=("a", "b")) for state in states])
    documents.withdraw([states[1].id.document_id], "quarantined")
    asked = ["x-a", "x-b", "y-a", "unknown", "it's"]
    assert documents.committed_at_once(asked) == documents.committed(asked)
    assert set(documents.committed(asked)) == {"x-a", "x-b"}
    assert documents.committed_at_once([f"x-{number}" for number in range(65)]) is None
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE blobs SET state = 'deleted'")
    assert set(documents.committed_at_once(asked) or ()) == {"x-a", "x-b"}  # while another process writes
    other.execute("COMMIT")
    other.close()
    assert documents.committed_at_once(asked) == {}
    ledger.close()


def test_a_look_at_once_waits_for_no_other_thread(tmp_path: Path) -> None:
    ledger = Ledger(URL, base=tmp_path)
    connections = ledger._connections
    assert isinstance(connections, SQLiteConnections)
    with connections._turn:
        assert ledger.documents.committed_at_once(["x"]) is None
    assert ledger.documents.committed_at_once(["x"]) == {}
    ledger.close()


def test_a_ledger_that_may_only_be_read_and_a_server_are_asked_in_another_thread(tmp_path: Path, postgres_url: str) -> None:
    server = Ledger(postgres_url, base=tmp_path)
    assert server.documents.committed_at_once(["x"]) is None
    server.close()
    Ledger(URL, base=tmp_path).close()
    reading = Ledger(URL, base=tmp_path)
    connections = reading._connections
    assert isinstance(connections, SQLiteConnections)
    connections._read_only = True
    assert reading.documents.committed_at_once(["x"]) is None
    reading.close()
