"""Stores that are wrong in one way each in, and the test of the suite that notices out; waivers have reasons."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Store, StoreCapabilities, TextQuery, VectorQuery, Write
from ragstore.filters import ALWAYS, AnyOf, Filter, Not, matches
from ragstore.models import AccessColumns, Match, RowKey
from ragstore.testing.rows import DIMENSIONS, listed
from ragstore.testing.stores import MakeStore, StoreSuite
from ragstore_memory import MemoryStore

_NAMESPACES = itertools.count()


class Rough(MemoryStore):
    """Says what it is not: that its filters are rough."""

    capabilities = StoreCapabilities(full_text=True, exact_filters=False)


class Leaky(MemoryStore):
    """Lets all rows through under a negation, and says that it is exact."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        return await super().search(query, filter=ALWAYS if isinstance(filter, Not) else filter, limit=limit)


class LimitsFirst(MemoryStore):
    """Filters what it found, as an index of neighbours does that knows nothing of filters."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        found = await super().search(query, filter=ALWAYS, limit=2 * limit)
        keys = {key.chunk_id: key.access for key in await listed(self.keys())}
        return [match for match in found if matches(filter, keys[match.chunk_id])][:limit]


class FewValues(MemoryStore):
    """Sends the first values of a long list only."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        sent = replace(filter, values=frozenset(sorted(filter.values)[:5_000])) if isinstance(filter, AnyOf) else filter
        return await super().search(query, filter=sent, limit=limit)


class Forgetful(MemoryStore):
    """Loses what is beyond a thousand rows of one batch."""

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        await super().apply([PutRows(rows=write.rows[:1_000]) if isinstance(write, PutRows) else write for write in writes])


class Ageless(MemoryStore):
    """Knows no generations: whoever writes last is right."""

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, PutRows):
                drops = [DropRows(document_id=row.document_id, generation=10**9, chunk_ids=frozenset({row.chunk_id})) for row in write.rows]
                await super().apply(drops)
            await super().apply([replace(write, generation=10**9) if isinstance(write, DropRows | DropDocument) else write])


class Additive(MemoryStore):
    """Does not drop rows one by one, so that nothing ever shrinks."""

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        await super().apply([write for write in writes if not isinstance(write, DropRows)])


class Careless(MemoryStore):
    """Takes an apply that begins as the last one did for that one, and does not repeat it."""

    last: Write | None = None

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        if writes and isinstance(writes[0], Retag) and writes[0] == self.last:
            return
        self.last = writes[0] if writes else None
        await super().apply(writes)


class Null(MemoryStore):
    """Has no empty lists, but ones with an empty text."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        keys = {key.chunk_id: _null(key.access) for key in await listed(self.keys())}
        found = await super().search(query, filter=ALWAYS, limit=10_000)
        return [match for match in found if matches(filter, keys[match.chunk_id])][:limit]


def _null(columns: AccessColumns) -> AccessColumns:
    return replace(columns, allowed=columns.allowed or ("",), labels=columns.labels or ("",), label_keys=columns.label_keys or ("",))


class OwnWords(MemoryStore):
    """Leaves out a word that it thinks says nothing, and says that it asks for our terms."""

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        if isinstance(query, TextQuery):
            query = TextQuery(text=" ".join(word for word in query.text.split() if word != "t"))
        return await super().search(query, filter=filter, limit=limit)


class Modest(MemoryStore):
    """Says that it analyses text itself, and does not."""

    capabilities = StoreCapabilities(full_text=True, exact_filters=True, our_terms=False)


class Mute(MemoryStore):
    """Says that it has no full text, and answers."""

    capabilities = StoreCapabilities(full_text=False, exact_filters=True)


class Late(MemoryStore):
    """Shows the state before the last write to every other handle, and says that it is immediate."""

    behind: Any = None

    @override
    async def search(self, query: VectorQuery | TextQuery, *, filter: Filter, limit: int) -> list[Match]:
        found = await super().search(query, filter=filter, limit=limit)
        before, self.behind = self.behind, found
        return found if before is None else before


class Mixing(MemoryStore):
    """Writes the rows of a batch by turns with whoever else writes, and looks at no generation."""

    @override
    async def apply(self, writes: Sequence[Write]) -> None:
        for write in writes:
            for row in write.rows if isinstance(write, PutRows) else ():
                await asyncio.sleep(0)
                await super().apply([DropRows(document_id=row.document_id, generation=9, chunk_ids=frozenset({row.chunk_id}))])
                await super().apply([PutRows(rows=[row])])
            if not isinstance(write, PutRows):
                await super().apply([write])


class Hiding(MemoryStore):
    """Has keys of some rows only."""

    @override
    async def keys(self, document_ids: Sequence[str] | None = None) -> AsyncIterator[RowKey]:
        for number, key in enumerate(await listed(super().keys(document_ids))):
            if number < 1_000:
                yield key


WRONG: list[tuple[type[MemoryStore], str]] = [
    (Rough, "test_a_store_that_says_that_it_filters_roughly_does"),
    (Leaky, "test_every_kind_of_filter_means_what_the_algebra_says"),
    (Leaky, "test_empty_lists_and_empty_texts_are_values_like_others"),
    (Null, "test_empty_lists_and_empty_texts_are_values_like_others"),
    (LimitsFirst, "test_a_limit_is_filled_by_twelve_of_two_thousand_that_lie_far_from_the_query"),
    (LimitsFirst, "test_the_limit_is_filled_however_few_rows_match"),
    (FewValues, "test_a_principal_of_ten_thousand_groups_is_a_filter"),
    (Forgetful, "test_a_large_batch_is_stored_whole"),
    (Forgetful, "test_a_document_of_very_many_chunks_is_replaced_shrunk_and_grown"),
    (Hiding, "test_a_document_of_very_many_chunks_is_replaced_shrunk_and_grown"),
    (Additive, "test_a_document_of_very_many_chunks_is_replaced_shrunk_and_grown"),
    (Additive, "test_what_failed_in_the_middle_of_an_apply_ends_right_when_it_is_repeated"),
    (Careless, "test_what_failed_in_the_middle_of_an_apply_ends_right_when_it_is_repeated"),
    (Ageless, "test_an_older_generation_does_not_overwrite"),
    (Ageless, "test_of_two_replacements_at_once_the_newer_remains"),
    (Mixing, "test_of_two_replacements_at_once_one_remains_and_is_whole"),
    (OwnWords, "test_a_text_query_finds_what_shares_one_of_our_terms"),
    (Modest, "test_a_text_query_finds_what_shares_one_of_our_terms"),
    (Mute, "test_a_text_query_is_refused_where_there_is_no_full_text"),
    (Late, "test_another_handle_sees_every_write"),
]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    MemoryStore.collections.clear()


def _making(kind: type[MemoryStore]) -> MakeStore:
    namespace = f"suite {next(_NAMESPACES)}"
    return lambda collection, dimensions: kind(collection=collection, dimensions=dimensions, namespace=namespace)


async def _run(kind: type[MemoryStore], name: str) -> None:
    """One test of the suite, at a store of this kind."""
    make = _making(kind)
    test: Callable[..., Any] = getattr(StoreSuite(), name)
    wanted = test.__code__.co_varnames[1 : test.__code__.co_argcount]
    given: dict[str, MakeStore | Store] = {"make_store": make}
    given |= {wish: make("chunks", DIMENSIONS) for wish in ("store", "text_store")}
    await test(**{wish: given[wish] for wish in wanted})


@pytest.mark.parametrize(("kind", "name"), WRONG, ids=lambda value: value if isinstance(value, str) else value.__name__)
async def test_the_suite_notices_a_store_that_is_wrong(kind: type[MemoryStore], name: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await _run(kind, name)


@pytest.mark.parametrize("name", sorted({name for _, name in WRONG}))
async def test_the_same_test_lets_one_pass_that_is_right(name: str) -> None:
    with suppress(pytest.skip.Exception):  # of a flag that a right store does not have
        await _run(MemoryStore, name)


def test_a_waiver_is_of_a_test_and_has_a_reason() -> None:
    with pytest.raises(TypeError, match="no test of the suite"):
        type("Wrong", (StoreSuite,), {"waived": {"test_nothing_of_the_kind": "because"}})
    with pytest.raises(TypeError, match="without a reason"):
        type("Silent", (StoreSuite,), {"waived": {"test_a_limit_of_zero_returns_nothing": " "}})
    with pytest.raises(TypeError, match="say why"):
        type("Hidden", (StoreSuite,), {"test_a_limit_of_zero_returns_nothing": None})
    type("Right", (StoreSuite,), {"waived": {"test_a_limit_of_zero_returns_nothing": "the vendor has no such limit"}})
