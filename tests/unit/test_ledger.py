"""The ledger: a swap is all or nothing, one process writes, and nothing is forgotten that is still needed."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragstore.errors import ConfigError, IndexLockedError
from ragstore.ledger import Ledger, State
from ragstore.ledger.schema import SCHEMA_VERSION
from tests.support.ledgers import blob, commit_of

URL = "sqlite:///ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    url = URL if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    ledger = Ledger(url, base=tmp_path)
    yield ledger
    ledger.close()


def test_a_chunk_is_committed_only_after_the_commit(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    assert ledger.documents.committed(["x-a"]) == {}
    ledger.documents.commit([commit_of(state)])
    found = ledger.documents.committed(["x-a", "unknown"])
    assert list(found) == ["x-a"]
    assert found["x-a"].blob == state.id
    assert found["x-a"].generation_access == state.access


def test_a_commit_against_another_generation_changes_nothing(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    assert ledger.documents.commit([commit_of(state)]) == set()
    late = commit_of(blob("x", etag="old"), generation=0, chunks=("b",))
    assert ledger.documents.commit([late]) == {state.id.document_id}
    assert list(ledger.documents.committed(["x-a", "x-b"])) == ["x-a"]


def test_a_new_generation_replaces_all_chunks_of_the_old_one(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state, chunks=("a", "b"))])
    ledger.documents.commit([commit_of(state, generation=1, chunks=("b", "c"))])
    assert [chunk.text_hash for chunk in ledger.documents.chunks(state.id.document_id)] == ["b", "c"]
    assert set(ledger.documents.committed(["x-a", "x-b", "x-c"])) == {"x-b", "x-c"}


def test_new_attributes_keep_generation_and_chunks(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state)])
    ledger.documents.commit([commit_of(blob("x", tags={"k": "v"}), generation=1, chunks=None)])
    known = ledger.documents.known()[state.id.document_id]
    assert known.generation == 1
    assert '"tags":{"k":"v"}' in known.access
    assert ledger.documents.committed(["x-a"])["x-a"].current_access.tags == {"k": "v"}


def test_attributes_seen_before_the_content_is_indexed_restrict_at_once(ledger: Ledger) -> None:
    state = blob("x", tags={"allow": "everyone"})
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state)])
    ledger.documents.see_access({state.id.document_id: blob("x").access})
    chunk = ledger.documents.committed(["x-a"])["x-a"]
    assert chunk.generation_access.tags == {"allow": "everyone"}
    assert chunk.current_access.tags == {}


@pytest.mark.parametrize("state", ["deleted", "quarantined", "deferred"])
def test_a_withdrawn_blob_is_in_no_answer_and_the_store_is_told_to_follow(ledger: Ledger, state: State) -> None:
    one = blob("x")
    ledger.documents.mark_pending([one])
    ledger.documents.commit([commit_of(one)])
    ledger.documents.withdraw([one.id.document_id], state)
    assert ledger.documents.committed(["x-a"]) == {}
    assert [known.id.path for known in ledger.documents.pending()] == ["x"]
    known = ledger.documents.get(one.id.document_id)
    assert known is not None
    assert known.generation == 2


def test_a_deleted_blob_stays_as_a_tombstone_and_may_come_back(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state)])
    ledger.documents.withdraw([state.id.document_id], "deleted")
    assert [known.state for known in ledger.documents.known().values()] == ["deleted"]
    ledger.documents.mark_pending([state])
    assert ledger.documents.commit([commit_of(state, generation=2)]) == set()
    assert list(ledger.documents.committed(["x-a"])) == ["x-a"]


def test_a_stale_blob_still_serves_and_says_so(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state)])
    ledger.documents.note(blob("x", etag="e2"), as_state="stale")
    assert ledger.documents.committed(["x-a"])["x-a"].stale
    known = ledger.documents.get(state.id.document_id)
    assert known is not None
    assert known.etag == "e1"


def test_vectors_are_kept_per_embedder_and_exactly(ledger: Ledger) -> None:
    vector = np.array([0.1, -2.5, 3e-8], dtype=np.float32)
    ledger.vectors("one").put({"h": vector})
    assert np.array_equal(ledger.vectors("one").get(["h", "other"])["h"], vector)
    assert ledger.vectors("two").get(["h"]) == {}
    assert ledger.vectors("one").have(["h", "other"]) == {"h"}


def test_vectors_are_looked_through_from_time_to_time_only(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.time()
    ledger.vectors("f").put({"loose": np.zeros(2, np.float32)})
    pruned = []
    for hours in (23.5, 24.2, 24.6):
        monkeypatch.setattr(time, "time", lambda now=start + hours * 3600: now)
        pruned.append(ledger.prune_vectors(keep_days=1))
    assert pruned == [0, 0, 1]


def test_a_ledger_that_gave_its_memory_back_goes_on(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.release_memory()
    ledger.documents.commit([commit_of(state)])
    assert ledger.documents.counts()["live"] == 1


def test_pruning_spares_vectors_that_a_chunk_still_has(ledger: Ledger) -> None:
    state = blob("x")
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state, chunks=("kept",))])
    ledger.vectors("f").put({"kept": np.zeros(2, np.float32), "loose": np.zeros(2, np.float32)})
    assert ledger.prune_vectors(keep_days=1) == 0
    assert ledger.prune_vectors(keep_days=-1) == 1
    assert ledger.vectors("f").have(["kept", "loose"]) == {"kept"}


def test_a_failure_counts_its_attempts_and_can_be_retried_or_dismissed(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.quarantine.add(
            document_id="d", blob="docs/x\udcff", kind="corrupt", reason="bad \ud800", etag="e1", sha256=None, pipeline="p"
        )
    (failure,) = ledger.quarantine.all().values()
    assert (failure.attempts, failure.kind) == (2, "corrupt")
    assert ledger.quarantine.retry(failure.blob) == 1
    assert ledger.quarantine.all()["d"].etag == ""
    assert ledger.quarantine.dismiss(None) == 1
    assert ledger.quarantine.all()["d"].dismissed
    ledger.quarantine.clear(["d"])
    assert ledger.quarantine.all() == {}


def test_hostile_names_and_tags_come_back_as_they_were(ledger: Ledger) -> None:
    for path in ["' OR '1'='1", '"', "%", "\\", "$ne", "😀", "a//b", "x" * 10_000]:
        state = blob(path, tags={path[:100]: "\0'\";--", "lone": "\ud800"})
        ledger.documents.mark_pending([state])
        ledger.documents.commit([commit_of(state)])
        found = ledger.documents.committed([f"{path}-a"])[f"{path}-a"]
        assert found.blob.path == path
        assert found.current_access == state.access


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    ledger = Ledger(URL, base=tmp_path)
    script = (
        "import sys; from pathlib import Path; from ragstore.ledger import Ledger; from ragstore.errors import IndexLockedError\n"
        "ledger = Ledger(sys.argv[1], base=Path(sys.argv[2]))\n"
        "try:\n  with ledger.writing(): pass\n"
        "except IndexLockedError as error: print(error); sys.exit(7)"
    )
    with ledger.writing():
        done = subprocess.run([sys.executable, "-c", script, URL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert f"another ragstore (process {os.getpid()})" in done.stdout
    ledger.close()


@pytest.mark.parametrize("noted", ["", "nonsense", None])
def test_a_writer_that_has_not_said_its_number_yet_is_named_without_one(tmp_path: Path, noted: str | None) -> None:
    first, second = Ledger(URL, base=tmp_path), Ledger(URL, base=tmp_path)
    with first.writing():
        (note,) = tmp_path.glob("*.writer")
        note.write_text(noted) if noted is not None else note.unlink()
        with pytest.raises(IndexLockedError, match="another ragstore is writing"), second.writing():
            pass
    assert note.read_text() == "", "whoever writes next is not called by the number of the last"
    first.close()
    second.close()


def test_the_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    first = Ledger(URL, base=tmp_path)
    second = Ledger(URL, base=tmp_path)
    with first.writing(), pytest.raises(IndexLockedError), second.writing():
        pass
    with second.writing():
        pass
    first.close()
    second.close()


def test_a_ledger_of_a_newer_ragstore_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(URL, base=tmp_path)
    ledger.set_setting("schema_version", "999")
    ledger.close()
    with pytest.raises(ConfigError, match="newer ragstore"):
        Ledger(URL, base=tmp_path)


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "nonsense", "sqlite:///:memory:"])
def test_another_kind_of_ledger_is_refused_with_the_form_that_works(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sqlite:///"):
        Ledger(url, base=tmp_path)


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    """The file of a ledger that holds one committed chunk, closed."""
    ledger = Ledger(URL, base=tmp_path)
    ledger.documents.mark_pending([blob("x")])
    ledger.documents.commit([commit_of(blob("x"))])
    ledger.close()
    return tmp_path / "ledger.db"


@contextmanager
def not_ours(*places: Path) -> Iterator[None]:
    """These may not be written. Root may write everywhere, so for root the answer of the system is replaced."""
    modes = [place.stat().st_mode for place in places]
    real = os.access
    denied = {str(place) for place in places}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: not (mode == os.W_OK and str(path) in denied) and real(path, mode))
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode & ~0o222)
        try:
            yield
        finally:
            for place, mode in zip(places, modes, strict=True):
                place.chmod(mode)


def test_a_ledger_in_a_folder_that_may_not_be_written_is_read_and_never_changed(indexed: Path) -> None:
    before = indexed.read_bytes()
    with not_ours(indexed, indexed.parent):
        ledger = Ledger(URL, base=indexed.parent)
        assert list(ledger.documents.committed(["x-a"])) == ["x-a"]
        with pytest.raises(ConfigError, match="may not be written"):
            ledger.set_setting("key", "value")
        with pytest.raises(ConfigError, match="may not be written"), ledger.writing():
            pass
        ledger.close()
    assert indexed.read_bytes() == before
    assert [file.name for file in indexed.parent.iterdir()] == ["ledger.db"]


def test_a_reader_without_rights_sees_what_a_living_writer_has_just_committed(indexed: Path) -> None:
    writer = Ledger(URL, base=indexed.parent)
    writer.set_setting("key", "new")
    with not_ours(indexed, indexed.parent):
        reader = Ledger(URL, base=indexed.parent)
        assert reader.setting("key") == "new"
    writer.set_setting("key", "newer")
    assert reader.setting("key") == "newer"
    writer.close()
    assert reader.setting("key") == "newer"
    reader.close()


@pytest.mark.parametrize("damage", [lambda old: b"\x07" * len(old), lambda old: old[:10_000], lambda old: old[:4096] + b"\xff" * len(old)])
def test_a_damaged_ledger_is_an_error_that_says_how_to_go_on(indexed: Path, damage: Callable[[bytes], bytes]) -> None:
    indexed.write_bytes(damage(indexed.read_bytes()))
    with pytest.raises(ConfigError, match=r"is damaged .* ragstore index"):
        Ledger(URL, base=indexed.parent)


def test_a_ledger_that_is_a_folder_or_lies_where_none_can_be_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(ConfigError, match=r"ledger\.db"):
        Ledger(URL, base=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        Ledger("sqlite:///file/ledger.db", base=tmp_path)


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from ragstore.errors import OutageError
from ragstore.ledger import Ledger
ledger = Ledger("sqlite:///ledger.db", base=Path(sys.argv[1]))
ledger.set_setting("kept", "yes")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    for number in range(100):
        ledger.set_setting(f"key{number}", "x" * 10_000)
except OutageError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert "free space" in ended.stdout, ended.stderr
    ledger = Ledger(URL, base=tmp_path)
    assert ledger.setting("kept") == "yes"
    ledger.set_setting("key", "there is room again")
    ledger.close()


def test_a_ledger_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    ledger = Ledger("sqlite:///old.db", base=tmp_path)
    ledger.vectors("f").put({"text": np.ones(2, np.float32)})
    ledger.set_setting("schema_version", "1")
    ledger.close()
    with sqlite3.connect(tmp_path / "old.db") as old:
        for table in ("unused", "cursors"):
            old.execute(f"DROP TABLE {table}")
        old.execute("CREATE TABLE cursors (feed TEXT PRIMARY KEY, cursor TEXT NOT NULL, updated_at FLOAT NOT NULL)")
        old.execute("INSERT INTO cursors VALUES ('feed', 'here', 1.0)")
        for index in ("blobs_by_sha256", "blobs_by_path"):
            old.execute(f"DROP INDEX {index}")
    old.close()
    ledger = Ledger("sqlite:///old.db", base=tmp_path)
    assert ledger.setting("schema_version") == str(SCHEMA_VERSION)
    assert ledger.vectors("f").have(["text"]) == {"text"}
    assert ledger.prune_vectors(keep_days=-1) == 1
    assert ledger.cursors.get("feed") == "here"
    ledger.cursors.save("feed", "there", lag=1.0)
    ledger.close()
    with sqlite3.connect(tmp_path / "old.db") as now:
        indexes = {name for (name,) in now.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    now.close()
    assert {"blobs_by_sha256", "blobs_by_path"} <= indexes


def test_a_text_that_a_document_lost_keeps_its_vector_as_long_as_the_cache_keeps_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = blob("x")
    ledger.vectors("f").put({"a": np.zeros(2, np.float32)})
    ledger.documents.mark_pending([state])
    ledger.documents.commit([commit_of(state, chunks=("a",))])
    start = time.time()
    monkeypatch.setattr(time, "time", lambda: start + 50 * 86400)  # the vector is old, but in use until now
    ledger.documents.withdraw([state.id.document_id], "deleted")
    assert ledger.prune_vectors(keep_days=30) == 0
    monkeypatch.setattr(time, "time", lambda: start + 81 * 86400)
    assert ledger.prune_vectors(keep_days=30) == 1


def test_attributes_that_were_seen_later_stay_though_older_ones_are_committed_after_them(ledger: Ledger) -> None:
    state = blob("x", tags={"allow": "staff"})
    ledger.documents.mark_pending([state])
    ledger.documents.commit([replace(commit_of(state), seen_at=100.0)])
    narrow = blob("x", tags={"allow": "board"}).access
    ledger.documents.see_access({state.id.document_id: narrow}, at=300.0)
    ledger.documents.see_access({state.id.document_id: state.access}, at=200.0)
    ledger.documents.commit([replace(commit_of(state, generation=1), seen_at=250.0)])
    (chunk,) = ledger.documents.committed(["x-a"]).values()
    assert chunk.current_access.tags == {"allow": "board"}
    assert chunk.generation_access.tags == {"allow": "staff"}
    ledger.documents.commit([replace(commit_of(state, generation=2), seen_at=400.0)])
    (chunk,) = ledger.documents.committed(["x-a"]).values()
    assert chunk.current_access.tags == {"allow": "staff"}


_OPENS = """
import sys; from pathlib import Path; from ragstore.ledger import Ledger
for line in iter(lambda: print("ready", flush=True) or sys.stdin.readline(), ""):
    Ledger("sqlite:///new.db", base=Path(line.strip())).close()
"""


def test_processes_that_open_a_new_ledger_at_once_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "bufsize": 1}
    processes: list[Any] = [subprocess.Popen([sys.executable, "-c", _OPENS], **pipes) for _ in range(6)]
    for number in range(6):
        if any(process.stdout.readline() != "ready\n" for process in processes):
            break  # what it says is told below
        for process in processes:
            process.stdin.write(f"{tmp_path / str(number)}\n")
    assert [errors for process in processes if (errors := process.communicate(timeout=60)[1])] == []
    assert [process.returncode for process in processes] == [0] * 6
