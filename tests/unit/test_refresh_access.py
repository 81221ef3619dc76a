"""The permission pass: access alone, by listing; and attributes that nobody looked at for too long."""

import json
import time
from pathlib import Path

import pytest

from ragstore.errors import AccessError
from ragstore.ingest.seen import confirm
from ragstore.ingest.sync import make_plan
from ragstore.models import FetchedBlob
from tests.support.workspace import Workspace, found, paragraphs, texts

HOUR = 3600.0


@pytest.fixture(params=["memory", "lancedb"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, store=request.param)


async def test_tags_alone_are_brought_up_to_date_without_reading_content(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    work.write("taken.txt", paragraphs("alpha", 2), allow="staff")
    work.write("given.txt", paragraphs("beta", 2), allow="board")
    async with work.open() as index:
        await index.sync()

        async def fetch(path: str, spool: Path) -> FetchedBlob | None:
            raise AssertionError(f"{path} was read")

        monkeypatch.setattr(index._assembly.sources()[0], "fetch", fetch)
        work.allow("taken.txt", "board")
        work.allow("given.txt", "staff")
        report = await index.refresh_access()
        assert (report.blobs, report.retagged, report.unchanged, report.chunks_embedded) == (2, 2, 0, 0)
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/given.txt"}
        assert (await index.refresh_access()).unchanged == 2


async def test_of_a_blob_that_changed_as_well_what_is_taken_counts_now_and_what_is_given_with_the_new_content(work: Workspace) -> None:
    work.write("taken.txt", paragraphs("alpha", 2), allow="staff")
    work.write("given.txt", paragraphs("beta", 2), allow="board")
    async with work.open() as index:
        await index.sync()
        work.write("taken.txt", paragraphs("gamma", 2), allow="board")
        work.write("given.txt", paragraphs("delta", 2), allow="staff")
        await index.refresh_access()
        assert await texts(index, "paragraph", "Bob") == []
        assert all("alpha" in text for text in await texts(index, "alpha", "Ada", per_blob=1, limit=1))
        await index.sync()
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/given.txt"}


async def test_what_is_new_or_gone_waits_for_the_full_pass(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))
    work.write("b.txt", paragraphs("beta", 2))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.txt").unlink()
        work.write("c.txt", paragraphs("gamma", 2))
        report = await index.refresh_access()
        assert (report.added, report.deleted) == (0, 0)
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/a.txt", "docs/b.txt"}


async def test_after_another_policy_only_a_pass_that_retagged_all_says_so(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2), allow="staff")
    work.tags["a.txt"]["other"] = "board"
    work.save_tags()
    async with work.open() as index:
        await index.sync()
    work.sections["access"]["tag_key"] = "other"
    async with work.open() as index:
        assert (await index.refresh_access()).retagged == 1
        assert await texts(index, "alpha", "Bob") == []
        assert await texts(index, "alpha", "Ada")
        assert (await index.refresh_access()).unchanged == 1


# [access] max_age_hours.


async def test_an_index_that_nobody_keeps_in_step_stops_answering_until_somebody_does(work: Workspace) -> None:
    work.sections["access"]["max_age_hours"] = 2
    work.write("a.txt", paragraphs("alpha", 2))
    async with work.open() as index:
        await index.sync()
        assert await texts(index, "alpha", "Bob")
        _age(index, 3 * HOUR)
        assert await texts(index, "alpha", "Bob") == []
        await index.refresh_access()
        assert await texts(index, "alpha", "Bob")


async def test_a_blob_that_only_a_guard_keeps_is_not_confirmed(work: Workspace) -> None:
    work.sections["access"]["max_age_hours"] = 2
    work.write("gone.txt", paragraphs("alpha", 2))
    work.write("here.txt", paragraphs("beta", 2))
    async with work.open() as index:
        await index.sync()
        _age(index, 3 * HOUR)
        (work.docs / "gone.txt").unlink()
        await index.refresh_access()
        assert {hit.blob for hit in await found(index, "paragraph", "Bob")} == {"docs/here.txt"}
        plan = await make_plan(index._assembly.writing())
        confirm(index._assembly.writing(), plan)
        assert index._assembly.ledger.listed() == {("local", "docs"): plan.baseline.looked_at}


def _age(index: object, seconds: float) -> None:
    """As if nobody had listed or written for so long."""
    ledger = index._assembly.ledger  # type: ignore[attr-defined]  # the tests of a package look inside it
    with ledger._connections.write() as connection:
        connection.exec_driver_sql("UPDATE blobs SET seen_at = seen_at - ?", (seconds,))
    for place, at in ledger.listed().items():
        ledger.note_listed([place], at - seconds)


# [access] audit.


async def test_answers_are_recorded_where_the_configuration_says(work: Workspace) -> None:
    work.sections["access"]["audit"] = "logs/audit.jsonl"
    work.write("a.txt", paragraphs("alpha", 2))
    began = time.time()
    async with work.open() as index:
        await index.sync()
        [hit, *_] = await found(index, "alpha", "Bob")
        await index.chunk(hit.chunk, principal=index.principal("Eve"))
        await index.prompt("alpha", principal=index.principal("Bob"))
    lines = [json.loads(line) for line in (work.base / "logs" / "audit.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["principal"], len(line["returned"])) for line in lines] == [
        ("search", "bob", 2),
        ("chunk", "eve", 0),
        ("search", "bob", 2),
    ]
    assert lines[0]["time"] > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(began - 60))


async def test_an_observer_that_fails_keeps_the_answer_back(work: Workspace) -> None:
    work.write("a.txt", paragraphs("alpha", 2))

    def refuse(_retrieval: object) -> None:
        raise AccessError("not today")

    async with work.open() as index:
        await index.sync()
        index.observe(refuse)
        with pytest.raises(AccessError, match="today"):
            await found(index, "alpha", "Bob")
