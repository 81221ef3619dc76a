"""Far more than a vendor takes at once, in every store: left out of `make test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore.contracts import DropRows, PutRows, Retag, Store, VectorQuery
from ragstore.filters import AnyOf, Filter, Not
from ragstore.testing.rows import DIMENSIONS, access, chunk, chunks, document_id, listed, row, vector
from ragstore.testing.store_searches import found
from tests.support.stores import KINDS, Running, section

pytestmark = pytest.mark.long

MANY = 12_000
"""Above the largest page, batch and number of matches that any of them has."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_and_a_list_of_groups_far_beyond_the_limits(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with (
        section(kind, folder=tmp_path, server=lambda: str(request.getfixturevalue("postgres_server")), dimensions=DIMENSIONS) as options,
        Running.of(options, dimensions=DIMENSIONS) as real,
    ):
        real.run(_ask(real.store))


async def _ask(store: Store) -> None:
    groups = [f"group {number}" for number in range(3 * MANY)]
    await store.apply([PutRows(rows=[row("a", number, columns=access("a.md", allowed=(groups[number],))) for number in range(MANY)])])
    assert (await store.stats()).rows == MANY
    mine = frozenset(groups[MANY - 7 :])
    conditions: list[tuple[Filter, int]] = [(AnyOf("allowed", mine), 7), (Not(AnyOf("allowed", mine)), MANY - 7)]
    for condition, matching in conditions:
        texts = await found(store, condition, limit=100, query=VectorQuery(vector=vector(1)))
        assert len(texts) >= min(100, matching)
        if store.capabilities.exact_filters:
            assert len(texts) == min(100, matching)
    await store.apply([Retag(document_id=document_id("a"), access=access("b.md", allowed=("g",)))])
    assert {key.access.path for key in await listed(store.keys())} == {"b.md"}
    await store.apply([DropRows(document_id=document_id("a"), generation=1, chunk_ids=chunks("a", range(1, MANY)))])
    assert {key.chunk_id for key in await listed(store.keys())} == {chunk("a")}
