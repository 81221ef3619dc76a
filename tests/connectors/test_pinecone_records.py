"""What the Pinecone store keeps where: texts beside, access columns always, and requests within the vendor's limits."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from ragstore.contracts import DropDocument, DropRows, PutRows, Retag, VectorQuery, Write
from ragstore.errors import PoisonError
from ragstore.filters import ALWAYS, AnyOf
from ragstore.testing.rows import access, chunk, chunks, document_id, listed, row, vector
from tests.fakes.pinecone import PineconeServer
from tests.support.pinecone_stores import OpenPinecone

LONG = 'Wörter mit \0 und "Anführung" ' * 1_500
QUERY = VectorQuery(vector=vector(1))
ROWS, TEXTS = "ragstore.chunks", "ragstore.chunks~text"


def _records(server: PineconeServer, namespace: str) -> list[str]:
    return sorted(server.index.records(namespace))


async def test_a_long_text_is_kept_beside_and_comes_back_whole(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text=LONG), row("b", text="short")])])
    assert len(_records(pinecone_server, ROWS)) == 2
    assert len(_records(pinecone_server, TEXTS)) > 5
    assert {match.text for match in await store.search(QUERY, filter=ALWAYS, limit=5)} == {LONG, "short"}
    assert {match.text for match in await store.search(QUERY, filter=ALWAYS, limit=500)} == {LONG, "short"}
    assert {one.text for one in await listed(store.rows([document_id("a")]))} == {LONG}
    assert len(await listed(store.keys())) == 2
    assert (await store.stats()).rows == 2


async def test_a_text_beside_goes_with_its_row_and_shrinks_with_it(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text=LONG), row("b", text=LONG), row("c", text=LONG)])])
    await store.apply([PutRows(rows=[row("a", text="short", generation=2), row("b", text=LONG[:30_000], generation=2)])])
    owners = {one.rpartition("#")[0] for one in _records(pinecone_server, TEXTS)}
    assert owners == {f"{document_id(name)}#{chunk(name)}" for name in "bc"}
    assert {one.text for one in await listed(store.rows([document_id("b")]))} == {LONG[:30_000]}
    await store.apply(
        [
            DropDocument(document_id=document_id("b"), generation=2),
            DropRows(document_id=document_id("c"), generation=1, chunk_ids=chunks("c", [0])),
        ]
    )
    assert _records(pinecone_server, TEXTS) == []


async def test_a_row_whose_text_is_not_all_there_is_not_found_and_counts_as_missing(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text=LONG), row("b")])])
    del pinecone_server.index.records(TEXTS)[_records(pinecone_server, TEXTS)[1]]
    assert {match.chunk_id for match in await store.search(QUERY, filter=ALWAYS, limit=5)} == {chunk("b")}
    assert {key.chunk_id for key in await listed(store.keys())} == {chunk("b")}
    assert await listed(store.rows([document_id("a")])) == []


async def test_a_text_of_another_version_is_not_taken_for_this_one(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text=LONG)])])
    for part in pinecone_server.index.records(TEXTS).values():
        part["metadata"]["text"] = part["metadata"]["text"].upper()
    assert await store.search(QUERY, filter=ALWAYS, limit=5) == []


async def test_a_retag_moves_a_text_that_the_new_columns_leave_no_room_for(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone()
    text = "word " * 3_000
    await store.apply([PutRows(rows=[row("a", text=text)])])
    assert _records(pinecone_server, TEXTS) == []
    many = access("a.md", allowed=tuple(f"{number:036}" for number in range(800)))
    await store.apply([Retag(document_id=document_id("a"), access=many)])
    (stored,) = await listed(store.rows([document_id("a")]))
    assert (stored.text, stored.access) == (text, many)
    assert len(await store.search(QUERY, filter=AnyOf("allowed", frozenset({f"{799:036}"})), limit=5)) == 1
    await store.apply([Retag(document_id=document_id("a"), access=access("a.md"))])
    (stored,) = await listed(store.rows([document_id("a")]))
    assert (stored.text, stored.access) == (text, access("a.md"))


async def test_of_several_retags_the_last_counts_and_finds_room(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text="word " * 3_000)])])
    many = access("a.md", allowed=tuple(f"{number:036}" for number in range(800)))
    writes = [Retag(document_id=document_id("a"), access=one) for one in (access("b.md"), many)]
    await store.apply(writes)
    assert [key.access for key in await listed(store.keys())] == [many]
    await store.apply(writes[::-1])
    assert [key.access for key in await listed(store.keys())] == [access("b.md")]


@pytest.mark.parametrize("first", [0, 1])
async def test_access_columns_that_no_record_holds_are_refused_and_nothing_is_written(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone, first: int
) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("b")])])
    many = access("reports/secret.md", allowed=tuple(f"{number:036}" for number in range(1_200)))
    writes: list[Write] = [PutRows(rows=[row("a", columns=many)]), Retag(document_id=document_id("b"), access=many)]
    with pytest.raises(PoisonError, match=r"reports/secret\.md take 4\d,\d{3} bytes") as caught:
        await store.apply([PutRows(rows=[row("c")]), writes[first]])
    assert caught.value.kind == "too_large"
    assert len(_records(pinecone_server, ROWS)) == 1


async def test_access_columns_to_the_last_byte_are_kept(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    put = []
    for count in (600, 900, 1_020, 1_035):
        columns = access("a.md", allowed=tuple(f"{number:036}" for number in range(count)))
        put.append(row(f"document {count}", text="word " * 4_000, columns=columns))
    await store.apply([PutRows(rows=put)])
    assert {one.text for one in await listed(store.rows([one.document_id for one in put]))} == {"word " * 4_000}
    assert {key.access for key in await listed(store.keys())} == {one.access for one in put}


async def test_requests_stay_within_the_limits_whatever_is_written(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone(concurrency=3)
    many = [row("a", number, text="x" * 15_000) for number in range(400)] + [row("b", number) for number in range(1_500)]
    await store.apply([PutRows(rows=many)])
    upserts = pinecone_server.bodies("/vectors/upsert")
    assert len(upserts) >= 4
    assert max(len(body["vectors"]) for body in upserts) <= 1_000
    assert pinecone_server.largest <= 2_000_000
    assert pinecone_server.most_at_once <= 3
    await store.apply([DropDocument(document_id=document_id(name), generation=1) for name in "ab"])
    assert [len(body["ids"]) for body in pinecone_server.bodies("/vectors/delete")] == [1_000, 900]
    assert max(len(body["ids"]) for body in pinecone_server.bodies("/vectors/fetch")) == 100
    assert (await store.stats()).rows == 0


async def test_a_retag_sends_no_vector_reads_no_row_and_asks_a_few_at_a_time(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone
) -> None:
    store = open_pinecone(concurrency=4)
    await store.apply([PutRows(rows=[row("a", number) for number in range(1_000)])])
    pinecone_server.requests.clear()
    pinecone_server.most_at_once = 0
    await store.apply([Retag(document_id=document_id("a"), access=access("new.md", allowed=("g",)))])
    updates = pinecone_server.bodies("/vectors/update")
    assert len(updates) == 1_000
    assert {tuple(sorted(body)) for body in updates} == {("id", "namespace", "setMetadata")}
    assert not pinecone_server.bodies("/vectors/upsert")
    assert not pinecone_server.bodies("/vectors/fetch")
    assert pinecone_server.most_at_once <= 4
    assert len(await store.search(QUERY, filter=AnyOf("allowed", frozenset({"g"})), limit=5)) == 5


async def test_more_matches_than_an_answer_holds_with_metadata_are_found_all_the_same(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    columns = access("a.md", allowed=tuple(f"{number:036}" for number in range(900)))
    await store.apply([PutRows(rows=[row("a", number, columns=columns, text=f"text {number}") for number in range(150)])])
    for limit in (90, 91, 150, 20_000):
        found = await store.search(QUERY, filter=ALWAYS, limit=limit)
        assert len(found) == min(limit, 150)
        assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)


async def test_expunging_removes_texts_of_which_no_row_tells(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text=LONG), row("b", text=LONG)])])
    kept = [one for one in _records(pinecone_server, TEXTS) if one.startswith(document_id("b"))]
    del pinecone_server.index.records(ROWS)[f"{document_id('a')}#{chunk('a')}"]
    await store.expunge()
    assert _records(pinecone_server, TEXTS) == kept
    assert {one.text for one in await listed(store.rows([document_id("b")]))} == {LONG}


async def test_own_writes_are_waited_for_and_not_for_ever(
    pinecone_server: PineconeServer, open_pinecone: OpenPinecone, caplog: pytest.LogCaptureFixture
) -> None:
    pinecone_server.index.delay = 0.5
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a")])])
    assert await store.search(QUERY, filter=ALWAYS, limit=5) == []  # a search does not wait
    assert len(await listed(store.keys([document_id("b")]))) == 0  # nor what is of other documents
    assert len(await listed(store.keys())) == 1
    await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
    assert len(await store.search(QUERY, filter=ALWAYS, limit=5)) == 1
    assert await listed(store.keys()) == []
    pinecone_server.index.delay = 60.0
    impatient = open_pinecone("other", wait_seconds=0.3)
    await impatient.apply([PutRows(rows=[row("a")])])
    with caplog.at_level(logging.WARNING, "ragstore.pinecone"):
        assert await listed(impatient.keys()) == []
    assert "not readable after 0.3 seconds" in caplog.text


async def test_a_generation_that_cannot_be_read_yet_still_guards(pinecone_server: PineconeServer, open_pinecone: OpenPinecone) -> None:
    pinecone_server.index.delay = 0.3
    store = open_pinecone()
    await store.apply([PutRows(rows=[row("a", text="new", generation=2)])])
    await store.apply([PutRows(rows=[row("a", text="old")])])
    await store.apply([DropDocument(document_id=document_id("a"), generation=1)])
    assert [one.text for one in await listed(store.rows([document_id("a")]))] == ["new"]


async def test_a_vector_comes_back_to_the_last_bit(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    odd = np.array([1e-38, 1 / 3, -0.1, 3e38, 1e-7, 2**-24, 0.0, 1.0], np.float32)
    await store.apply([PutRows(rows=[replace(row("a"), vector=odd)])])
    (stored,) = await listed(store.rows([document_id("a")]))
    assert stored.vector.dtype == np.float32
    assert stored.vector.tobytes() == odd.tobytes()


async def test_ids_that_ragstore_did_not_derive_are_refused(open_pinecone: OpenPinecone) -> None:
    store = open_pinecone()
    for bad in ("", "a#b", "é", "a b", "\0"):
        with pytest.raises(ValueError, match="no ids"):
            await store.apply([PutRows(rows=[replace(row("a"), document_id=bad)])])
        assert await listed(store.keys([bad])) == []
        assert await listed(store.rows([bad])) == []
