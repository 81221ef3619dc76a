"""Rows that went, in; a table without a byte of them, and as fast to search as before, out."""

from __future__ import annotations

from pathlib import Path

from ragstore.contracts import DropDocument, PutRows, TextQuery, VectorQuery
from ragstore.filters import ALWAYS, OneOf
from ragstore.testing.rows import DIMENSIONS, access, document_id, row
from ragstore_lancedb import LanceDBStore

ROWS = 6_000
INDEXED = "account, allowed, container, document_id, label_keys, labels, media_type, path, terms, vector"


async def test_words_and_paths_leave_the_indexes_which_are_all_there_again(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=DIMENSIONS, ann_from=ROWS // 2)
    rows = [
        row(f"d{number}", text=f"text of unmistakable{number}", columns=access(f"folder/{number}-file", allowed=(f"reader-{number}",)))
        for number in range(ROWS)
    ]
    await store.apply([PutRows(rows=rows)])
    await store.maintain(force=True)
    assert (await store.stats()).detail["indexes"] == INDEXED
    await store.apply([DropDocument(document_id=document_id("d17"), generation=1)])
    expunged = await store.expunge()
    assert expunged.older == ()
    assert set(expunged.files) == {file for file in (tmp_path / ".ragstore" / "index").rglob("*") if file.is_file()}
    content = b"".join(file.read_bytes() for file in expunged.files)
    for trace in ("unmistakable17 ", "folder/17-file", "reader-17\0", document_id("d17")):
        assert trace.encode() not in content, trace
    detail = (await store.stats()).detail
    assert (detail["indexes"], detail["unindexed_rows"], detail["fragments"]) == (INDEXED, 0, 1)
    (match,) = await store.search(VectorQuery(vector=rows[18].vector), filter=OneOf("path", frozenset({"folder/18-file"})), limit=5)
    assert match.chunk_id == rows[18].chunk_id
    (match,) = await store.search(TextQuery(text="unmistakable18"), filter=ALWAYS, limit=5)
    assert match.chunk_id == rows[18].chunk_id
    assert await store.search(TextQuery(text="unmistakable17"), filter=ALWAYS, limit=5) == []
    await store.close()


async def test_a_collection_that_shrank_below_what_an_index_needs_goes_without(tmp_path: Path) -> None:
    store = LanceDBStore(base=tmp_path, collection="chunks", dimensions=DIMENSIONS, ann_from=300)
    await store.apply([PutRows(rows=[row(f"d{number}") for number in range(300)])])
    await store.maintain(force=True)
    await store.apply([DropDocument(document_id=document_id(f"d{number}"), generation=1) for number in range(299)])
    assert (await store.expunge()).older == ()
    detail = (await store.stats()).detail
    assert detail["indexes"] == "terms"
    assert len(await store.search(VectorQuery(vector=row("d299").vector), filter=ALWAYS, limit=5)) == 1
    await store.close()
