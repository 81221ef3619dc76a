"""Leaks by what changes or is copied: rows 12, 13 and 21 of the catalogue of leaks (access reference, section 12), and broken policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from ragstore.errors import AccessError
from ragstore.filters import matches
from ragstore.index import AsyncIndex
from tests.support.azure_files import assigned
from tests.support.vault import CANARY, HIDDEN, OPEN, PATH, Mode, Vault, blobs, chunk_ids, readable
from tests.support.workspace import PRINCIPALS, found, paragraphs

FOOD = "docs/open/food.md"
REST = OPEN - {FOOD}


async def nothing_is_left(index: AsyncIndex, vault: Vault, chunks: list[str]) -> None:
    """Bob finds the rest and nothing of `FOOD`, at any door; and the store, if it was told, has him in none of its columns."""
    bob = index.principal("Bob")
    assert await blobs(index, "merger kitchen food", "Bob") == REST
    prompt = await index.prompt("merger kitchen food", principal=bob)
    assert {citation.blob for citation in prompt.citations} == REST
    assert FOOD not in str(prompt)
    for chunk in chunks:
        assert await index.chunk(chunk, principal=bob) is None
    assert {one.id: reads for one, reads in await index.readers(FOOD)}["bob"] is False


# 12. What was granted once stays granted.


@pytest.mark.parametrize("lane", ["refresh_access", "sync"])
@pytest.mark.parametrize("left", [None, {}, {"allow": "", "Project": "", "Level": ""}, {"allow": " ", "Project": " "}, "board"])
async def test_the_last_grant_that_is_taken_from_a_blob_is_gone_with_the_pass(
    vault: Vault, lane: str, left: dict[str, str] | Literal["board"] | None
) -> None:
    async with vault.open() as index:
        await index.sync()
        assert await blobs(index, "merger", "Bob") == OPEN
        chunks = chunk_ids(index, FOOD)
        vault.tags.pop("open/food.md")
        if isinstance(left, dict):
            vault.tags["open/food.md"] = left
        vault.save_tags()
        if left == "board":
            vault.tag("open/food.md", readers="board")
        report = await (index.refresh_access() if lane == "refresh_access" else index.sync())
        assert (report.retagged, report.chunks_embedded) == (1, 0)
        await nothing_is_left(index, vault, chunks)
        policy = index._assembly.policy
        scope = policy.filter_for(index.principal("Bob"))
        async for key in vault.watched.keys(None):
            if key.access.path == "open/food.md":
                assert key.access.allowed in {(), ("board",)}
                assert not (scope.exact and matches(scope.filter, key.access))
        vault.tag("open/food.md", readers="staff")
        await (index.refresh_access() if lane == "refresh_access" else index.sync())
        assert await blobs(index, "merger", "Bob") == OPEN


async def test_the_last_group_that_is_taken_from_a_principal_counts_at_once(vault: Vault) -> None:
    async with vault.open() as index:
        await index.sync()
        assert await blobs(index, "merger", "Bob") == OPEN
        (chunk, *_) = chunk_ids(index, FOOD)
        vault.sections["access"]["principals"] = "principals.json"
        (vault.base / "principals.json").write_text(json.dumps([{**one, "groups": []} for one in PRINCIPALS]), encoding="utf-8")
        assert await blobs(index, "merger", "Bob") == set()
        assert await index.chunk(chunk, principal=index.principal("Bob")) is None


async def test_the_last_assignment_that_is_taken_back_counts_at_once(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    vault.fill()
    async with vault.open() as index:
        await index.sync()
        chunks = chunk_ids(index, FOOD)
        bob = index.principal("Bob")
        assert await blobs(index, "merger", "Bob") == OPEN
        vault.assign(assigned("staff", condition=f"{PATH} StringEquals 'open/rooms.md'"))
        await nothing_is_left(index, vault, chunks)
        vault.assign()
        assert await index.search("merger", principal=bob) == []
        assert [await index.chunk(chunk, principal=bob) for chunk in chunks] == [None] * len(chunks)


# 13. Names are taken for ids.


async def test_a_name_that_is_the_id_of_somebody_or_of_a_group_gives_nothing(vault: Vault) -> None:
    people = [{"id": f"mallory{number}", "name": name} for number, name in enumerate(("board", "staff", "ada", "Ada ", "bob"))]
    (vault.base / "principals.json").write_text(json.dumps([*PRINCIPALS, *people]), encoding="utf-8")
    async with vault.open() as index:
        await index.sync()
        for name in ("board", "staff", "mallory2", "mallory3", "mallory4"):
            assert await readable(index, vault, name) == set(), name
        # An id comes before a name, so that nobody who calls himself so is asked for in its place.
        assert index.principal("ada").name == "Ada"
        assert index.principal("bob").id == "bob"


async def test_a_list_of_names_grants_nothing(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="groups", store=store)
    for number, listed in enumerate(("Bob", "Ada", "BOB", "bob@example.org", "Staff")):
        vault.write(f"{number}.md", f"The merger {number}", allow=listed)
    async with vault.open() as index:
        await index.sync()
        assert await readable(index, vault, "Bob") == set()


# 21. What is derived from a blob does not have its access.


async def test_every_row_of_a_blob_has_its_access_and_keeps_step_with_it(vault: Vault) -> None:
    vault.put("open/long.md", "# Long\n\n" + paragraphs("merger", 12), readers="board")
    async with vault.open() as index:
        await index.sync()
        for readers in ("board", "staff", "nobody", "board"):
            vault.tag("open/long.md", readers=readers)
            await index.refresh_access()
            everything = [chunk for _, chunk in index._assembly.ledger.documents.all_chunk_ids()]
            committed = index._assembly.ledger.documents.committed(everything)
            rows = {key.chunk_id: key.access async for key in vault.watched.keys(None)}
            assert rows.keys() == committed.keys()
            assert sum(access.path == "open/long.md" for access in rows.values()) > 5
            for chunk, access in rows.items():
                known = committed[chunk]
                assert access == index._assembly.policy.columns(known.current_access, media_type=known.media_type)


async def test_a_copy_and_a_renamed_blob_have_their_own_access_though_nothing_is_embedded_anew(vault: Vault) -> None:
    async with vault.open() as index:
        await index.sync()
        secret = vault.docs / CANARY / f"{CANARY}-deal.md"
        text = secret.read_text(encoding="utf-8")
        vault.put("open/copy.md", text, readers="nobody")
        secret.rename(vault.docs / "open" / "renamed.md")
        vault.tags.pop(f"{CANARY}/{CANARY}-deal.md")
        vault.save_tags()
        assert (await index.sync()).chunks_embedded == 0
        assert await blobs(index, f"merger {CANARY}", "Bob") == OPEN
        vault.tag("open/copy.md", readers="staff")
        await index.sync()
        assert await blobs(index, f"merger {CANARY}", "Bob") == OPEN | {"docs/open/copy.md"}


# An index that was made under one policy is asked under another, before any pass.


@pytest.mark.parametrize("store", ["lancedb"])  # memory is another one for each vault
@pytest.mark.parametrize(("made", "asked"), [("groups", "azure"), ("azure", "groups"), ("groups", "inexact"), ("inexact", "groups")])
async def test_columns_of_another_policy_let_nothing_through(store: str, tmp_path: Path, made: Mode, asked: Mode) -> None:
    before = Vault(tmp_path, mode=made, store=store)
    before.fill()
    before.put("traded.md", "The merger is traded", readers="staff")
    before.tags["traded.md"] = {"allow": "staff"} if made == "groups" else {"Project": "Open", "Level": "1"}  # of the old policy alone
    before.save_tags()
    async with before.open() as index:
        await index.sync()
        assert await blobs(index, "merger", "Bob") == OPEN | {"docs/traded.md"}
    tags = dict(before.tags)
    after = Vault(tmp_path, mode=asked, store=store)
    after.tags = tags
    after.save_tags()
    async with after.open() as index:
        assert await blobs(index, f"merger {CANARY}", "Bob") <= OPEN
        assert await blobs(index, f"merger {CANARY}", "Eve") == set()
        await index.sync()
        assert await readable(index, after, "Bob") == OPEN


# A policy that cannot be read.


@pytest.mark.parametrize("content", [None, "", "{", "null", "[", "{}", '[{"a": 1, "a": 2}]', '{"value": [], "nextLink": "x"}', "\ufffd"])
async def test_a_policy_file_that_breaks_while_an_index_is_open_denies_at_every_door(
    store: str, tmp_path: Path, content: str | None
) -> None:
    vault = Vault(tmp_path, mode="azure", store=store)
    vault.fill()
    async with vault.open() as index:
        await index.sync()
        ada = index.principal("Ada")
        (first, *_) = await found(index, f"merger {CANARY}", "Ada")
        file = tmp_path / "assignments.json"
        good = file.read_bytes()
        file.unlink()
        if content is not None:
            file.write_text(content, encoding="utf-8")
        for question in (
            index.search("merger", principal=ada),
            index.prompt("merger", principal=ada),
            index.chunk(first.chunk, principal=ada),
            index.explain(first.blob, principal=ada),
            index.readers(first.blob),
        ):
            with pytest.raises(AccessError) as caught:
                await question
            assert CANARY not in str(caught.value)
        file.write_bytes(good)
        assert await blobs(index, "merger", "Ada") == OPEN | HIDDEN


async def test_rules_and_principals_that_break_deny(store: str, tmp_path: Path) -> None:
    vault = Vault(tmp_path, mode="groups", store=store)
    vault.sections["access"] = {"mode": "groups", "rules": "rules.toml", "principals": "principals.json"}
    rules = tmp_path / "rules.toml"
    rules.write_text(f'"open/*" = "staff"\n"**/{CANARY}*" = "board"\n', encoding="utf-8")
    vault.fill()
    async with vault.open() as index:
        await index.sync()
        bob = index.principal("Bob")
        assert await blobs(index, "merger", "Bob") == OPEN
        rules.write_text(f'"{CANARY}/*" = 5', encoding="utf-8")
        with pytest.raises(AccessError) as caught:
            await index.search("merger", principal=bob)
        assert CANARY not in str(caught.value)
        (tmp_path / "principals.json").write_text('[{"id": "bob", "groups": "board"}]', encoding="utf-8")
        with pytest.raises(AccessError):
            index.principal("Bob")
