"""An index in every store: indexed, changed, stopped in the middle, emptied behind the ledger's back, copied from one to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import DropDocument, PutRows, Retag, Store, VectorQuery, Write
from ragstore.errors import StoreDamagedError
from ragstore.filters import ALWAYS
from ragstore.index import AsyncIndex
from ragstore.testing.faults import CrashingStore, SimulatedCrash, parts_of
from ragstore.testing.rows import access, listed, row, vector_of
from tests.support.stores import KINDS, REAL, opened, section
from tests.support.workspace import Workspace, found, paragraphs

CLEAN: dict[str, list[str]] = {"missing": [], "stale": [], "orphaned": []}
DIMENSIONS = 64
PEOPLE = ("Ada", "Bob", "Eve")

Place = Callable[[str], dict[str, Any]]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The section of a store that runs until the test ends."""
    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(
            section(kind, folder=tmp_path, server=lambda: str(request.getfixturevalue("postgres_server")), dimensions=DIMENSIONS)
        )


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    work = Workspace(tmp_path, embedder={"type": "hash", "dimensions": DIMENSIONS})
    for topic, count, allow in (("alpha", 6, "staff"), ("beta", 4, "board"), ("gamma", 3, "staff board")):
        work.write(f"{topic}/{topic}.md", paragraphs(topic, count), allow=allow)
    return work


async def answers(index: AsyncIndex) -> dict[str, list[tuple[str, int, str]]]:
    """All that each person finds: blob, place, text."""
    return {
        f"{who}: {query}": sorted((hit.blob, hit.start, hit.text) for hit in await found(index, query, who, limit=50))
        for who in PEOPLE
        for query in ("alpha subject3", "beta paragraph", "detail1")
    }


async def nearest(store: Store) -> list[tuple[str, float]]:
    """Of all rows of the store, chunk and cosine, the best first; those that are equally near by their ids."""
    matches = await store.search(VectorQuery(vector=vector_of("query", DIMENSIONS)), filter=ALWAYS, limit=50)
    return sorted(((match.chunk_id, round(match.score, 4)) for match in matches), key=lambda match: (-match[1], match[0]))


def opened_beside(index: AsyncIndex, options: Mapping[str, Any]) -> Store:
    """The collection of the index in the store of this section, as somebody else opens it."""
    holding = index._assembly.holding()
    assert holding is not None
    store: Store = opened(options, dimensions=DIMENSIONS, collection=holding.collection)
    return store


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_lost_or_changed_behind_the_ledgers_back_is_found_and_mended(work: Workspace, place: Place, kind: str) -> None:
    work.sections["store"] = place(kind)
    async with work.open() as index:
        await index.sync()
        work.write("alpha/alpha.md", paragraphs("alpha", 7))
        work.allow("gamma/gamma.md", "board")
        (work.docs / "beta" / "beta.md").unlink()
        assert (await index.sync(allow_mass_delete=True)).as_dict()["deleted"] == 1
        assert (await index.verify()).as_dict() == CLEAN
        before, embedded = await answers(index), [text for text in work.embedded if "paragraph number" in text]
        assert [len(before[f"{who}: detail1"]) for who in PEOPLE] == [10, 7, 0]

        other = opened_beside(index, work.sections["store"])
        documents = {key.access.path: key.document_id for key in await listed(other.keys())}
        alpha, gamma = documents["alpha/alpha.md"], documents["gamma/gamma.md"]
        await other.apply(
            [
                DropDocument(document_id=alpha, generation=10**6),
                Retag(document_id=gamma, access=access("gamma/gamma.md", allowed=("eve",))),
                PutRows(rows=[row("stranger", vector=vector_of("x", DIMENSIONS), columns=access("s.md", allowed=("eve",)))]),
            ]
        )
        differences = await index.verify()
        assert differences.missing
        assert differences.stale
        assert differences.orphaned
        assert await found(index, "detail1", "Eve") == []
        assert (await index.verify(repair=True)).as_dict() == CLEAN
        assert await answers(index) == before

        await other.drop()
        await other.close()
    async with work.open() as index:
        assert len((await index.verify()).missing) >= 2
        with pytest.raises(StoreDamagedError, match="verify --repair"):
            await found(index, "alpha subject3", "Bob")
        assert (await index.verify(repair=True)).as_dict() == CLEAN
        assert await answers(index) == before
    assert [text for text in work.embedded if "paragraph number" in text] == embedded


class StopsOnce(CrashingStore):
    """The process is gone after so many steps, in the middle of whatever is applied then; the next one has no such luck."""

    left = 0

    def __init__(self, store: Store) -> None:
        super().__init__(store, before=lambda _writes: None, after=lambda _writes: None)

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        cls = type(self)
        steps = parts_of(writes)
        if not 0 < cls.left <= steps:
            cls.left -= steps
            return await self._store.apply(writes)
        left, cls.left = cls.left, 0
        done: list[Write] = []
        for write in writes:
            if left > 0:
                done.append(PutRows(rows=write.rows[:left]) if isinstance(write, PutRows) else write)
            left -= parts_of([write])
        await self._store.apply(done)
        raise SimulatedCrash


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [4, 9])
async def test_a_pass_that_was_stopped_while_it_wrote_shows_nothing_half_and_is_finished_by_the_next(
    work: Workspace, place: Place, kind: str, steps: int
) -> None:
    work.sections["store"] = place(kind)
    async with work.open() as index:
        await index.sync()
        before = await answers(index)
    work.write("alpha/alpha.md", paragraphs("alpha", 9).replace("number2", "edited"))
    work.write("gamma/gamma.md", paragraphs("delta", 5), allow="board")
    work.connectors.wrapper = StopsOnce
    StopsOnce.left = steps
    with pytest.raises(SimulatedCrash):
        async with work.open() as index:
            await index.sync()
    work.connectors.wrapper = lambda store: store
    async with work.open() as index:
        assert all(len(hits) <= len(before[asked]) for asked, hits in (await answers(index)).items())
        await index.sync()
        assert (await index.verify()).as_dict() == CLEAN
        after = await answers(index)
        assert [len(after[f"{who}: detail1"]) for who in PEOPLE] == [18, 9, 0]


@pytest.mark.parametrize("old", ["memory", "lancedb"])
@pytest.mark.parametrize("new", [kind for kind in REAL if kind != "lancedb"])
async def test_an_index_is_copied_and_answers_alike(work: Workspace, place: Place, old: str, new: str) -> None:
    of, to = place(old), place(new)
    work.sections["store"] = of
    async with work.open() as index:
        await index.sync()
        before, embedded = await answers(index), len([text for text in work.embedded if "paragraph number" in text])
        copied = await index.copy_to(to)
        assert (copied.chunks, copied.written, copied.as_dict()) == (13, 13, CLEAN)
        assert await answers(index) == before
        copied = await index.copy_to(to)
        assert (copied.chunks, copied.written, copied.as_dict()) == (13, 0, CLEAN)
    work.sections["store"] = to
    async with work.open() as index:
        assert await answers(index) == before
        assert (await index.verify()).as_dict() == CLEAN
        assert (await index.sync()).as_dict()["unchanged"] == 3
        stores = [opened_beside(index, options) for options in (of, to)]
        assert await nearest(stores[0]) == await nearest(stores[1])
        for store in stores:
            await store.close()
    assert len([text for text in work.embedded if "paragraph number" in text]) == embedded
