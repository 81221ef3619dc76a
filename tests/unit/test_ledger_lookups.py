"""What a feed asks of the ledger: blobs by id, content and folder, the last event of each, and where it stands."""

from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ragstore.ledger import Ledger
from ragstore.ledger.prefixes import successor
from tests.support.ledgers import blob, commit_of


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = "sqlite:///ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    ledger = Ledger(url, base=tmp_path)
    yield ledger
    ledger.close()


def committed(ledger: Ledger, *paths: str) -> dict[str, str]:
    """The document ids, by path, of blobs that are live."""
    states = [blob(path) for path in paths]
    ledger.documents.mark_pending(states)
    ledger.documents.commit([commit_of(state) for state in states])
    return {state.id.path: state.id.document_id for state in states}


def test_blobs_are_found_by_id_tombstones_too(ledger: Ledger) -> None:
    ids = committed(ledger, "x", "y", "z")
    ledger.documents.withdraw([ids["y"]], "deleted")
    found = ledger.documents.some([ids["x"], ids["y"], "unknown"])
    assert {known.id.path: known.state for known in found.values()} == {"x": "live", "y": "deleted"}
    assert ledger.documents.some([]) == {}


def test_live_blobs_are_found_by_their_content(ledger: Ledger) -> None:
    ids = committed(ledger, "x", "y", "z")
    ledger.documents.withdraw([ids["y"]], "deleted")
    assert {known.id.path for known in ledger.documents.by_content(["00" * 32, "11" * 32])} == {"x", "z"}
    assert ledger.documents.by_content(["11" * 32]) == []


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a%", "a_", "A/", "a/\ud7ff", "a/\U0010ffff", "\U0010ffff", "a\\", "'", "no", "é"])
def test_a_folder_is_found_by_its_exact_prefix(ledger: Ledger, prefix: str) -> None:
    paths = [
        "a", "a/b", "a/c/d", "a%b", "a_b", "ab", "aXb", "A/b", "a/\ud7ffx", "a/\ue000", "a/\U0010ffff", "a/\U0010ffffz", "\U0010ffff",
        "\U0010ffff\U0010ffffq", "a\\b", "'x", "é", "e\u0301", "z", "a0", "a.",
    ]  # fmt: skip
    committed(ledger, *paths)
    found = [known.id.path for known in ledger.documents.under("local", "docs", prefix)]
    assert sorted(found) == sorted(path for path in paths if path.startswith(prefix))
    assert ledger.documents.under("local", "other", prefix) == []


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_has_the_prefix_exactly_where_it_lies_before_the_successor(prefix: str, text: str) -> None:
    end = successor(prefix)
    assert (text >= prefix and (end is None or text < end)) == text.startswith(prefix)


def test_a_sequencer_is_only_ever_raised(ledger: Ledger) -> None:
    ids = committed(ledger, "x", "y")
    steps = [("0B", "0B"), ("0a", "0B"), ("0b", "0B"), ("0C", "0C"), ("000", "000")]
    for given_, held in steps:
        ledger.documents.note_sequencers({ids["x"]: given_, "unknown": "5"})
        known = ledger.documents.some(ids.values())
        assert known[ids["x"]].sequencer == held
        assert known[ids["y"]].sequencer is None
    ledger.documents.note_sequencers({})


def test_a_cursor_comes_back_with_what_status_shows(ledger: Ledger) -> None:
    assert ledger.cursors.get("feed") is None
    ledger.cursors.save("feed", "c1", last_event=5.0, lag=1.5)
    ledger.cursors.save("feed", "c2", lag=2.5)
    ledger.cursors.save("queue", None, last_event=7.0)
    ledger.cursors.save("feed", None)
    assert ledger.cursors.get("feed") == "c2"
    assert ledger.cursors.get("queue") is None
    rows = [(each.feed, each.cursor, each.last_event, each.lag) for each in ledger.cursors.all()]
    assert rows == [("feed", "c2", 5.0, 2.5), ("queue", None, 7.0, None)]
    ledger.cursors.forget("feed")
    assert ledger.cursors.get("feed") is None


def test_the_chunks_beside_one_are_those_of_its_document_with_their_distance(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state, blob("y")])
    ledger.documents.commit([commit_of(state, chunks=("0", "1", "2", "3", "4")), commit_of(blob("y"), chunks=("0", "1"))])
    assert ledger.documents.beside(["x-0", "x-3", "y-1", "unknown"], 2) == {
        "x-0": [(1, "x-1"), (2, "x-2")],
        "x-3": [(-1, "x-2"), (1, "x-4"), (-2, "x-1")],
        "y-1": [(-1, "y-0")],
    }
    assert ledger.documents.beside([], 2) == {}
    assert ledger.documents.committed(["x-0"])["x-0"].modified == state.modified
