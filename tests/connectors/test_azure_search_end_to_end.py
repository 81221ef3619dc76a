"""An index over a folder whose rows live in Azure AI Search: passes, access, verify, purge; and the same answers as the reference store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from ragstore.contracts import PutRows, TextQuery, VectorQuery
from ragstore.filters import ALWAYS, AnyOf, Filter, Not, StartsWith
from ragstore.testing.rows import DIMENSIONS, access, row, vector_of
from ragstore_memory import MemoryStore
from tests.fakes.azure_search import AzureSearch
from tests.support.azure_search import KEY_VARIABLE, Open
from tests.support.workspace import Workspace, paragraphs, texts


@pytest.fixture
def work(tmp_path: Path, search_service: AzureSearch) -> Workspace:
    work = Workspace(tmp_path)
    work.sections["store"] = {"type": "azure-search", "endpoint": search_service.url, "key_env": KEY_VARIABLE, "settle": 3}
    return work


@pytest.fixture
async def reference() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(collection="chunks", dimensions=DIMENSIONS, namespace="azure-search")
    yield store
    await store.drop()


async def test_a_folder_is_followed_through_every_kind_of_change(work: Workspace, search_service: AzureSearch) -> None:
    for name in ("one", "two", "three"):
        work.write(f"folder/{name}.md", paragraphs(name, 6))
    work.write("secret.txt", paragraphs("secret", 3), allow="board")
    async with work.open() as index:
        assert (await index.sync()).added == 4
        assert await texts(index, "secret paragraph", "Bob", filter="path = 'secret.txt'") == []
        assert len(await texts(index, "secret paragraph", "Ada", filter="path = 'secret.txt'")) == 3
        search_service.delay = 0.2
        before = len(work.embedded)
        work.write("folder/one.md", paragraphs("one", 6).replace("number3", "number3 edited"))
        work.allow("secret.txt", "staff")
        (work.docs / "folder" / "three.md").unlink()
        report = await index.sync(allow_mass_delete=True)
        assert (report.changed, report.retagged, report.deleted, len(work.embedded)) == (1, 1, 1, before + 1)
        assert (await index.verify()).as_dict() == {"missing": [], "stale": [], "orphaned": []}
        assert len(await texts(index, "secret paragraph", "Bob", filter="path starts with 'sec'")) == 3
        assert await texts(index, "three", "Bob", filter="path = 'folder/three.md'") == []


async def test_what_is_purged_is_in_no_index_of_the_service(work: Workspace, search_service: AzureSearch) -> None:
    work.write("a.md", paragraphs("alpha", 3))
    work.write("b.md", paragraphs("beta", 3))
    async with work.open() as index:
        await index.sync()
        (work.docs / "a.md").unlink()
        await index.sync(allow_mass_delete=True)
        await index.purge("docs/a.md")
        stored = [document for one in search_service.indexes.values() for document in one.written.values()]
        assert len(stored) == 3
        assert "alpha" not in str(stored)
        assert next(iter(search_service.indexes)).endswith("-v2")
        assert len(await texts(index, "beta paragraph", "Bob")) == 3


async def test_an_index_that_was_emptied_behind_the_ledgers_back_is_mended(work: Workspace, search_service: AzureSearch) -> None:
    work.write("a.md", paragraphs("alpha", 3))
    async with work.open() as index:
        await index.sync()
        search_service.indexes.clear()
        assert len((await index.verify()).missing) == 3
        before = len(work.embedded)
        await index.verify(repair=True)
        assert not await index.verify()
        assert len(work.embedded) == before
        assert len(await texts(index, "alpha paragraph", "Bob")) == 3


async def test_the_nearest_rows_and_the_candidates_of_a_text_are_those_of_the_reference(open_search: Open, reference: MemoryStore) -> None:
    words = ("key", "vault", "日本語", "東京", "Straße", "ﬁle", "a_b", "e\u0301t\u00e9", "c++", "x" * 300, "서울에서", "हिन्दी")
    drawn = np.random.default_rng(7)
    put = []
    for number in range(120):
        text = " ".join(drawn.choice(words, size=4))
        columns = access(f"{'ab'[number % 2]}/{number}.md", allowed=tuple(drawn.choice(["g1", "g2", "g3"], size=2)))
        put.append(row(f"d{number}", text=text, vector=vector_of(f"vector {number}"), columns=columns))
    store = open_search()
    for one in (store, reference):
        await one.apply([PutRows(rows=put)])
    conditions: list[Filter] = [ALWAYS, AnyOf("allowed", frozenset({"g1"})), Not(AnyOf("allowed", frozenset({"g1", "g2"})))]
    for condition in (*conditions, StartsWith("path", "a/")):
        for number in range(5):
            nearest = VectorQuery(vector=vector_of(f"query {number}"))
            found, expected = [await one.search(nearest, filter=condition, limit=10) for one in (store, reference)]
            assert [match.chunk_id for match in found] == [match.chunk_id for match in expected]
            assert np.allclose([match.score for match in found], [match.score for match in expected], atol=1e-5)
        for word in (*words, "日本", "京", "ete", "FILE strasse"):
            found, expected = [await one.search(TextQuery(text=word), filter=condition, limit=200) for one in (store, reference)]
            assert {match.chunk_id for match in found} == {match.chunk_id for match in expected}, word
