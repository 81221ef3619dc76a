"""Every file of the shared index through the parser pool: the sentence that must appear, on its page, or the kind of error."""

from __future__ import annotations

import csv
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ragstore.errors import PoisonError
from ragstore.models import Block
from ragstore.parsing import ParserPool

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row of the index."""

    file: str
    declared: str | None
    sentence: str
    """Empty where only an error will do."""
    kinds: frozenset[str]
    page: int | None


def cases() -> list[Case]:
    folder = os.environ.get("RAGSTORE_SHARED")
    if not folder:
        return []
    with (Path(folder) / "data" / "files" / "INDEX.tsv").open(encoding="utf-8", newline="") as stream:
        return [case_of(row) for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]


def case_of(row: dict[str, str]) -> Case:
    expected = row["must_contain_or_error_kind"]
    sentence, _, kinds = expected.partition(" || ")
    if row["expect"] in {"error", "empty"}:
        sentence, kinds = "", expected
    page = int(row["page"]) if row["page"] else None
    return Case(
        file=row["file"], declared=row["declared_content_type"] or None, sentence=sentence, kinds=frozenset(kinds.split("|")), page=page
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[ParserPool]:
    pool = ParserPool(workers=1)
    yield pool
    await pool.close()


NONE = Case(file="none", declared=None, sentence="", kinds=frozenset(), page=None)


@pytest.mark.parametrize("case", cases() or [NONE], ids=lambda case: case.file)
async def test_a_file_of_the_index_gives_what_the_index_says(pool: ParserPool, shared: Path, case: Case) -> None:
    blocks, kind = await parsed(pool, shared / "data" / "files" / case.file, case)
    if kind:
        assert kind in case.kinds
        return
    text = "".join(block.text for block in blocks)
    assert case.sentence
    assert case.sentence in (page_text(blocks, text, case.page) if case.page else text)
    assert "root:" not in text
    assert_sound(blocks)


async def parsed(pool: ParserPool, file: Path, case: Case) -> tuple[list[Block], str]:
    """Blocks, or the kind of error."""
    try:
        async with await pool.parse(file, name=case.file, declared=case.declared) as stream:
            return [block async for block in stream.blocks], ""
    except PoisonError as error:
        return [], error.kind


def page_text(blocks: list[Block], text: str, number: int) -> str:
    marks = [mark for block in blocks for mark in block.pages]
    start = next(mark.start for mark in marks if mark.number == number)
    end = next((mark.start for mark in marks if mark.number == number + 1), len(text))
    return text[start:end]


def assert_sound(blocks: list[Block]) -> None:
    """Blocks tile the text, marks stand in their block and in order, and the text can be stored anywhere."""
    start = 0
    for block in blocks:
        assert block.start == start
        start += len(block.text)
        marks = [mark.start for mark in block.headings]
        assert marks == sorted(marks)
        assert all(block.start <= mark < start for mark in [*marks, *(page.start for page in block.pages)])
        assert block.text.encode().isascii() or block.text.encode().decode() == block.text
        assert not {"\0", "\r", "\ufeff"} & set(block.text)
