"""Packed chunk records behave as a list of records, and take a fraction of its memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore.ledger import ChunkRecord, PackedChunks

HEX = st.text("0123456789abcdef", min_size=32, max_size=32)
RECORDS = st.lists(
    st.builds(
        ChunkRecord,
        chunk_id=HEX,
        start=st.integers(0, 2**40),
        end=st.integers(0, 2**40),
        page=st.none() | st.integers(1, 10_000),
        heading=st.none() | st.sampled_from(["", "One", "One > Two", "Ünï"]),
        text_hash=HEX,
    )
)


def packed(records: list[ChunkRecord]) -> PackedChunks:
    chunks = PackedChunks()
    for record in records:
        chunks.append(record)
    return chunks


@given(RECORDS)
def test_what_goes_in_comes_out_in_order(records: list[ChunkRecord]) -> None:
    chunks = packed(records)
    assert list(chunks) == records
    assert [chunks[i] for i in range(len(chunks))] == records
    assert list(chunks[1:3]) == records[1:3]
    assert list(chunks.chunk_ids()) == [record.chunk_id for record in records]


@pytest.mark.parametrize(("chunk_id", "text_hash"), [("x" * 32, "0" * 32), ("0" * 30, "0" * 32), ("0" * 32, "")])
def test_an_id_that_is_no_digest_is_refused_rather_than_changed(chunk_id: str, text_hash: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        PackedChunks().append(ChunkRecord(chunk_id=chunk_id, start=0, end=1, page=None, heading=None, text_hash=text_hash))


def test_a_record_takes_less_than_100_bytes() -> None:
    tracemalloc.start()
    try:
        chunks = PackedChunks()
        for i in range(10_000):
            chunks.append(
                ChunkRecord(chunk_id=f"{i:032x}", start=i, end=i + 900, page=None, heading="One > Two", text_hash=f"{-i % 2**128:032x}")
            )
        assert tracemalloc.get_traced_memory()[0] < 100 * len(chunks)
    finally:
        tracemalloc.stop()
