"""A ledger in PostgreSQL: what several workers need, what the server refuses, and what happens when it is away."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, make_url, text

from ragstore.errors import ConfigError, IndexLockedError, OutageError, RagstoreError, TransientError
from ragstore.ledger import ChunkRecord, Ledger
from ragstore.ledger.connection import masked, spool_folder, state_folder
from ragstore.ledger.exclusive import holding
from ragstore.ledger.leases import Leases
from ragstore.ledger.schema import SCHEMA_VERSION
from tests.support.ledgers import blob, commit_of
from tests.support.postgres import execute


@pytest.fixture
def ledger(postgres_url: str, tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(postgres_url, base=tmp_path)
    yield ledger
    ledger.close()


def changed(url: str, **query: str) -> str:
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


# What is stored.


@pytest.mark.parametrize(
    "odd", ["nul\0", "\0", "lone\ud800", "\udfff\0\x1a", "\x1a0", "\x1ad800", "%s %(x)s", "{a,b}", '{"', "\\N", "NULL", ""]
)
def test_any_text_comes_back_as_it_was(ledger: Ledger, odd: str) -> None:
    state = replace(blob(f"folder/{odd}"), etag=odd, content_type=odd, version=odd)
    record = ChunkRecord(chunk_id="c", start=0, end=1, page=3, heading=odd, text_hash="h")
    ledger.documents.mark_pending([state])
    assert ledger.documents.commit([replace(commit_of(state), title=odd, chunks=(record,))]) == set()
    found = ledger.documents.committed(["c"])["c"]
    assert (found.blob, found.title, found.heading, found.etag, found.version) == (state.id, odd, odd, odd, odd)
    assert [known.id for known in ledger.documents.under("local", "docs", f"folder/{odd[:1]}")] == [state.id]
    ledger.quarantine.add(document_id="d", blob=odd, kind="corrupt", reason=odd, etag=odd, sha256=None, pipeline="p")
    assert ledger.quarantine.all()["d"].etag == odd
    ledger.cursors.save(odd, odd)
    assert (ledger.cursors.get(odd) or "") == odd


def test_a_path_longer_than_an_index_entry_is_found_by_its_prefix(ledger: Ledger) -> None:
    chance = random.Random(3)
    path = "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(3000))
    states = [blob(path), blob(path[:400] + "x"), blob(path[:299] + "y")]
    ledger.documents.mark_pending(states)
    for length in (0, 1, 299, 300, 301, 400, 401, 3000):
        found = {known.id for known in ledger.documents.under("local", "docs", path[:length])}
        assert found == {state.id for state in states if state.id.path.startswith(path[:length])}


def test_a_folder_is_looked_up_in_the_index(ledger: Ledger, postgres_url: str) -> None:
    ledger.documents.mark_pending([blob(f"{number % 100}/{number}") for number in range(2000)])
    name = str(make_url(postgres_url).query["schema"])
    execute(postgres_url, f"ANALYZE {name}.blobs")
    seen: list[str] = []
    with ledger._connections.read() as connection:
        from sqlalchemy import select

        from ragstore.ledger.prefixes import paths_under
        from ragstore.ledger.schema import blobs

        query = select(blobs.c.document_id).where(blobs.c.account == "local", blobs.c.container == "docs")
        compiled = paths_under(connection, query, "57/").compile(connection.engine, compile_kwargs={"literal_binds": True})
        seen = list(connection.exec_driver_sql(f"EXPLAIN {compiled}").scalars())
    assert any("blobs_by_path_start" in line for line in seen), seen


# Indexes and workers beside each other.


def test_indexes_share_a_database_by_schemas(postgres_server: str, postgres_url: str, tmp_path: Path) -> None:
    other = f"{make_url(postgres_url).query['schema']}_other"
    ways = [changed(postgres_server, schema=other), changed(postgres_server, options=f"-csearch_path={other}")]
    try:
        ledgers = [Ledger(url, base=tmp_path) for url in (postgres_url, *ways)]
        ledgers[0].set_setting("who", "first")
        ledgers[1].set_setting("who", "second")
        assert [ledger.setting("who") for ledger in ledgers] == ["first", "second", "second"]
        for ledger in ledgers:
            ledger.close()
    finally:
        execute(postgres_server, f"DROP SCHEMA IF EXISTS {other} CASCADE")


@pytest.mark.parametrize("name", ["Upper", "a;b", "pg_mine", "ä", "x" * 64, 'a"b'])
def test_a_schema_is_one_plain_name(postgres_server: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        Ledger(changed(postgres_server, schema=name), base=tmp_path)


def at_once(number: int, do: Callable[[int], object]) -> list[object]:
    """Run it so often at the same time; raises what one of them raises."""
    barrier = threading.Barrier(number)

    def started(which: int) -> object:
        barrier.wait()
        return do(which)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(started, range(number)))


def test_workers_that_start_together_make_the_tables_once(postgres_server: str, postgres_url: str, tmp_path: Path) -> None:
    execute(postgres_server, f"DROP SCHEMA {make_url(postgres_url).query['schema']} CASCADE")

    def open_one(number: int) -> str | None:
        ledger = Ledger(postgres_url, base=tmp_path)
        ledger.set_setting(f"worker{number}", "there")
        version = ledger.setting("schema_version")
        ledger.close()
        return version

    assert at_once(6, open_one) == [str(SCHEMA_VERSION)] * 6


def test_a_value_that_several_set_first_is_the_same_for_all(postgres_url: str, tmp_path: Path) -> None:
    ledgers = [Ledger(postgres_url, base=tmp_path) for _ in range(4)]
    values = at_once(4, lambda which: ledgers[which].set_default("key", f"of {which}"))
    assert values == [ledgers[0].setting("key")] * 4
    for ledger in ledgers:
        ledger.close()


def test_of_commits_against_one_generation_exactly_one_wins(postgres_url: str, tmp_path: Path) -> None:
    ledgers = [Ledger(postgres_url, base=tmp_path) for _ in range(4)]
    states = [blob(f"{number}") for number in range(20)]
    ledgers[0].documents.mark_pending(states)

    def commit(which: int) -> set[str]:
        order = states if which % 2 else states[::-1]  # in opposite orders, which must not lock each other out
        return ledgers[which].documents.commit([commit_of(state, chunks=(f"w{which}",)) for state in order])

    lost = at_once(4, commit)
    assert sum(len(each) for each in lost if isinstance(each, set)) == 3 * 20
    for state in states:
        assert len(ledgers[0].documents.chunks(state.id.document_id)) == 1
    for ledger in ledgers:
        ledger.close()


def test_a_second_pass_is_told_who_is_at_it(postgres_url: str, tmp_path: Path) -> None:
    first, second = Ledger(postgres_url, base=tmp_path), Ledger(postgres_url, base=tmp_path)
    with first.following(), second.following(), first.writing():
        for other in (second, first):
            with pytest.raises(IndexLockedError, match=first.owner), other.writing():
                pass
        second.set_setting("others", "write meanwhile")
    with second.writing():
        second.set_setting("key", "value")
    first.close()
    second.close()


def test_a_pass_is_prolonged_while_it_lasts_and_cannot_write_once_another_has_it(ledger: Ledger, postgres_url: str) -> None:
    leases = Leases(ledger._connections, "one")
    with holding(leases, "pass", seconds=0.4):
        threading.Event().wait(1.0)
        ledger.set_setting("key", "still ours")
        taken = "UPDATE {}.leases SET owner = 'two', token = token + 1, expires_at = expires_at + 1000"
        execute(postgres_url, taken.format(make_url(postgres_url).query["schema"]))
        threading.Event().wait(0.5)
        with pytest.raises(OutageError, match="another may be at it"):
            ledger.set_setting("key", "too late")
    ledger.set_setting("key", "not part of the pass")
    assert leases.owner_of("pass") == "two"


def test_a_pass_that_died_is_forgotten(ledger: Ledger) -> None:
    assert Leases(ledger._connections, "dead").acquire("pass", 0.05) is not None
    threading.Event().wait(0.1)
    with ledger.writing():
        pass


# What the server refuses, and when it is away.


def test_an_unreachable_server_is_an_outage_and_no_message_holds_the_password(tmp_path: Path) -> None:
    for url in (
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "postgres://me@127.0.0.1:1/db?password=s3cret",
        "postgresql+psycopg://x:s3cret@[::1]:1/",
    ):
        with pytest.raises(OutageError, match="start PostgreSQL") as raised:
            Ledger(url, base=tmp_path)
        error: BaseException | None = raised.value
        while error is not None:
            assert "s3cret" not in f"{error} {error!r}"
            error = error.__cause__ or error.__context__


@pytest.fixture
def guarded(postgres_server: str) -> Iterator[str]:
    """The URL for a user with a password, who owns nothing."""
    (hba,) = execute(postgres_server, "SELECT pg_read_file('pg_hba.conf')")[0]
    place = Path(execute(postgres_server, "SHOW hba_file")[0][0])
    place.write_text("local all guarded scram-sha-256\n" + hba, encoding="utf-8")
    execute(postgres_server, "CREATE ROLE guarded LOGIN PASSWORD 'right'", "SELECT pg_reload_conf()")
    yield make_url(postgres_server).set(username="guarded", password="right").render_as_string(hide_password=False)
    place.write_text(hba, encoding="utf-8")
    execute(postgres_server, "DROP OWNED BY guarded", "DROP ROLE guarded", "SELECT pg_reload_conf()")


def test_wrong_credentials_are_an_error_of_the_configuration(guarded: str, tmp_path: Path) -> None:
    for _ in range(100):  # until the server has read its new rules
        try:
            with pytest.raises(ConfigError, match="PGPASSWORD") as raised:
                Ledger(guarded.replace("right", "wr0ng"), base=tmp_path)
        except pytest.fail.Exception:
            threading.Event().wait(0.05)
        else:
            break
    assert "wr0ng" not in str(raised.value)
    with pytest.raises(ConfigError, match="CREATE on the schema"):
        Ledger(guarded, base=tmp_path)
    with pytest.raises(ConfigError, match="CREATE on the schema"):
        Ledger(changed(guarded, schema="mine"), base=tmp_path)


def test_a_user_who_may_only_read_reads(guarded: str, ledger: Ledger, postgres_url: str, tmp_path: Path) -> None:
    name = str(make_url(postgres_url).query["schema"])
    execute(postgres_url, f"GRANT USAGE ON SCHEMA {name} TO guarded", f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO guarded")
    ledger.set_setting("key", "value")
    reader = Ledger(changed(guarded, schema=name), base=tmp_path)
    assert reader.setting("key") == "value"
    with pytest.raises(ConfigError, match="may not be made or written by this user"):
        reader.set_setting("key", "other")
    reader.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: make_url(url).set(database="nosuch").render_as_string(hide_password=False), "nosuch"),
        (lambda url: changed(url, nonsense="1"), "nonsense"),
        (lambda url: changed(url, options="-cnonsense=1"), "nonsense"),
    ],
)
def test_a_wrong_database_or_option_is_an_error_of_the_configuration(
    postgres_server: str, tmp_path: Path, change: Callable[[str], str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Ledger(change(postgres_server), base=tmp_path)


def test_a_standby_is_read_and_a_write_says_what_it_is(ledger: Ledger, postgres_url: str, tmp_path: Path) -> None:
    ledger.set_setting("key", "value")
    standby = Ledger(changed(postgres_url, options="-cdefault_transaction_read_only=on"), base=tmp_path)
    assert standby.setting("key") == "value"
    with pytest.raises(ConfigError, match="primary"):
        standby.set_setting("key", "other")
    standby.close()


def cut(url: str) -> None:
    execute(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ragstore'")


def test_connections_that_the_server_dropped_are_made_again(ledger: Ledger, postgres_url: str) -> None:
    for _ in range(3):
        cut(postgres_url)
        ledger.set_setting("key", "value")
        cut(postgres_url)
        assert ledger.setting("key") == "value"


def test_a_transaction_that_loses_its_connection_writes_nothing(ledger: Ledger, postgres_url: str) -> None:
    def half() -> None:
        with ledger._connections.write() as connection:
            connection.execute(text("INSERT INTO settings VALUES ('half', 'done')"))
            cut(postgres_url)
            connection.execute(text("INSERT INTO settings VALUES ('other', 'half')"))

    with pytest.raises(OutageError, match="what was finished is kept"):
        half()
    assert ledger.setting("half") is None


def test_a_lock_that_lasts_too_long_may_be_tried_again(ledger: Ledger, postgres_url: str, tmp_path: Path) -> None:
    ledger.set_setting("key", "value")
    hasty = Ledger(changed(postgres_url, options="-clock_timeout=50ms"), base=tmp_path)
    with ledger._connections.write() as connection:
        connection.execute(text("UPDATE settings SET value = 'held' WHERE key = 'key'"))
        with pytest.raises(TransientError, match="busy"):
            hasty.set_setting("key", "mine")
    hasty.close()


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"ragstore\[postgres\]"):
        Ledger("postgresql://localhost/x", base=tmp_path)


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3cret@h:port/db", "postgresql//u:s3cret@h/db", "postgresql://u:s3/cr@et@h:x/db?password=s3cret"]
)
def test_a_url_that_is_none_is_quoted_without_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(RagstoreError) as raised:
        Ledger(url, base=tmp_path)
    assert "s3" not in str(raised.value)
    assert "s3" not in masked(url)


def test_each_owner_has_a_spool_and_what_the_dead_left_goes(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert spool_folder(tmp_path, owner=None) == tmp_path / "spool"
    mine, other, dead = (spool_folder(tmp_path, owner=f"host.name:{pid}:t") for pid in (os.getpid(), os.getppid(), ended.pid))
    for folder in (mine, other, dead):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "content").touch()
    assert spool_folder(tmp_path, owner=f"host.name:{os.getpid()}:u") not in {mine, other, dead}
    assert {folder.name for folder in (tmp_path / "spool").iterdir()} == {mine.name, other.name}


def test_the_spool_lies_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    assert state_folder("postgresql://h/db", tmp_path) == tmp_path / ".ragstore"
    assert state_folder("sqlite:///some/where.db", tmp_path) == tmp_path / "some"


def test_a_connection_that_is_in_use_while_the_ledger_is_closed_is_closed_when_it_is_given_back(postgres_url: str, tmp_path: Path) -> None:
    ledger = Ledger(postgres_url, base=tmp_path)
    with ledger._connections.read() as connection:
        used = connection.connection.dbapi_connection
        assert used is not None
        ledger.close()
        assert not used.closed
    assert used.closed
    assert ledger.documents.counts() == {"chunks": 0}, "and the next call connects again"
    ledger.close()


def test_a_connection_that_is_being_made_while_the_ledger_is_closed_is_closed_when_it_is_given_back(
    postgres_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(postgres_url, base=tmp_path)
    ledger.close()  # so that the next call has to connect
    connecting, go_on = threading.Event(), threading.Event()
    used: list[Any] = []

    @event.listens_for(ledger._connections._engine, "do_connect")  # type: ignore[attr-defined]  # it is in PostgreSQL
    def wait(*_arguments: object) -> None:
        connecting.set()
        assert go_on.wait(30)

    def read() -> None:
        with ledger._connections.read() as connection:
            used.append(connection.connection.dbapi_connection)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(read)
        assert connecting.wait(30)
        ledger.close()
        go_on.set()
        done.result()
    assert used[0].closed
