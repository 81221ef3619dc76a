"""Tables of pgvector that somebody changes behind the ledger's back: nothing leaks, `verify` says so, and its repair mends it."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest

from ragstore.errors import ConfigError, StoreDamagedError
from ragstore.index import AsyncIndex
from tests.support.pgvector import plain, schema_of
from tests.support.postgres import execute
from tests.support.workspace import Workspace, found, paragraphs

CLEAN: dict[str, list[str]] = {"missing": [], "stale": [], "orphaned": []}


@pytest.fixture
def work(postgres_url: str, tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path, store="memory")
    work.sections["store"] = {"type": "pgvector", "url": plain(postgres_url), "schema": schema_of(postgres_url)}
    work.write("plans.md", paragraphs("plans", 3), allow="board")
    work.write("lunch.md", paragraphs("lunch", 4), allow="staff")
    return work


def tables(index: AsyncIndex, url: str) -> dict[str, str]:
    """The quoted names of the collection's tables."""
    holding = index._assembly.holding()
    assert holding is not None
    return {part: f'{schema_of(url)}."{holding.collection}{part and f":{part}"}"' for part in ("", "access", "vectors", "strays")}


async def shown(index: AsyncIndex) -> dict[str, list[tuple[str, int]]]:
    return {
        who: sorted((hit.blob, hit.start) for hit in await found(index, "paragraph detail1", who, limit=20))
        for who in ("Ada", "Bob", "Eve")
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE {access} SET allowed = '{{staff}}' WHERE path = 'plans.md'", "stale"),
        ("UPDATE {access} SET allowed = '{{board}}', long_values = '{{x}}' WHERE path = 'lunch.md'", "stale"),
        ("UPDATE {access} SET path = 'lunch.md', container = 'other' WHERE path = 'plans.md'", "stale"),
        ("UPDATE {access} SET document_id = 'nobody' WHERE path = 'plans.md'", "orphaned"),
        ("DELETE FROM {vectors} WHERE id IN (SELECT id FROM {vectors} ORDER BY id LIMIT 3)", "missing"),
        ("TRUNCATE {vectors}", "missing"),
        ("UPDATE {vectors} SET access_id = (SELECT max(id) FROM {access})", "missing"),
        ("UPDATE {chunks} SET access_id = (SELECT max(id) FROM {access})", "missing"),
        ("UPDATE {vectors} SET access_id = 1000000", "missing"),
        ("UPDATE {chunks} SET chunk_id = 'x' || chunk_id WHERE id = (SELECT min(id) FROM {chunks})", "orphaned"),
        ("DELETE FROM {chunks} WHERE id = (SELECT max(id) FROM {chunks})", "missing"),
    ],
)
async def test_what_was_changed_in_the_tables_leaks_nothing_is_told_and_is_mended(
    work: Workspace, postgres_url: str, change: str, said: str
) -> None:
    async with work.open() as index:
        await index.sync()
        before = await shown(index)
        assert [len(before[who]) for who in ("Ada", "Bob", "Eve")] == [7, 4, 0]
        names = tables(index, postgres_url)
        execute(postgres_url, change.format(chunks=names[""], **names))
    async with work.open() as index:
        with suppress(StoreDamagedError):  # where nothing is left
            assert all(set(hits) <= set(before[who]) for who, hits in (await shown(index)).items())
        assert (await index.verify()).as_dict()[said]
        assert (await index.verify(repair=True)).as_dict() == CLEAN
        assert await shown(index) == before
        assert (await index.verify()).as_dict() == CLEAN


async def test_access_columns_that_were_widened_ring_the_alarm_and_name_no_forbidden_blob(
    work: Workspace, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with work.open() as index:
        await index.sync()
        execute(postgres_url, f"UPDATE {tables(index, postgres_url)['access']} SET allowed = '{{staff}}'")
        with caplog.at_level(logging.ERROR):
            assert {hit.blob for hit in await found(index, "plans paragraph", "Bob", limit=20)} == {"docs/lunch.md"}
    assert any(record.getMessage() == "access.filter_leaked" for record in caplog.records)
    assert "plans" not in caplog.text


async def test_a_pass_over_a_store_that_it_may_not_write_costs_the_index_nothing(work: Workspace, postgres_url: str) -> None:
    """As where an URL was mistyped: the pass fails, and with the right URL everything is found as before."""
    async with work.open() as index:
        await index.sync()
        before = await shown(index)
    right, role = work.sections["store"], f"{schema_of(postgres_url)}_stranger"
    execute(postgres_url, f"CREATE ROLE {role} LOGIN")
    try:
        work.sections["store"] = {"type": "pgvector", "url": plain(postgres_url).replace("postgres:@", f"{role}@"), "schema": "elsewhere"}
        with pytest.raises(ConfigError, match="grant it CREATE"):
            async with work.open() as index:
                await index.sync()
    finally:
        execute(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    work.sections["store"] = right
    async with work.open() as index:
        assert await shown(index) == before
        assert (await index.verify()).as_dict() == CLEAN
