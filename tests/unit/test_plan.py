"""The plan, the guard, the budget and the script counter: decisions without any I/O."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ragstore.config import GuardSettings
from ragstore.embedding.scripts import Scripts
from ragstore.errors import GuardError
from ragstore.ingest.budget import ByteBudget
from ragstore.ingest.guards import check_deletes
from ragstore.ingest.plan import Baseline, Plan, compare
from ragstore.ledger import Failure, KnownBlob
from ragstore.models import AccessAttributes, BlobId, BlobState

LIMITS = {("local", "docs"): 1000}


def blob(path: str, *, etag: str = "1", size: int = 10, tag: str = "", archived: bool = False) -> BlobState:
    access = AccessAttributes(account="local", container="docs", path=path, tags={"t": tag})
    name = BlobId(account="local", container="docs", path=path)
    return BlobState(id=name, etag=etag, size=size, modified=datetime(2026, 1, 1, tzinfo=UTC), access=access, archived=archived)


def known(state: BlobState) -> KnownBlob:
    access = state.access.to_json()
    return KnownBlob(
        id=state.id, document_id=state.id.document_id, state="live", generation=1, pending=False, etag=state.etag, size=state.size,
        content_type=state.content_type, sha256="x", media_type="text/plain", title=None, pipeline="p", access=access,
        current_access=access, columns_hash="c", chunks=1,
    )  # fmt: skip


def failure(state: BlobState, *, kind: str = "corrupt", dismissed: bool = False) -> Failure:
    return Failure(
        document_id=state.id.document_id, blob=state.id.name, kind=kind, reason="r", attempts=1, since=0.0, etag=state.etag, sha256=None,
        pipeline="p", dismissed=dismissed,
    )  # fmt: skip


def plan_of(listing: list[BlobState], held: list[KnownBlob], failures: tuple[Failure, ...] = (), *, policy_changed: bool = False) -> Plan:
    baseline = Baseline(
        known={one.document_id: one for one in held},
        failures={one.document_id: one for one in failures},
        pipeline="p",
        policy_changed=policy_changed,
    )
    return compare(listing, baseline, limits=LIMITS)


def test_each_difference_becomes_the_change_that_it_is() -> None:
    held = [known(blob(path)) for path in ("same", "edited", "tagged", "gone")]
    plan = plan_of([blob("same"), blob("edited", etag="2"), blob("tagged", tag="new"), blob("new"), blob("big", size=1001)], held)
    assert (plan.blobs, plan.unchanged) == (5, 1)
    assert {(item.state.id.path, item.reason) for item in plan.upserts} == {("edited", "changed"), ("new", "new")}
    assert [item.state.id.path for item in plan.retags] == ["tagged"]
    assert [one.id.path for one in plan.deletes] == ["gone"]
    assert [item.state.id.path for item in plan.too_large] == ["big"]


def test_a_blob_that_a_listing_gives_twice_counts_once() -> None:
    assert plan_of([blob("a"), blob("a")], []).blobs == 1


def test_what_another_pipeline_made_is_made_again() -> None:
    held = replace(known(blob("a")), pipeline="older")
    assert [item.reason for item in plan_of([blob("a")], [held]).upserts] == ["pipeline"]


def test_another_content_type_is_parsed_again() -> None:
    held = replace(known(blob("a")), content_type="text/html")
    assert len(plan_of([blob("a")], [held]).upserts) == 1


def test_a_stale_blob_is_tried_again_though_its_etag_is_the_same() -> None:
    held = replace(known(blob("a")), state="stale")
    assert [item.reason for item in plan_of([blob("a")], [held]).upserts] == ["again"]


def test_a_quarantined_blob_waits_until_it_changes() -> None:
    state = blob("a")
    held = replace(known(state), state="quarantined")
    plan = plan_of([state], [held], (failure(state),))
    assert (plan.waiting, plan.upserts) == (1, [])
    changed = plan_of([blob("a", etag="2")], [held], (failure(state),))
    assert (changed.waiting, len(changed.upserts)) == (0, 1)


def test_a_dismissed_failure_waits_without_being_counted() -> None:
    plan = plan_of([blob("a")], [], (failure(blob("a"), dismissed=True),))
    assert (plan.waiting, plan.upserts) == (0, [])


def test_a_transient_failure_does_not_hold_a_blob_back() -> None:
    assert len(plan_of([blob("a")], [], (failure(blob("a"), kind="transient"),)).upserts) == 1


def test_an_archived_blob_is_deferred_unless_its_content_is_indexed() -> None:
    plan = plan_of([blob("new", archived=True), blob("held", archived=True)], [known(blob("held"))])
    assert [item.state.id.path for item in plan.deferred] == ["new"]
    assert plan.unchanged == 1


def test_another_policy_looks_at_every_blob() -> None:
    assert len(plan_of([blob("a")], [known(blob("a"))], policy_changed=True).retags) == 1


def test_moves_are_guessed_by_size_one_for_one() -> None:
    held = [known(blob(f"old{i}", size=size)) for i, size in enumerate((5, 5, 7))]
    assert plan_of([blob("new1", size=5), blob("new2", size=9)], held).likely_moves == 1


@pytest.mark.parametrize(
    ("deletes", "total", "stops"), [(20, 20, False), (21, 21, True), (21, 1000, False), (400, 1000, True), (0, 0, False)]
)
def test_the_guard_stops_only_what_is_many_and_a_large_part(deletes: int, total: int, stops: bool) -> None:  # noqa: FBT001 - a table
    if stops:
        with pytest.raises(GuardError, match="--allow-mass-delete"):
            check_deletes(deletes, known=total, limits=GuardSettings())
    else:
        check_deletes(deletes, known=total, limits=GuardSettings())


async def test_a_budget_of_bytes_lets_in_as_much_as_it_holds() -> None:
    budget, inside, most = ByteBudget(100), 0, 0

    async def hold(size: int) -> None:
        nonlocal inside, most
        async with budget.hold(size):
            inside += min(size, 100)
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= min(size, 100)

    await asyncio.gather(*(hold(size) for size in [30, 90, 10, 500, 60, 60, 1]))
    assert (inside, most <= 100) == (0, True)


async def test_a_cancelled_wait_for_the_budget_blocks_nobody() -> None:
    budget = ByteBudget(10)

    async def hold(size: int) -> None:
        async with budget.hold(size):
            await asyncio.sleep(0.01)

    async with budget.hold(10):
        waiting = [asyncio.create_task(hold(10)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    await asyncio.wait_for(waiting[1], timeout=5)


def test_a_corpus_in_a_script_that_the_embedder_does_not_know_is_noted() -> None:
    scripts = Scripts(frozenset({"LATIN"}))
    for _ in range(10):
        scripts.see("这是一个中文文档，讲的是向量检索。" * 5)
        scripts.see("This is a document in English. " * 5)
    (warning,) = scripts.warnings("minilm")
    assert "CJK" in warning
    assert "about 4" in warning


@pytest.mark.parametrize("known_scripts", [frozenset({"LATIN"}), None])
def test_a_corpus_in_a_known_script_is_not_noted(known_scripts: frozenset[str] | None) -> None:
    scripts = Scripts(known_scripts)
    scripts.see("Ein Dokument über Größe und Maß. " * 20 + ("中文" if known_scripts else "中文" * 100))
    assert scripts.warnings("minilm") == []
