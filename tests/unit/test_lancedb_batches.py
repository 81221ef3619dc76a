"""Any list of writes has the same effect in batches as one after another."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, Write
from ragstore.models import Row
from ragstore.testing.rows import access, chunks, document_id, row
from ragstore_lancedb.batches import Batch, batched

Stored = dict[str, tuple[str, int, str, str]]
"""Document, generation, text and path by chunk id."""

documents = st.sampled_from(["a", "b"])
generations = st.integers(1, 3)
numbers = st.integers(0, 2)


@st.composite
def puts(draw: st.DrawFn) -> PutRows:
    made = [
        row(
            draw(documents),
            draw(numbers),
            generation=draw(generations),
            text=draw(st.sampled_from("xyz")),
            columns=access(draw(st.sampled_from("pqr"))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return PutRows(rows=made)


writes: st.SearchStrategy[list[Write]] = st.lists(
    st.one_of(
        puts(),
        st.builds(
            lambda name, generation, some: DropRows(document_id=document_id(name), generation=generation, chunk_ids=chunks(name, some)),
            documents,
            generations,
            st.lists(numbers, max_size=3),
        ),
        st.builds(lambda name, generation: DropDocument(document_id=document_id(name), generation=generation), documents, generations),
        st.builds(lambda name, path: Retag(document_id=document_id(name), access=access(path)), documents, st.sampled_from("stu")),
    ),
    max_size=8,
)


def put(stored: Stored, one: Row) -> None:
    present = stored.get(one.chunk_id)
    if present is None or present[1] <= one.generation:
        stored[one.chunk_id] = (one.document_id, one.generation, one.text, one.access.path)


def drop(stored: Stored, write: DropRows | DropDocument) -> None:
    for chunk_id, (document, generation, _, _) in list(stored.items()):
        named = isinstance(write, DropDocument) or chunk_id in write.chunk_ids
        if named and document == write.document_id and generation <= write.generation:
            del stored[chunk_id]


def retag(stored: Stored, document: str, path: str) -> None:
    for chunk_id, one in stored.items():
        if one[0] == document:
            stored[chunk_id] = (*one[:3], path)


def one_after_another(stored: Stored, several: list[Write]) -> None:
    for write in several:
        match write:
            case PutRows():
                for one in write.rows:
                    put(stored, one)
            case Retag():
                retag(stored, write.document_id, write.access.path)
            case DropRows() | DropDocument():
                drop(stored, write)


def as_a_batch(stored: Stored, batch: Batch) -> None:
    for document, columns in batch.retags.items():
        retag(stored, document, columns.path)
    for one in batch.puts.values():
        put(stored, one)
    for write in batch.drops:
        drop(stored, write)


@given(before=writes, several=writes)
def test_batches_have_the_effect_of_the_writes_in_their_order(before: list[Write], several: list[Write]) -> None:
    expected: Stored = {}
    one_after_another(expected, before)
    actual = dict(expected)
    one_after_another(expected, several)
    for batch in batched(several):
        as_a_batch(actual, batch)
    assert actual == expected


def test_what_an_index_run_writes_is_one_batch() -> None:
    several: list[Write] = []
    for name in ("a", "b", "c"):
        several.append(PutRows(rows=[row(name, number, generation=2) for number in range(3)]))
        several.append(DropRows(document_id=document_id(name), generation=1, chunk_ids=chunks(name, [7])))
    several += [DropDocument(document_id=document_id("d"), generation=4), Retag(document_id=document_id("e"), access=access())]
    assert len(list(batched(several))) == 1


def test_no_writes_are_no_batch() -> None:
    assert list(batched([])) == []
    assert list(batched([PutRows(rows=[])])) == []


def test_a_put_that_a_drop_before_it_would_take_begins_a_batch() -> None:
    one = replace(row("a"), generation=2)
    assert len(list(batched([DropDocument(document_id=one.document_id, generation=2), PutRows(rows=[one])]))) == 2
    assert len(list(batched([DropDocument(document_id=one.document_id, generation=1), PutRows(rows=[one])]))) == 1
