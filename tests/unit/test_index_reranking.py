"""`[reranker]`, keywords and options of the command line in; that each reaches a real service on this machine, or is refused, out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragstore import config
from ragstore.cli.outcome import Exit
from ragstore.config import ConnectorSettings
from ragstore.errors import ConfigError, QueryError
from tests.fakes.rerank_server import Failure, RerankServer
from tests.support.commands import Ragstore
from tests.support.workspace import Workspace, found

pytest.importorskip("httpx", reason="the package is not installed (extra `rerank`)")


@pytest.fixture
def server() -> Iterator[RerankServer]:
    """Whose order is that of its texts from last to first."""
    with RerankServer("tei", key=None) as running:
        running.tamper = lambda ranks: [{**rank, "score": rank["index"] / 100} for rank in ranks]
        yield running


@pytest.fixture
def section(server: RerankServer) -> dict[str, Any]:
    return {"type": "rerank-api", "style": "tei", "base_url": server.base_url, "attempts": 1}


@pytest.fixture
def workspace(tmp_path: Path, section: dict[str, Any]) -> Workspace:
    made = Workspace(tmp_path, reranker=section)
    for name in ("one", "two", "three"):
        made.write(f"{name}.md", f"The halyard of boat {name} is a rope.")
    return made


async def names(workspace: Workspace, **said: Any) -> list[str]:
    async with workspace.open() as index:
        await index.sync()
        return [hit.blob for hit in await found(index, "the halyard of boat one", "Bob", **said)]


async def test_what_is_configured_orders_every_search_and_every_prompt(workspace: Workspace, server: RerankServer) -> None:
    async with workspace.open() as index:
        await index.sync()
        plain = [hit.blob for hit in await found(index, "the halyard of boat one", "Bob", rerank=False)]
        assert server.requests == []
        assert [hit.blob for hit in await found(index, "the halyard of boat one", "Bob")] == plain[::-1]
        prompt = await index.prompt("the halyard of boat one", principal=index.principal("Bob"))
        assert {citation.blob for citation in prompt.citations} == set(plain)
        assert len(server.requests) == 2
        await index.prompt("the halyard of boat one", principal=index.principal("Bob"), rerank=False)
        assert len(server.requests) == 2


async def test_without_a_section_nothing_is_reranked_and_to_ask_for_it_is_an_error(workspace: Workspace) -> None:
    del workspace.sections["reranker"]
    plain = await names(workspace)
    assert await names(workspace, rerank=False) == plain
    with pytest.raises(QueryError, match=r"\[reranker\]"):
        await names(workspace, rerank=True)


async def test_it_may_be_there_for_those_who_ask_for_it(workspace: Workspace, server: RerankServer) -> None:
    workspace.sections["retrieval"] = {"rerank": False}
    plain = await names(workspace)
    assert server.requests == []
    assert await names(workspace, rerank=True) == plain[::-1]


async def test_it_is_built_when_a_question_needs_it_and_closed_with_the_index(workspace: Workspace) -> None:
    async with workspace.open() as index:
        await index.sync()
        [hit, *_] = await found(index, "halyard", "Bob", rerank=False)
        await index.chunk(hit.chunk, principal=index.principal("Bob"))
        assert index._assembly._reranker is None
        await index.ready()
        built = index._assembly.reranker()
        assert built is index._assembly.reranker() is index._assembly._reranker is not None
    assert built._client.is_closed


async def test_a_service_that_is_down_costs_the_order_and_not_the_answer(
    workspace: Workspace, server: RerankServer, caplog: pytest.LogCaptureFixture
) -> None:
    plain = await names(workspace, rerank=False)
    server.failures = [Failure(status=503)]
    with caplog.at_level(logging.WARNING, "ragstore"):
        assert await names(workspace) == plain
    assert [record.getMessage() for record in caplog.records] == ["retrieval.reranker_failed"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"type": "rerank-ap"}, "no reranker of type 'rerank-ap'; did you mean 'rerank-api'"),
        ({"stile": "tei"}, r"\[reranker\] type = 'rerank-api' has no option 'stile'; did you mean 'style'"),
        ({"style": "other"}, r"\[reranker\] type = 'rerank-api': style"),
        ({"base_url": None}, "base_url"),
    ],
)
async def test_a_wrong_section_is_named(workspace: Workspace, changed: dict[str, Any], message: str) -> None:
    workspace.sections["reranker"] |= changed
    with pytest.raises(ConfigError, match=message):
        await names(workspace)


def test_a_section_needs_a_type_and_a_switch_needs_a_section(tmp_path: Path) -> None:
    access = {"access": {"mode": "open"}}
    with pytest.raises(ConfigError, match=r'\[reranker\] needs a type, such as type = "rerank-api"'):
        config.from_mapping({**access, "reranker": {"style": "tei"}}, base=tmp_path, environ={})
    with pytest.raises(ConfigError, match="'reranker' must be a section"):
        config.from_mapping({**access, "reranker": "cohere"}, base=tmp_path, environ={})
    with pytest.raises(ConfigError, match=r"rerank = true, and there is no \[reranker\]"):
        config.from_mapping({**access, "retrieval": {"rerank": True}}, base=tmp_path, environ={})
    environ = {"RAGSTORE_RERANKER__TYPE": "cross-encoder", "RAGSTORE_RERANKER__MODEL": "tiny", "RAGSTORE_RETRIEVAL__RERANK": "true"}
    settings = config.from_mapping(access, base=tmp_path, environ=environ)
    assert settings.reranker == ConnectorSettings.model_validate({"type": "cross-encoder", "model": "tiny"})
    assert settings.retrieval.rerank is True


def test_the_option_of_the_command_line_reaches_it(ragstore: Ragstore, docs: Path, server: RerankServer, section: dict[str, Any]) -> None:
    assert docs.is_dir()
    ragstore("init", "docs")
    with Path("ragstore.toml").open("a", encoding="utf-8") as file:
        file.write("[reranker]\n" + "".join(f"{key} = {value!r}\n" for key, value in section.items()))
    ragstore("index")
    plain = ragstore("search", "access key", "--no-rerank", "--json").json["hits"]
    assert (len(plain), server.requests) == (2, [])
    assert ragstore("search", "access key", "--json").json["hits"][0]["blob"] == plain[1]["blob"]
    assert ragstore("search", "access key", "--rerank", "--json").json["hits"][0]["blob"] == plain[1]["blob"]
    assert ragstore("prompt", "access key", "--json").code == Exit.DONE
    assert len(server.requests) == 3
    assert ragstore("prompt", "access key", "--no-rerank", "--json").code == Exit.DONE
    assert ragstore("ask", "access key", "--no-rerank", "--json").code == Exit.USAGE  # there is no model to ask
    assert len(server.requests) == 3


def test_what_is_set_up_wrongly_is_shown_on_the_command_line(
    ragstore: Ragstore, docs: Path, server: RerankServer, section: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docs.is_dir()
    ragstore("index", "docs")
    ran = ragstore("search", "access key", "--rerank", "--json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "[reranker]" in ran.err
    for key, value in section.items():
        monkeypatch.setenv(f"RAGSTORE_RERANKER__{key.upper()}", str(value))
    assert ragstore("search", "access key", "--json").code == Exit.DONE
    server.key = "secret"
    ran = ragstore("search", "access key", "--json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "refuses the key" in ran.err


def test_eval_compares_with_and_without(
    ragstore: Ragstore, docs: Path, server: RerankServer, section: dict[str, Any], tmp_path: Path
) -> None:
    assert docs.is_dir()
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "queries.jsonl").write_text('{"_id": "q", "text": "rotate every access key"}\n')
    (tmp_path / "set" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tkeys.md\t1\n")
    ragstore("init", "docs")
    with Path("ragstore.toml").open("a", encoding="utf-8") as file:
        file.write("[reranker]\n" + "".join(f"{key} = {value!r}\n" for key, value in section.items()))
    ragstore("index")
    ran = ragstore("eval", "set", "--as", "local", "--compare", "no-rerank", "--compare", "rrf rerank", "--json")
    assert ran.code == Exit.DONE, ran.err
    without, reranked = ran.json["configurations"]
    assert (without["ndcg@10"]["value"], reranked["ndcg@10"]["value"]) == (1.0, pytest.approx(0.631, abs=1e-3))
    assert len(server.requests) >= 1
