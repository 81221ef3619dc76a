from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from ragstore.access import GroupsPolicy, Policy, Scope
from ragstore.contracts import StoreCapabilities
from ragstore.errors import AccessError, ConfigError
from ragstore.filters import ALWAYS, AnyOf
from ragstore.instrumentation import Instruments
from ragstore.models import AccessAttributes, CommittedChunk, Principal
from ragstore.retrieval import AuditLog, Freshness, Retrieval, Retriever, measured
from tests.support.library import ALICE, GROUPS, Library, Watching

HOUR = 3600.0
NOW = 1_800_000_000.0


class Inexact(GroupsPolicy):
    """A policy whose filter the algebra cannot say: it admits everything, and the check decides."""

    @override
    def filter_for(self, principal: Principal) -> Scope:
        return Scope(filter=ALWAYS, exact=False)


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.node.name, GROUPS)


def seeing(library: Library, seen: list[Retrieval], **options: object) -> Retriever:
    return Retriever(
        store=library.store,
        embedder=library.embedder,
        policy=library.policy,
        committed=library.committed,
        observe=seen.append,
        **options,  # type: ignore[arg-type]  # as the constructor takes them
    )


# Alarms.


async def test_a_store_that_does_not_apply_an_exact_filter_raises_an_alarm(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    await library.add("secret.md", "key", allow="bob")
    seen: list[Retrieval] = []
    retriever = seeing(library, seen)
    retriever._store = Watching(library.store, obey=False)
    with caplog.at_level(logging.INFO, "ragstore.retrieval"):
        assert await retriever.search("key", principal=ALICE) == []
    [alarm] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert alarm.getMessage() == "access.filter_leaked"
    assert "secret" not in caplog.text
    assert seen[0].leaked == 1


async def test_a_filter_that_grants_more_than_the_policy_raises_an_alarm(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    class Wide(GroupsPolicy):
        @override
        def filter_for(self, principal: Principal) -> Scope:
            return Scope(filter=ALWAYS)

    library.policy = Wide(tag_key="allow")
    await library.add("secret.md", "key", allow="bob")
    assert await library.retriever().search("key", principal=ALICE) == []
    assert "access.filter_leaked" in caplog.text


async def test_what_an_inexact_filter_admits_is_dropped_without_an_alarm(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    library.policy = Inexact(tag_key="allow")
    await library.add("secret.md", "key", allow="bob")
    seen: list[Retrieval] = []
    assert await seeing(library, seen).search("key", principal=ALICE) == []
    assert "filter_leaked" not in caplog.text
    assert [(record.exact, record.leaked, len(record.refused)) for record in seen] == [(False, 0, 1)]


async def test_a_store_that_applies_filters_as_supersets_raises_no_alarm(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    await library.add("secret.md", "key", allow="bob")
    seen: list[Retrieval] = []
    retriever = seeing(library, seen)
    store = Watching(library.store, obey=False)
    store.capabilities = StoreCapabilities(full_text=True, exact_filters=False)
    retriever._store = store
    assert await retriever.search("key", principal=ALICE) == []
    assert "filter_leaked" not in caplog.text
    assert (seen[0].exact, seen[0].leaked, len(seen[0].refused)) == (False, 0, 1)


@pytest.mark.parametrize("lag", ["pending", "narrowed"])
async def test_a_store_that_has_still_to_be_told_is_no_leak(library: Library, lag: str, caplog: pytest.LogCaptureFixture) -> None:
    [row] = await library.add("a.md", "key")
    denied = replace(library.ledger[row].current_access, tags={"allow": "bob"})
    chunk = library.ledger[row]
    if lag == "pending":
        library.ledger[row] = replace(chunk, current_access=denied, generation_access=denied, pending=True)
    else:
        library.ledger[row] = replace(chunk, current_access=denied)
    assert await library.retriever().search("key", principal=ALICE) == []
    assert "filter_leaked" not in caplog.text


async def test_a_policy_that_changes_during_a_search_is_no_leak(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    class Changing(GroupsPolicy):
        asked = 0

        @override
        def filter_for(self, principal: Principal) -> Scope:
            self.asked += 1
            return Scope(filter=AnyOf("allowed", frozenset({"bob" if self.asked == 1 else "staff"})))

        @override
        def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
            return False

    library.policy = Changing(tag_key="allow")
    await library.add("a.md", "key", allow="bob")
    assert await library.retriever().search("key", principal=ALICE) == []
    assert "filter_leaked" not in caplog.text


async def test_answers_and_leaks_are_counted(library: Library) -> None:
    registry = CollectorRegistry()
    await library.add("mine.md", "key")
    await library.add("secret.md", "key two", allow="bob")
    retriever = Retriever(
        store=Watching(library.store, obey=False),
        embedder=library.embedder,
        policy=library.policy,
        committed=library.committed,
        observe=measured(Instruments(registry=registry)),
    )
    assert len(await retriever.search("key", principal=ALICE)) == 1
    for name in ("returned_chunks", "refused_chunks", "filter_leaks"):
        assert registry.get_sample_value(f"ragstore_{name}_total") == 1


# Filling the limit.


async def test_the_limit_is_filled_however_many_rows_an_inexact_filter_admits_in_vain(library: Library) -> None:
    library.policy = Inexact(tag_key="allow")
    for number in range(20):
        await library.add(f"hidden/{number}.md", *(f"key {number} {index}" for index in range(1_000)), allow="bob")
    for number in range(3):
        await library.add(f"mine/{number}.md", f"something else entirely {number}")
    found = await library.blobs("key", limit=3)
    assert sorted(found) == [f"mine/{number}.md" for number in range(3)]


# Scores, by which one could ask for what is hidden.


@pytest.mark.parametrize("legs", ["both", "vector", "text"])
@pytest.mark.parametrize("fusion", ["max-norm", "rrf"])
@pytest.mark.parametrize("fault", ["inexact filter", "store that ignores filters"])
async def test_hidden_chunks_move_neither_scores_nor_ranks(library: Library, legs: str, fusion: str, fault: str) -> None:
    for number in range(300):
        await library.add(f"hidden/{number}.md", f"key {number}", allow="bob")
    for number in range(5):
        await library.add(f"mine/{number}.md", f"a longer text, number {number}, that mentions the key by the way" + " and so on" * number)
    await library.add("other.md", "something without the word")
    options: dict[str, Any] = {"principal": ALICE, "legs": legs, "fusion": fusion, "limit": 4}
    expected = await library.retriever().search("key number 3", **options)
    assert len(expected) == 4
    if fault == "inexact filter":
        library.policy = Inexact(tag_key="allow")
        assert await library.retriever().search("key number 3", **options) == expected
    else:
        assert await library.retriever(store=Watching(library.store, obey=False)).search("key number 3", **options) == expected


# Attributes that nobody looked at for too long.


@pytest.mark.parametrize(
    ("seen_at", "listed", "readable"),
    [
        (NOW - HOUR, {}, True),
        (NOW - 3 * HOUR, {}, False),
        (NOW - 3 * HOUR, {("local", "docs"): NOW - HOUR}, True),
        (NOW - 3 * HOUR, {("local", "other"): NOW - HOUR}, False),
        (0.0, {}, False),
        (NOW + HOUR, {}, False),  # a clock that is wrong confirms nothing
        (float("nan"), {}, False),
    ],
)
async def test_attributes_that_are_too_old_grant_nothing(
    library: Library, seen_at: float, listed: Mapping[tuple[str, str], float], *, readable: bool
) -> None:
    [row] = await library.add("a.md", "key")
    library.ledger[row] = replace(library.ledger[row], seen_at=seen_at)
    retriever = seeing(library, [], freshness=Freshness(max_age=2 * HOUR, listed=lambda: listed, now=lambda: NOW))
    assert bool(await retriever.search("key", principal=ALICE)) == readable
    assert (await retriever.chunk(row, principal=ALICE) is not None) == readable


async def test_a_ledger_that_cannot_say_when_it_listed_denies(library: Library) -> None:
    await library.add("a.md", "key")

    def listed() -> Mapping[tuple[str, str], float]:
        raise OSError("gone")

    with pytest.raises(AccessError, match="ledger"):
        await seeing(library, [], freshness=Freshness(max_age=HOUR, listed=listed)).search("key", principal=ALICE)


# The audit log.


async def test_every_answer_is_recorded_without_its_content(library: Library, tmp_path: Path) -> None:
    [row] = await library.add("a.md", "the key is under the mat")
    [hidden] = await library.add("b.md", "the key is elsewhere", allow="bob")
    library.policy = Inexact(tag_key="allow")
    log = AuditLog(tmp_path / "logs" / "audit.jsonl")
    retriever = Retriever(store=library.store, embedder=library.embedder, policy=library.policy, committed=library.committed, observe=log)
    await retriever.search("where is the key", principal=ALICE)
    await retriever.chunk(row, principal=ALICE)
    await retriever.chunk(hidden, principal=ALICE)
    await retriever.search("where is the key", principal=Principal(id="eve", name="Eve"))
    text = (tmp_path / "logs" / "audit.jsonl").read_text(encoding="ascii")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["kind"], line["principal"], line["returned"], line["refused"]) for line in lines] == [
        ("search", "alice", [row], [hidden]),
        ("chunk", "alice", [row], []),
        ("chunk", "alice", [], [hidden]),
        ("search", "eve", [], sorted([row, hidden])),
    ]
    assert lines[0]["query"] == lines[3]["query"] != ""
    assert lines[0]["policy"] == library.policy.digest
    assert all(line["exact"] is False and line["leaked"] == 0 for line in lines)
    assert not any(word in text for word in ("where", "mat", "a.md"))


async def test_an_answer_that_cannot_be_recorded_is_not_given(library: Library, tmp_path: Path) -> None:
    await library.add("a.md", "key")
    log = AuditLog(Path("/dev/full"))
    retriever = Retriever(store=library.store, embedder=library.embedder, policy=library.policy, committed=library.committed, observe=log)
    with pytest.raises(AccessError, match="audit"):
        await retriever.search("key", principal=ALICE)


def test_an_audit_log_that_was_moved_away_goes_on_in_a_new_file(tmp_path: Path, library: Library) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    record = Retrieval(
        kind="search",
        moment=datetime.now(UTC),
        principal="alice",
        mode="open",
        policy="",
        filter=AnyOf("labels", frozenset({"\u2028\n\ud800" * 2_000})),
        exact=True,
        query="",
        returned=(),
        refused=(),
        leaked=0,
    )
    log(record)
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.1")
    log(record)
    log.close()
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("audit.1", "audit.jsonl")] == [1, 1]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o077 == 0 or os.name == "nt"


def test_an_audit_log_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="audit"):
        AuditLog(tmp_path / "file" / "audit.jsonl")


def test_the_digest_of_a_policy_changes_with_it() -> None:
    policies: list[Policy] = [GroupsPolicy(tag_key="a"), GroupsPolicy(tag_key="b"), GroupsPolicy(metadata_key="a")]
    assert len({policy.digest for policy in policies}) == 3


# What is decided once.


class Counting(GroupsPolicy):
    """Counts what it is asked of blobs."""

    asked = 0

    @override
    def grants(self, principal: Principal, attributes: AccessAttributes) -> bool:
        self.asked += 1
        return super().grants(principal, attributes)


async def test_of_a_document_is_decided_once_in_a_query(request: pytest.FixtureRequest) -> None:
    policy = Counting(tag_key="allow")
    library = Library(request.node.name, policy)
    await library.add("a.md", "key one", "key two", "key three")
    assert len(await library.retriever().search("key", principal=ALICE)) == 3
    assert policy.asked == 1


async def test_a_chunk_with_other_attributes_than_its_neighbour_is_decided_by_its_own(request: pytest.FixtureRequest) -> None:
    library = Library(request.node.name, GROUPS)
    first, second = await library.add("a.md", "key one", "key two")
    closed = replace(library.ledger[second].current_access, tags={"allow": "bob"})
    committed = library.ledger[second]
    for changed in (replace(committed, current_access=closed), replace(committed, generation_access=closed)):
        library.ledger[second] = changed
        assert [hit.chunk for hit in await library.retriever().search("key", principal=ALICE)] == [first]


# A look-up in the event loop's own thread.


async def test_a_look_up_goes_to_a_thread_only_where_it_would_hold_the_event_loop_up(library: Library) -> None:
    await library.add("a.md", "key")
    asked: list[str] = []

    def committed(ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        asked.append("thread" if threading.current_thread() is not threading.main_thread() else "loop")
        return library.committed(ids)

    for at_once, where in ((committed, "loop"), (lambda _ids: None, "thread")):
        asked.clear()
        retriever = Retriever(store=library.store, embedder=library.embedder, policy=GROUPS, committed=committed, at_once=at_once)
        assert len(await retriever.search("key", principal=ALICE)) == 1
        assert asked == [where]


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("bug"), AccessError("no ledger")])
async def test_a_look_up_that_fails_at_once_shows_nothing(library: Library, error: Exception) -> None:
    [row] = await library.add("a.md", "key")

    def fails(_ids: Sequence[str]) -> Mapping[str, CommittedChunk] | None:
        raise error

    retriever = Retriever(store=library.store, embedder=library.embedder, policy=GROUPS, committed=library.committed, at_once=fails)
    with pytest.raises(AccessError):
        await retriever.search("key", principal=ALICE)
    with pytest.raises(AccessError):
        await retriever.chunk(row, principal=ALICE)
