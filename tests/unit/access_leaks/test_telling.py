"""Leaks by what an answer tells: rows 16, 17 and 25 of the catalogue of leaks (access reference, section 12).

A canary stands in the path, title, heading, tags and text of every hidden document. It must be in nothing that anybody is told who may
not read them: hits, prompts, errors, counts, log records, the command line with all it says on stderr.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragstore.access.policy import Policy
from ragstore.cli.outcome import Exit
from ragstore.errors import RagstoreError, TransientError
from ragstore.models import AccessAttributes, CommittedChunk, Principal
from ragstore.retrieval import Retrieval
from ragstore_lancedb.filters import where
from tests.support.azure_files import assigned
from tests.support.commands import Ragstore
from tests.support.vault import CANARY, HIDDEN, MODES, OPEN, PATH, PROJECT, Mode, Vault, blobs, chunk_ids
from tests.support.workspace import PRINCIPALS, found

ABSENT = "0" * 32


class Counting:
    """What a door asks of the ledger and of the policy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, documents: Any, policy: Policy) -> None:
        self.asked: list[str] = []
        self._note(monkeypatch, documents, "committed")
        self._note(monkeypatch, documents, "committed_at_once")
        self._note(monkeypatch, policy, "filter_for")

    def _note(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def noting(*arguments: object) -> object:
            self.asked.append(name)
            return real(*arguments)

        monkeypatch.setattr(owner, name, noting)

    def taken(self) -> list[str]:
        """What was asked since the last time."""
        taken, self.asked = self.asked, []
        return taken


# 16. Side doors.


async def test_a_forbidden_chunk_and_one_that_is_not_there_are_the_same_answer(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    async with vault.open() as index:
        await index.sync()
        await blobs(index, "merger", "Bob")
        forbidden = chunk_ids(index, min(HIDDEN))
        bob = index.principal("Bob")
        told: list[Retrieval] = []
        index.observe(told.append)
        vault.watched.asked.clear()
        counting = Counting(monkeypatch, index._assembly.ledger.documents, index._assembly.policy)
        work = []
        for chunk in (ABSENT, *forbidden):
            assert await index.chunk(chunk, principal=bob) is None
            work.append(counting.taken())
        assert all(one == work[0] for one in work)
        assert (vault.watched.asked, vault.watched.read) == ([], [])  # the store is asked of neither, so that it takes no longer either
        assert all(one.returned == () for one in told)
        for odd in ("", "x", "'", "\0", "\ud800", forbidden[0].upper(), f" {forbidden[0]}", forbidden[0][:8], f"{forbidden[0]}\n", "%"):
            assert await index.chunk(odd, principal=bob) is None
        assert await index.chunk(forbidden[0], principal=index.principal("Ada")) is not None


async def test_where_the_ledger_or_the_policy_is_away_both_are_the_same_error(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_ids: Sequence[str]) -> Mapping[str, CommittedChunk]:
        raise OSError(f"the ledger lost {CANARY}")

    def undecided(_principal: Principal, _attributes: AccessAttributes | None = None) -> bool:
        raise RagstoreError("nobody can decide")

    async with vault.open() as index:
        await index.sync()
        bob = index.principal("Bob")
        (forbidden, *_) = chunk_ids(index, min(HIDDEN))
        patches: list[tuple[object, str, Callable[..., object]]] = [
            (index._assembly.ledger.documents, "committed_at_once", away),
            (index._assembly.policy, "filter_for", undecided),
        ]
        for owner, name, fault in patches:
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fault)
                errors = []
                for chunk in (ABSENT, forbidden):
                    with pytest.raises(RagstoreError) as caught:
                        await index.chunk(chunk, principal=bob)
                    errors.append((type(caught.value), str(caught.value)))
            assert errors[0] == errors[1]
            assert CANARY not in str(errors)


async def test_a_chunk_of_a_hidden_blob_is_no_neighbour_in_a_prompt(vault: Vault) -> None:
    async with vault.open() as index:
        await index.sync()
        for query in ("merger", CANARY, f"the merger of the {CANARY} heading"):
            prompt = await index.prompt(query, principal=index.principal("Bob"))
            assert {citation.blob for citation in prompt.citations} <= OPEN
            told = str(prompt.messages).replace(query, "") + str(prompt.citations)
            assert CANARY not in told


# 17. Counts, titles, errors and logs.


async def test_nothing_of_a_hidden_document_is_told_to_whoever_may_not_read_it(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    async with vault.open() as index:
        await index.sync()
        told: list[Retrieval] = []
        index.observe(told.append)
        caplog.set_level(logging.DEBUG)
        answers: list[object] = []
        for who in ("Bob", "Eve"):
            for limit in (1, 2, 1000):
                answers += await found(index, "merger of the title and heading", who, limit=limit)
            answers.append(await index.prompt("merger of the title and heading", principal=index.principal(who)))
            for chunk in chunk_ids(index, min(HIDDEN)):
                answers.append(await index.chunk(chunk, principal=index.principal(who)))
        assert CANARY not in str(answers)
        assert CANARY not in str([record.__dict__ for record in caplog.records if record.name.startswith("ragstore")])
        assert CANARY not in json.dumps([one.as_dict() for one in told])


async def test_scores_do_not_depend_on_how_much_the_filter_lets_through(tmp_path: Path) -> None:
    """With scores that hidden candidates move, one could ask word by word what a hidden document says."""
    told = []
    for mode in ("azure", "inexact"):
        base = tmp_path / mode
        base.mkdir()
        vault = Vault(base, mode=mode, store="lancedb")
        vault.fill()
        async with vault.open() as index:
            await index.sync()
            assert index._assembly.policy.filter_for(index.principal("Bob")).exact is (mode == "azure")
            hits = [hit for fusion in ("max-norm", "rrf") for hit in await found(index, f"merger {CANARY}", "Bob", limit=1, fusion=fusion)]
            told.append([(hit.chunk, hit.score) for hit in hits])
    assert told[0] == told[1] != []


async def test_an_answer_with_nothing_in_it_is_the_same_whatever_is_hidden(store: str, tmp_path: Path) -> None:
    told = []
    for hidden in (True, False):
        base = tmp_path / str(hidden)
        base.mkdir()
        vault = Vault(base, mode="inexact", store=store)
        vault.fill()
        if not hidden:
            for name in HIDDEN:
                (vault.docs / name.removeprefix("docs/")).unlink()
        async with vault.open() as index:
            await index.sync()
            for who, narrowed in (("Eve", None), ("Bob", f"path starts with '{CANARY}'")):
                asking = index.principal(who)
                prompt = await index.prompt(CANARY, principal=asking, filter=narrowed)
                told.append((await index.search(CANARY, principal=asking, filter=narrowed), prompt))
    assert [answer == told[0] for answer in told] == [True] * 4


async def test_an_error_of_the_store_quotes_nothing_of_the_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(tmp_path, mode="azure", store="lancedb")
    vault.fill()
    vault.assign(assigned("staff", condition=f"NOT ({PATH} StringLike '{CANARY}/*{CANARY}*') AND {PROJECT} StringNotEquals '{CANARY}'"))
    broken: list[Callable[[str], str]] = [
        lambda sql: f"{sql} AND (",
        lambda sql: f"{sql} AND nothing = 1",
        lambda sql: f"{sql} AND path > 5",
        lambda sql: f"{sql} AND regexp_like(path, '(')",
        lambda sql: f"{sql} AND array_has_any(path, 5)",
    ]
    async with vault.open() as index:
        await index.sync()
        bob = index.principal("Bob")
        for breaking in broken:
            monkeypatch.setattr("ragstore_lancedb.store.where", lambda expression, breaking=breaking: breaking(str(where(expression))))
            with pytest.raises(TransientError) as caught:
                await index.search("merger", principal=bob)
            assert CANARY not in str(caught.value)
            assert "staff" not in str(caught.value)


def configured(vault: Vault, base: Path) -> None:
    """What the vault is opened with, as a file for the command line."""
    access = "\n".join(f"{key} = {json.dumps(value)}" for key, value in vault.sections["access"].items())
    source = '[source]\ntype = "folder"\npath = "docs"\ntags = "tags.json"\n[store]\ntype = "lancedb"\npath = "index"\n'
    (base / "ragstore.toml").write_text(f"{source}[access]\n{access}\n", encoding="utf-8")


COMMANDS: list[tuple[list[str], int]] = [
    (["search", "merger of the title"], Exit.DONE),
    (["search", "merger of the title", "--json"], Exit.DONE),
    (["search", "merger of the title", "-k", "1000", "--fusion", "rrf", "--per-blob", "9"], Exit.DONE),
    (["search", "merger", "--filter", "path exists or not path exists", "--json"], Exit.DONE),
    (["prompt", "merger of the title", "--json"], Exit.DONE),
    (["prompt", "merger of the title"], Exit.DONE),
    (["search", "merger", "--filter", "path ="], Exit.USAGE),
    (["search", "merger", "-k", "0"], Exit.USAGE),
    (["search", ""], Exit.USAGE),
    (["prompt", "merger", "--max-tokens", "1"], Exit.USAGE),
]


@pytest.mark.parametrize("mode", MODES)
def test_the_command_line_says_nothing_of_hidden_documents_to_whoever_may_not_read_them(
    ragstore: Ragstore, tmp_path: Path, mode: Mode
) -> None:
    vault = Vault(tmp_path, mode=mode, store="lancedb")
    vault.fill()
    configured(vault, tmp_path)
    assert ragstore("index", "-q").code == Exit.DONE
    assert CANARY in ragstore("search", "merger", "--as", "Ada").out
    for who in ("Bob", "Eve"):
        for command, code in COMMANDS:
            ran = ragstore(*command, "--as", who, "-v")
            assert (ran.code, CANARY in ran.out, CANARY in ran.err) == (code, False, False), (who, command)
    for nobody in ([], ["--as", "nobody"], ["--as", ""], ["--as", "staff"]):
        for command in (["search", "merger", "--json"], ["prompt", "merger"]):
            ran = ragstore(*command, *nobody, "-v")
            assert (ran.code, ran.out) == (Exit.USAGE, "")
            assert CANARY not in ran.err


@pytest.mark.parametrize("damage", ["files are cut off", "table is gone", "policy is broken"])
def test_what_is_broken_says_nothing_of_hidden_documents(ragstore: Ragstore, tmp_path: Path, damage: str) -> None:
    vault = Vault(tmp_path, mode="azure", store="lancedb")
    vault.fill()
    configured(vault, tmp_path)
    assert ragstore("index", "-q").code == Exit.DONE
    if damage == "files are cut off":
        for file in (tmp_path / "index").rglob("*.lance"):
            if file.is_file():
                file.write_bytes(b"")
    elif damage == "table is gone":
        shutil.rmtree(tmp_path / "index")
    else:
        vault.assign(assigned("staff", condition=f"{PATH} StringLike 'open/*'"), {"a": 1})
        (tmp_path / "assignments.json").write_text("{", encoding="utf-8")
    for who in ("Bob", "Eve"):
        for command in (["search", "merger", "--json"], ["prompt", "merger"]):
            ran = ragstore(*command, "--as", who, "-v")
            assert CANARY not in ran.out + ran.err
            assert not re.search(r"\b(4|four)\b.*\b(chunk|row|document|blob)", ran.err), "four are indexed"
            assert ran.code != Exit.DONE or who == "Eve"


# 25. A model decides what is asked for, or is told what decides.


async def test_a_prompt_holds_nothing_of_what_decided_over_it(vault: Vault) -> None:
    async with vault.open() as index:
        await index.sync()
        people = {word for one in PRINCIPALS for word in (one["id"], one["name"], *one["groups"])}
        for who in ("Ada", "Bob", "Eve"):
            prompt = await index.prompt("merger", principal=index.principal(who))
            words = set(re.findall(r"\w+", str([message["content"] for message in prompt.messages])))
            assert words.isdisjoint(people | {"StringEquals", "NumericLessThan", "Project", "Level", "allow", "assignments"})
