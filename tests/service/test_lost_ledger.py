"""A ledger's file that is deleted, or replaced, under a service that has it open, in; that nobody is answered by what was there, out."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from ragstore.errors import ConfigError
from ragstore.ledger import Ledger
from tests.service.conftest import ADA_CANARY, Served, Serving

_NOTICED = 0.15
"""Seconds after which it is."""


def _lose(file: Path, how: str) -> None:
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    if how == "file alone":
        file.unlink()
        return
    for each in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        each.unlink(missing_ok=True)
    if how == "replaced":
        copy.replace(file)


async def _refused(served: Served, chunk: str) -> None:
    """No way of asking is answered, and the reason is for the log."""
    for answer in [
        *[await served.post("search", "ada", query="board", legs=legs) for legs in ("both", "vector", "text")],
        await served.post("prompt", "ada", query="board"),
        await served.http.get(f"/v1/chunks/{chunk}", headers=served.bearer("ada")),
        await served.http.get("/readyz"),
    ]:
        assert answer.status_code == 503
        assert not any(word in answer.text for word in (ADA_CANARY, "ledger", "docs/ada.md"))
    assert (await served.http.get("/healthz")).status_code == 200
    assert "was deleted or replaced while this process had it open" in served.log.getvalue()


@pytest.mark.parametrize("how", ["deleted", "file alone", "replaced"])
async def test_a_service_whose_ledger_is_lost_answers_nobody_and_is_not_ready(serving: Serving, how: str) -> None:
    async with serving() as served:
        file = served.workspace.base / ".ragstore" / "ledger.db"
        hit = (await served.post("search", "ada", query="board")).json()["hits"][0]
        assert ADA_CANARY in hit["text"]
        assert (await served.http.get("/readyz")).status_code == 200
        _lose(file, how)
        await asyncio.sleep(1.1)  # readiness is remembered for a second
        await _refused(served, hit["chunk"])
        served.index._assembly.ledger.release_memory()
        await _refused(served, hit["chunk"])  # also where it connects anew
        assert file.exists() == (how == "replaced")  # nobody has made an empty one


async def test_what_another_ledger_revokes_is_not_shown_by_the_one_before_it(serving: Serving) -> None:
    async with serving() as served:
        assert ADA_CANARY in (await served.post("search", "ada", query="board")).text
        file = served.workspace.base / ".ragstore" / "ledger.db"
        file.rename(file.with_name("old.db"))
        served.workspace.allow("ada.md", "bob")
        async with served.workspace.open() as other:  # a worker that was started again, say
            await other.sync()
        await asyncio.sleep(_NOTICED)
        assert (await served.post("search", "ada", query="board")).status_code == 503
    async with served.workspace.open() as again:
        assert "docs/ada.md" not in [hit.blob for hit in await again.search("board", principal=again.principal("ada"))]


@pytest.mark.skipif(os.name == "nt", reason="there a file that is open cannot be taken away")
def test_nothing_is_written_into_a_file_that_is_gone_and_one_that_comes_back_is_the_same(tmp_path: Path) -> None:
    ledger = Ledger("sqlite:///ledger.db", base=tmp_path)
    ledger.set_setting("a", "1")
    file, away = tmp_path / "ledger.db", tmp_path / "away.db"
    file.rename(away)
    time.sleep(_NOTICED)
    for ask in (lambda: ledger.setting("a"), lambda: ledger.set_setting("a", "2"), ledger.documents.counts):
        with pytest.raises(ConfigError, match="start this process again"):
            ask()
    assert not file.exists()
    away.rename(file)
    assert ledger.setting("a") == "1"
    ledger.close()
