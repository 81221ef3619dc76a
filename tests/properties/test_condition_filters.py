"""A condition as a filter finds what the condition, evaluated as it was written, admits: nothing lost, and nothing more where exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragstore.access.conditions.evaluation import Caseless
from ragstore.access.conditions.reduction import next_change, prepare, reduce
from ragstore.access.conditions.tree import Condition, Context
from ragstore.access.conditions.values import ticks
from ragstore.access.labels import azure_columns
from ragstore.contracts import PutRows, Store
from ragstore.embedding.hashing import HashEmbedder
from ragstore.models import AccessAttributes
from ragstore.retrieval.candidates import Candidates, Legs
from ragstore.testing.conditions import INSTANTS, conditions, contexts
from ragstore.testing.rows import chunk, row
from ragstore_lancedb import maintenance
from tests.support.conditions import Translation, blobs, telling, truth
from tests.support.stores import HTTP, KINDS, Running, section

LONG = settings().max_examples >= 1_000
BLOBS = blobs(1_100 if LONG else 240)
COLUMNS = [azure_columns(blob, media_type="") for blob in BLOBS]
NUMBERS = {chunk(f"{number}"): number for number in range(len(BLOBS))}
EMBEDDER = HashEmbedder(dimensions=32)
TREES = st.one_of(telling(), telling(), telling(), conditions("Resource", "Principal"), conditions())
FEW = settings(max_examples=max(25, settings().max_examples // 4))

INDEXES = {"lancedb": {"ann_from": 200, "exact_below": 0}, "pgvector": {"ann_from": 200, "exact_below": 0}}
SCANS = {"lancedb": {"ann_from": 10**9, "exact_below": 0}, "pgvector": {"ann_from": 10**9}}
WAYS = [*((kind, False) for kind in KINDS), *((kind, True) for kind in INDEXES)]


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A store that holds one row for each blob."""

    real: Running
    examples: int

    @property
    def legs(self) -> tuple[Legs, ...]:
        return ("vector", "text", "both") if self.real.store.capabilities.full_text else ("vector",)

    def ask(self, asked: Translation, legs: Legs) -> set[int]:
        """All rows that the store finds under the filter."""
        query = Candidates(store=self.real.store, embedder=EMBEDDER, query="word", filter=asked.filter, legs=legs, fusion="max-norm")
        return {NUMBERS[chunk_id] for chunk_id, _ in self.real.run(query.best(len(BLOBS)))}

    def check(self, asked: Translation, admitted: set[int], found: set[int]) -> None:
        """As `Translation.check`, where the store filters exactly; where it does so roughly, nothing is lost, and in any case the check
        of every hit leaves what the condition admits."""
        if self.real.store.capabilities.exact_filters:
            asked.check(admitted, found)
        else:
            assert found >= admitted, ("lost", admitted - found, asked)
        assert {number for number in found if truth(asked.condition, asked.context, BLOBS[number]) is asked.wanted} == admitted


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]}-indexed" if way[1] else way[0])
def searched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    """A store of every kind; those that have indexes besides the text's with none, and with all."""
    kind, indexed = request.param

    async def fill(store: Store) -> None:
        texts = [f"word number{number}" for number in range(len(BLOBS))]
        vectors = await EMBEDDER.embed(texts, purpose="document")
        rows = [
            row(f"{number}", text=text, vector=np.asarray(vector), columns=COLUMNS[number])
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]
        await store.apply([PutRows(rows=rows)])
        if indexed:
            await store.maintain(force=True)
            if kind == "pgvector":
                assert (await store.stats()).detail["ann"] == "yes"
        if indexed and kind == "lancedb":
            assert {"vector", "labels", "label_keys", "path", "terms"} <= set(str((await store.stats()).detail["indexes"]).split(", "))

    folder, dimensions = tmp_path_factory.mktemp("filters"), EMBEDDER.dimensions
    with (
        section(kind, folder=folder, server=lambda: str(request.getfixturevalue("postgres_server")), dimensions=dimensions) as options,
        pytest.MonkeyPatch.context() as patch,
        Running.of({**options, **(INDEXES if indexed else SCANS).get(kind, {})}, dimensions=dimensions) as real,
    ):
        patch.setattr(maintenance, "_SCALAR_INDEXES_FROM", 0)
        real.run(fill(real.store))
        yield Searched(real=real, examples=max(25, settings().max_examples // (5 if kind in HTTP else 1)))


def test_a_store_finds_what_the_condition_admits(searched: Searched) -> None:
    """Each example is as many triples of condition, context and blob as there are blobs, in each way to search."""
    seen: Counter[str] = Counter()

    @settings(max_examples=searched.examples)
    @given(TREES, contexts())
    def check(condition: Condition, context: Context) -> None:
        asked = Translation.of(condition, context)
        admitted = asked.admitted(BLOBS)
        for legs in searched.legs:
            searched.check(asked, admitted, searched.ask(asked, legs))
        seen["triples"] += len(BLOBS)
        seen["some"] += 0 < len(admitted) < len(BLOBS)
        seen["exact"] += asked.exact

    check()
    examples = seen["triples"] / len(BLOBS)
    assert seen["triples"] >= 0.9 * searched.examples * len(BLOBS)
    # Where nothing or everything is admitted, little is tested.
    assert seen["some"] > 0.25 * examples
    assert seen["exact"] > 0.5 * examples


@given(TREES, contexts(), st.booleans())
def test_a_filter_is_true_where_the_condition_has_the_wanted_truth(condition: Condition, context: Context, wanted: bool) -> None:  # noqa: FBT001 - drawn
    asked = Translation.of(condition, context, wanted=wanted)
    asked.check(asked.admitted(BLOBS), asked.matched(COLUMNS))


@given(TREES, contexts())
def test_a_condition_keeps_its_truth_when_it_is_folded(condition: Condition, context: Context) -> None:
    folded = reduce(condition, context, now=None)
    nobody = Context(action="", suboperations=frozenset())
    assert [truth(folded, nobody, blob) for blob in BLOBS[:50]] == [truth(condition, context, blob) for blob in BLOBS[:50]]
    assert reduce(folded, nobody, now=None) == folded


@given(TREES, contexts())
def test_to_fold_by_the_request_first_and_by_the_principal_then_is_to_fold_once(condition: Condition, context: Context) -> None:
    request = replace(context, principal={}, environment={})
    assert reduce(prepare(condition, request), context, now=None) == reduce(condition, context, now=None)


@given(TREES, contexts(), st.booleans())
def test_an_index_over_names_changes_no_truth(condition: Condition, context: Context, twice: bool) -> None:  # noqa: FBT001 - drawn
    principal = dict(context.principal)
    if twice:  # names that differ in case only contradict each other, with an index too
        principal.update({name.swapcase(): value for name, value in context.principal.items()})
    plain, indexed = replace(context, principal=principal), replace(context, principal=Caseless(principal))
    assert [truth(condition, indexed, blob) for blob in BLOBS[:20]] == [truth(condition, plain, blob) for blob in BLOBS[:20]]


@FEW
@given(conditions("Environment"), contexts(), st.sampled_from(INSTANTS), st.sampled_from([-2, -1, 0, 1]))
def test_a_folded_condition_holds_until_its_next_change(condition: Condition, context: Context, instant: str, offset: int) -> None:
    now = (ticks(instant) or ticks(INSTANTS[0]) or 0) + offset
    until = next_change(condition, now)
    moments: Sequence[int] = range(now, now + 5) if until is None else range(now, min(until, now + 5))
    results = [reduce(condition, context, now=moment) for moment in moments]
    assert all(result == results[0] for result in results)


@FEW
@given(TREES, contexts())
def test_the_blob_of_the_context_has_no_part_in_folding(condition: Condition, context: Context) -> None:
    elsewhere = replace(context, resource={}, tags={})
    assert reduce(condition, elsewhere, now=None) == reduce(condition, context, now=None)


def test_equal_attributes_give_equal_columns() -> None:
    twice = [AccessAttributes.from_json(blob.to_json()) for blob in BLOBS]
    assert [azure_columns(blob, media_type="") for blob in twice] == COLUMNS
