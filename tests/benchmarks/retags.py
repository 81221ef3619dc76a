"""Stores in, what they send to give a document of 1,000 chunks other readers out: never a vector."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ragstore.contracts import PutRows, Retag, Store
from ragstore.models import AccessColumns, Row, chunk_id, text_hash
from ragstore_azure.search import AzureSearchStore
from ragstore_lancedb import LanceDBStore
from ragstore_pgvector import PgvectorStore
from ragstore_pinecone import PineconeStore
from tests.benchmarks.clients import KEY_VARIABLE
from tests.benchmarks.fakes import KEY
from tests.benchmarks.figures import Figure
from tests.benchmarks.topics import DIMENSIONS
from tests.benchmarks.wire import counted
from tests.fakes.azure_search import AzureSearch
from tests.fakes.pinecone import PineconeServer

ROWS = 1_000
_NUMBER_BYTES = 4
"""Of a component of a vector: who sends one vector for each chunk sends 384 times as much for each."""
_ACCESS = AccessColumns(
    account="local",
    container="docs",
    path="long/retagged.md",
    media_type="text/markdown",
    allowed=("group-1", "group-2"),
    labels=("A\x1fLOCAL", "t\x1fproject\x1fbaker"),
    label_keys=("t\x1fproject",),
)
_RETAGGED = replace(_ACCESS, allowed=("group-3",))


def document() -> list[Row]:
    """Its rows."""
    draw = np.random.default_rng(8)
    vectors = draw.normal(size=(ROWS, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = []
    for number, vector in enumerate(vectors):
        text = f"chunk {number} of a document that is given other readers"
        key = chunk_id("retagged", text_hash(text), 0)
        rows.append(Row(chunk_id=key, document_id="retagged", generation=1, text=text, vector=vector, access=_ACCESS))
    return rows


async def retags(folder: Path, indexed: Store, url: str) -> list[Figure]:
    """Of all stores. `indexed` has a table with an approximate index in the PostgreSQL at `url`."""
    lance = LanceDBStore(base=folder, path="index", collection="retag", dimensions=DIMENSIONS)
    took = await _retagged(lance)
    await lance.close()
    note = "rows are rewritten whole, in the same process; nothing is embedded"
    return [
        Figure(name="lancedb: retag of 1,000 chunks", value=took, unit="s", note=note),
        *await _in_postgres(url),
        *await _beside_an_index(indexed),
        await _in_azure(),
        await _in_pinecone(),
    ]


async def _retagged(store: Store, reset: Callable[[], None] | None = None) -> float:
    """Seconds."""
    await store.apply([PutRows(rows=document())])
    if reset is not None:
        reset()
    begin = time.perf_counter()
    await store.apply([Retag(document_id="retagged", access=_RETAGGED)])
    return time.perf_counter() - begin


async def _in_postgres(url: str) -> list[Figure]:
    async with counted(url) as wire:
        store = PgvectorStore(collection="retag", dimensions=DIMENSIONS, url=wire.url)
        took = await _retagged(store, wire.reset)
        sent = wire.sent
        await store.drop()
        await store.close()
    note = f"{took:.3f} s without an approximate index; as many vectors are {ROWS * DIMENSIONS * 4:,} bytes"
    name = "pgvector: retag of 1,000 chunks, sent"
    return [Figure(name=name, value=sent, unit="bytes", target=ROWS * _NUMBER_BYTES, note=note)]


async def _beside_an_index(store: Store) -> list[Figure]:
    """The columns are kept once for the document, away from what the approximate index is of."""
    put = time.perf_counter()
    await store.apply([PutRows(rows=document())])
    put = time.perf_counter() - put
    took = await _retagged(store)
    again = time.perf_counter()
    await store.apply([PutRows(rows=[replace(row, generation=2, access=_RETAGGED) for row in document()])])
    again = time.perf_counter() - again
    rows = (await store.stats()).rows
    await store.close()
    note = f"in a table of {rows:,} rows; the first put of the same rows {put:.2f} s, another under a newer generation {again:.2f} s"
    return [Figure(name="pgvector: retag of 1,000 chunks, with HNSW", value=took, unit="s", target=0.5, note=note)]


async def _in_azure() -> Figure:
    os.environ[KEY_VARIABLE] = KEY
    with AzureSearch(key=KEY) as fake:
        store = AzureSearchStore(collection="retag", dimensions=DIMENSIONS, endpoint=fake.url, key_env=KEY_VARIABLE)

        def forget() -> None:
            fake.requests.clear()
            fake.sizes.clear()

        took = await _retagged(store, forget)
        await store.close()
        actions = [action for body in fake.asked("index") for action in body["value"]]
        asked, sizes = len(fake.requests), sum(fake.sizes)
    return _figure("azure-search", actions, [action for action in actions if "vector" in action], asked, sizes, took)


async def _in_pinecone() -> Figure:
    os.environ[KEY_VARIABLE] = KEY
    with PineconeServer(key=KEY, dimension=DIMENSIONS) as fake:
        store = PineconeStore(collection="retag", dimensions=DIMENSIONS, host=fake.index_host(), api_key_env=KEY_VARIABLE)
        took = await _retagged(store, fake.requests.clear)
        await store.close()
        writes = [body for path, body in fake.requests if path in {"/vectors/update", "/vectors/upsert"}]
        asked, size = len(fake.requests), sum(len(json.dumps(body)) for body in writes)
    vectors = [body for body in writes if body.get("values") or body.get("vectors")]
    return _figure("pinecone", writes, vectors, asked, size, took)


def _figure(name: str, writes: Iterable[Any], vectors: Iterable[Any], asked: int, size: int, took: float) -> Figure:
    note = f"{len(list(writes)):,} rows set with {size:,} bytes, {asked:,} requests in all, {took:.2f} s at the fake"
    return Figure(name=f"{name}: retag of 1,000 chunks, vectors sent", value=len(list(vectors)), unit="vectors", target=0, note=note)
