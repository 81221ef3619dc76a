"""The same rows, writes, queries and filters at the reference store and at every other: the same rows, in the same order up to ties."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Store, TextQuery, VectorQuery, Write
from ragstore.filters import And, AnyOf, Filter, Like, ListColumn, Not, OneOf, Or, ScalarColumn, StartsWith, matches
from ragstore.models import AccessColumns, Match, Row
from ragstore.testing.rows import DIMENSIONS, chunks, document_id, listed, row, vector
from ragstore.testing.strategies import access_columns, filters
from ragstore_memory import MemoryStore
from tests.support.stores import HTTP, REAL, Running, section

SEEDS = range(10 if settings().max_examples >= 1_000 else 1)

ROWS = 90
VALUES = ("", "a", "a/b", "a/b.md", "b'", "A", "ab", "\ud800", "日本", "g1")
values = st.sampled_from(VALUES)
PLAIN = ("w1", "w2", "w3", "w4", "黑洞", "物理")
"""Words that a store's own analysis leaves as they are."""
INFLECTED = ("rotate", "rotated", "the", "don't", "ÉCLAIR", "e\u0301clairs", "ﬁle", "v_2", "und", "der", "Häuser", "Haus")
"""With German words, which make rows German in which there are two of its function words."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A store, the reference, and what both hold."""

    kind: str
    real: Running
    reference: MemoryStore
    columns: dict[str, AccessColumns]

    @property
    def store(self) -> Store:
        return self.real.store

    @property
    def words(self) -> tuple[str, ...]:
        return PLAIN + INFLECTED if self.store.capabilities.our_terms else PLAIN

    @property
    def few(self) -> settings:
        return settings(max_examples=max(10, settings().max_examples // (3 if self.kind in HTTP else 1)))

    def asked(self, query: VectorQuery | TextQuery, admitted: Filter, limit: int) -> tuple[list[Match], list[Match]]:
        """What the store finds, and all that the reference finds."""
        found = self.real.run(self.store.search(query, filter=admitted, limit=limit))
        return found, self.real.run(self.reference.search(query, filter=admitted, limit=10_000))

    def admitted(self, found: list[Match], admitted: Filter) -> list[Match]:
        """Without what a rough filter let through; an exact one lets nothing through."""
        kept = [match for match in found if matches(admitted, self.columns[match.chunk_id])]
        assert kept == found or not self.store.capabilities.exact_filters
        return kept


@pytest.fixture(scope="module", params=[(kind, seed) for kind in REAL for seed in SEEDS], ids=lambda param: f"{param[0]}-{param[1]}")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    kind, seed = request.param
    rows = _rows(random.Random(seed))
    folder = tmp_path_factory.mktemp("congruence")
    with section(kind, folder=folder, server=lambda: str(request.getfixturevalue("postgres_server")), dimensions=DIMENSIONS) as options:
        reference = MemoryStore(collection="chunks", dimensions=DIMENSIONS, namespace=f"congruence with {kind}")
        with Running.of(options, dimensions=DIMENSIONS) as real:
            for store in (real.store, reference):
                real.run(store.apply([PutRows(rows=rows)]))
            yield Pair(kind=kind, real=real, reference=reference, columns={one.chunk_id: one.access for one in rows})
            real.run(reference.drop())


def _rows(dice: random.Random) -> list[Row]:
    """Vectors of few directions, so that there are ties; texts of few words; columns of few values."""
    made: list[Row] = []
    for number in range(ROWS):
        numbers = [dice.choice((-1, 0, 0, 1)) for _ in range(3)]
        lists = [tuple(dice.sample(VALUES, dice.randrange(3))) for _ in range(3)]
        columns = AccessColumns(
            **{name: dice.choice(VALUES) for name in ("account", "container", "path", "media_type")},
            allowed=lists[0],
            labels=lists[1],
            label_keys=lists[2],
        )
        words = " ".join(dice.choice(PLAIN + INFLECTED) for _ in range(dice.randrange(6)))
        made.append(row(f"{number // 3}", number % 3, text=words, vector=vector(*numbers, dice.choice((0.25, 1.0))), columns=columns))
    return made


def telling() -> st.SearchStrategy[Filter]:
    """Filters, of which most admit some rows and not others; and any whatever."""
    some = st.frozensets(values, min_size=1, max_size=4)
    leaves: st.SearchStrategy[Filter] = st.one_of(
        st.builds(OneOf, st.sampled_from(get_args(ScalarColumn)), some),
        st.builds(AnyOf, st.sampled_from(get_args(ListColumn)), some),
        st.builds(StartsWith, st.sampled_from(get_args(ScalarColumn)), st.sampled_from(("a", "a/", "日", "\ud800", "b'"))),
        st.builds(Like, st.sampled_from(get_args(ScalarColumn)), st.sampled_from(("a*", "?", "*.md", "a?b", "*'", "?*"))),
    )
    leaves = st.one_of(leaves, leaves.map(Not))
    pairs = st.one_of(st.builds(lambda *parts: Or(parts), leaves, leaves), st.builds(lambda *parts: And(parts), leaves, leaves))
    return st.one_of(leaves, leaves, pairs, pairs, pairs.map(Not), filters(values))


def agree(found: list[Match], expected: list[Match]) -> None:
    """The same scores one by one, and each row has the score that the other store gives it: the same order, but for ties."""
    scores = {match.chunk_id: match.score for match in expected}
    assert [match.score for match in found] == pytest.approx([match.score for match in expected[: len(found)]], abs=1e-5)
    assert [match.score for match in found] == pytest.approx([scores[match.chunk_id] for match in found], abs=1e-5)
    assert len({match.chunk_id for match in found}) == len(found)


def test_the_same_rows_are_nearest_in_the_same_order(pair: Pair) -> None:
    seen: Counter[str] = Counter()

    @pair.few
    @given(st.lists(st.integers(-2, 2), min_size=4, max_size=4).filter(any), telling(), st.integers(1, ROWS))
    def check(numbers: list[int], admitted: Filter, limit: int) -> None:
        query = VectorQuery(vector=vector(*numbers))
        found, expected = pair.asked(query, admitted, limit)
        kept = pair.admitted(found, admitted)
        agree(kept, expected)
        seen["all"] += 1
        seen["some"] += 0 < len(expected) < ROWS
        if pair.store.capabilities.exact_filters:
            assert len(found) == min(limit, len(expected))
        else:
            everything = pair.admitted(pair.asked(query, admitted, ROWS)[0], admitted)
            agree(everything, expected)
            assert len(everything) == len(expected)
            assert len(found) >= min(limit, len(expected))

    check()
    assert seen["some"] > seen["all"] / 2  # where nothing or everything is admitted, little is tested


def test_the_same_rows_share_a_word(pair: Pair) -> None:
    if not pair.store.capabilities.full_text:
        pytest.skip("this store has no full text")

    @pair.few
    @given(st.lists(st.sampled_from(pair.words), min_size=1, max_size=3), telling(), st.integers(1, ROWS))
    def check(words: list[str], admitted: Filter, limit: int) -> None:
        query = TextQuery(text=" ".join(words))
        found, expected = pair.asked(query, admitted, ROWS)
        assert {match.chunk_id for match in pair.admitted(found, admitted)} == {match.chunk_id for match in expected}
        best, _ = pair.asked(query, admitted, limit)
        assert [match.score for match in best] == pytest.approx([match.score for match in found[:limit]], rel=1e-4)
        assert sorted((match.score for match in found), reverse=True) == [match.score for match in found]

    check()


columns = access_columns(values)
names = st.sampled_from("abc")
numbers = st.integers(0, 3)
generations = st.integers(1, 3)


@st.composite
def writes(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Writes to a few chunks of a few documents, whose names are given later."""
    one = st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(names, numbers, generations, values, columns), max_size=5)),
        st.tuples(st.just("rows"), st.tuples(names, generations, st.sets(numbers))),
        st.tuples(st.just("document"), st.tuples(names, generations)),
        st.tuples(st.just("retag"), st.tuples(names, columns)),
    )
    return draw(st.lists(one, min_size=1, max_size=6))


def _write(kind: str, what: Any, prefix: str) -> Write:
    match kind:
        case "put":
            return PutRows(
                rows=[
                    row(prefix + name, number, text=f"{text} {generation}", generation=generation, columns=one)
                    for name, number, generation, text, one in what
                ]
            )
        case "rows":
            name, generation, some = what
            return DropRows(document_id=document_id(prefix + name), generation=generation, chunk_ids=chunks(prefix + name, sorted(some)))
        case "document":
            return DropDocument(document_id=document_id(prefix + what[0]), generation=what[1])
        case _:
            return Retag(document_id=document_id(prefix + what[0]), access=what[1])


_EXAMPLE = itertools.count()


def test_the_same_writes_leave_the_same_rows(pair: Pair) -> None:
    @pair.few
    @given(st.lists(writes(), min_size=1, max_size=3))
    def check(applied: list[list[tuple[str, Any]]]) -> None:
        prefix = f"example {next(_EXAMPLE)} "
        batches = [[_write(kind, what, prefix) for kind, what in batch] for batch in applied]
        documents = [document_id(prefix + name) for name in "abc"]
        held = []
        for store in (pair.store, pair.reference):
            for batch in batches:
                pair.real.run(store.apply(batch))
            rows = pair.real.run(listed(store.rows(documents)))
            assert {key.chunk_id for key in pair.real.run(listed(store.keys(documents)))} == {one.chunk_id for one in rows}
            held.append({one.chunk_id: one for one in rows})
            pair.real.run(store.apply([DropDocument(document_id=document, generation=9) for document in documents]))
        actual, expected = held
        assert {key: (one.generation, one.text, one.access) for key, one in actual.items()} == {
            key: (one.generation, one.text, one.access) for key, one in expected.items()
        }
        assert all(np.allclose(one.vector, expected[key].vector, atol=1e-6) for key, one in actual.items())

    check()
