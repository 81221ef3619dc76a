"""The rows of an index in, the seconds out that raw LanceDB needs to write, move or delete them: the pipeline's baselines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lancedb
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from lancedb.table import AsyncTable

_BATCH = 512


def rows_of(base: Path) -> pa.Table:
    """All rows of the index whose base folder this is."""
    return asyncio.run(_read(base, None))


def texts_of(base: Path, path: str) -> set[str]:
    """The texts of the chunks of one document."""
    quoted = path.replace("'", "''")
    return set(asyncio.run(_read(base, f"path = '{quoted}'")).column("text").to_pylist())


def some_documents(rows: pa.Table, count: int) -> list[str]:
    """Ids of so many documents, spread over all."""
    every = sorted(set(rows.column("document_id").to_pylist()))
    return every[:: max(1, len(every) // count)][:count]


def merge(rows: pa.Table, folder: Path) -> float:
    """Seconds to merge the rows into an empty table, 512 at a time: what the peers' best case does."""

    async def work(table: AsyncTable) -> None:
        for start in range(0, len(rows), _BATCH):
            upsert = table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all()
            await upsert.execute(rows.slice(start, _BATCH))

    return asyncio.run(_timed(rows.slice(0, 0), folder, work))


def delete(rows: pa.Table, documents: Sequence[str], folder: Path) -> float:
    """Seconds to delete the rows of these documents with one predicate."""

    async def work(table: AsyncTable) -> None:
        await table.delete(_among(documents))

    return asyncio.run(_timed(rows, folder, work))


def move(rows: pa.Table, documents: Sequence[str], folder: Path) -> float:
    """Seconds to read the rows of these documents, add them under another id, and delete the old ones."""

    async def work(table: AsyncTable) -> None:
        found = await table.query().where(_among(documents)).to_arrow()
        ids = pc.binary_join_element_wise(found.column("chunk_id"), "moved", "-")
        await table.add(found.set_column(found.schema.get_field_index("chunk_id"), rows.schema.field("chunk_id"), ids))
        await table.delete(f"{_among(documents)} AND chunk_id NOT LIKE '%-moved'")

    return asyncio.run(_timed(rows, folder, work))


def _among(documents: Sequence[str]) -> str:
    return f"document_id IN ({', '.join(repr(document) for document in documents)})"


async def _read(base: Path, condition: str | None) -> pa.Table:
    connection = await lancedb.connect_async(base / ".ragstore" / "index")
    (name,) = [name for name in await connection.table_names() if name.startswith("chunks-")]
    table = await connection.open_table(name)
    query = table.query()
    return await (query if condition is None else query.where(condition)).to_arrow()


async def _timed(rows: pa.Table, folder: Path, work: Callable[[AsyncTable], Awaitable[None]]) -> float:
    connection = await lancedb.connect_async(folder)
    table = await connection.create_table("rows", data=rows)
    begin = time.perf_counter()
    await work(table)
    return time.perf_counter() - begin
