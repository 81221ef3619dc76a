"""A LanceDB table in, the same table compacted, indexed and cleaned up out; nothing is done before it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from ragstore_lancedb.allocation import give_back_free_pages

if TYPE_CHECKING:
    from lancedb.table import AsyncTable

_FRAGMENTS: Final = 50
"""A query opens every fragment; measured, queries get noticeably slower from here on."""
_UNINDEXED_SHARE: Final = 0.25
_UNINDEXED_ROWS: Final = (250, 5_000)
"""Full text reads rows that are not indexed yet one by one, at 0.03 to 0.1 ms each. But to index them rewrites all small fragments, so a
growing collection waits for a share of its rows, and the cost per row stays the same."""
_SCALAR_INDEXES_FROM: Final = 5_000
"""Below this a filter reads the column faster than eight indexes can be kept up to date."""
_MUCH: Final = 50_000
"""Rows; below, a step takes less memory than would be given back before it, and to have that again costs time."""
_KEEP_VERSIONS: Final = timedelta(hours=1)
"""Other processes may still read an older version; cleaning up younger ones breaks them."""
_AT_ONCE: Final = timedelta(milliseconds=1)
"""Zero would mean the same, with a warning of what `expunge` says already."""

TEXT_INDEX: Final = "terms_idx"
VECTOR_INDEX: Final = "vector_idx"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What maintenance decides on."""

    rows: int
    fragments: int
    indexed: frozenset[str]
    """Columns that have an index."""
    unindexed_rows: int
    """Rows that the full-text index does not cover."""

    @classmethod
    async def of(cls, table: AsyncTable) -> Condition:
        """As the table stands; costs a few milliseconds and reads no data."""
        stats = cast("Mapping[str, Any]", await table.stats())  # declared with attributes, but it is a dictionary
        indexed = frozenset(column for index in await table.list_indices() for column in index.columns)
        text = await table.index_stats(TEXT_INDEX)
        rows = int(stats["num_rows"])
        return cls(
            rows=rows,
            fragments=int(stats["fragment_stats"]["num_fragments"]),
            indexed=indexed,
            unindexed_rows=text.num_unindexed_rows if text is not None else rows,
        )

    @property
    def has_many_fragments(self) -> bool:
        """Whether queries have become slower by the files that they open."""
        return self.fragments >= _FRAGMENTS

    @property
    def compaction_is_due(self) -> bool:
        """Whether queries have become slower than they need to be."""
        least, most = _UNINDEXED_ROWS
        return self.has_many_fragments or self.unindexed_rows > min(max(least, _UNINDEXED_SHARE * self.rows), most)

    @property
    def is_mostly_new(self) -> bool:
        """Whether to index all text anew, as after a first pass: adding so much to the index takes longer, and twice the memory."""
        return self.compaction_is_due and self.unindexed_rows > self.rows / 2


async def index_text(table: AsyncTable) -> None:
    """Create the full-text index; on an empty table this costs milliseconds and settles how rows and queries are analysed.

    Our own analysis has made terms of the words already.
    """
    from lancedb.index import FTS

    config = FTS(
        base_tokenizer="whitespace", stem=False, remove_stop_words=False, lower_case=False, ascii_folding=False, max_token_length=None
    )
    await table.create_index("terms", config=config, name=TEXT_INDEX)


async def maintain(table: AsyncTable, *, ann_from: int, force: bool) -> None:
    """Compact and index what is due. To be run by one process at a time; readers and writers may go on."""
    condition = await Condition.of(table)
    if "terms" not in condition.indexed:
        await index_text(table)
    if condition.is_mostly_new:
        await _make_room(condition)
        await index_text(table)
    if force or condition.has_many_fragments or (condition.compaction_is_due and not condition.is_mostly_new):
        await _make_room(condition)
        await table.optimize(cleanup_older_than=_KEEP_VERSIONS)
        await _make_room(condition)
    await _index_scalars(table, condition)
    if condition.rows >= ann_from and "vector" not in condition.indexed:
        from lancedb.index import IvfRq

        await table.create_index("vector", config=IvfRq(distance_type="cosine"), name=VECTOR_INDEX)
        await _make_room(condition)


async def expunge(table: AsyncTable, *, ann_from: int) -> None:
    """Leave nothing of rows that are gone. Nobody else may be writing; readers of older versions fail until they open the table again.

    Compaction is not enough: it spares a fragment of which little was deleted, and indexes keep words, paths and codes of rows that went.
    """
    await table.update(updates_sql={"generation": "generation"})  # changes nothing, and writes every row that is there into new fragments
    for index in await table.list_indices():
        if index.name != TEXT_INDEX:
            await table.drop_index(index.name)  # searches read the columns until it is there again
    await index_text(table)  # replaced in one commit, because no search for words can do without
    await maintain(table, ann_from=ann_from, force=False)
    await asyncio.sleep(2 * _AT_ONCE.total_seconds())  # so that every version but the last is old enough
    await table.optimize(cleanup_older_than=_AT_ONCE, delete_unverified=True)


async def older_versions(table: AsyncTable) -> list[str]:
    """The versions that are there besides the newest."""
    listed: list[dict[str, Any]] = await cast("Any", table).list_versions()  # declared without types
    return [f"version {version['version']}" for version in listed[:-1]]


async def _make_room(condition: Condition) -> None:
    """Before and after the steps that need most memory: what one of them leaves free is not what the next one can use."""
    if condition.rows >= _MUCH:
        await asyncio.to_thread(give_back_free_pages)


async def _index_scalars(table: AsyncTable, condition: Condition) -> None:
    if condition.rows < _SCALAR_INDEXES_FROM:
        return
    from lancedb.index import Bitmap, BTree, LabelList

    kinds: dict[str, BTree | LabelList | Bitmap] = dict.fromkeys(("document_id", "path"), BTree())
    kinds |= dict.fromkeys(("allowed", "labels", "label_keys"), LabelList())
    kinds |= dict.fromkeys(("account", "container", "media_type"), Bitmap())
    for column, kind in kinds.items():
        if column not in condition.indexed:
            await table.create_index(column, config=kind, name=f"{column}_idx")
