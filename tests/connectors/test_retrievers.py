"""The retrievers of LangChain and LlamaIndex, with the real packages: each asks as one principal, and shows what that one may read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from llama_index.core.schema import MetadataMode, NodeWithScore
from pydantic import ValidationError

import ragstore
import ragstore_langchain
import ragstore_llama_index
from ragstore.errors import AccessError, ConfigError
from ragstore.models import Hit, Principal

CANARY = "canary-4711"
QUESTION = "when do salaries rise?"
Ask = Callable[..., list[str]]


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("retrievers")
    (base / "docs").mkdir()
    (base / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days; salaries rise elsewhere.\n")
    (base / "docs" / "pay.md").write_text(f"# Pay\n\nSalaries rise by three percent in April. {CANARY}\n")
    (base / "tags.json").write_text(json.dumps({"keys.md": {"allow": "staff"}, "pay.md": {"allow": "hr"}}))
    people = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]
    (base / "principals.json").write_text(json.dumps(people))
    file = base / "ragstore.toml"
    file.write_text(
        'source = {type = "folder", path = "docs", tags = "tags.json"}\nembedder = {type = "hash"}\n'
        'access = {mode = "groups", tag_key = "allow", principals = "principals.json"}\n'
    )
    with ragstore.open(file) as index:
        index.sync()
    return file


@pytest.fixture(scope="module")
def index(configuration: Path) -> Iterator[ragstore.Index]:
    with ragstore.open(configuration) as opened:
        yield opened


def test_langchain_finds_what_search_finds_and_says_where_it_stands(index: ragstore.Index) -> None:
    ada = index.principal("Ada")
    documents = ragstore_langchain.RagstoreRetriever(index=index, principal=ada).invoke(QUESTION)
    assert [_hit_of_document(document) for document in documents] == index.search(QUESTION, principal=ada)
    assert [document.metadata["source"] for document in documents] == ["docs/pay.md", "docs/keys.md"]


def test_llama_index_finds_what_search_finds_and_says_where_it_stands(index: ragstore.Index) -> None:
    ada = index.principal("Ada")
    nodes = ragstore_llama_index.RagstoreRetriever(index, principal=ada).retrieve(QUESTION)
    assert [_hit_of_node(node) for node in nodes] == index.search(QUESTION, principal=ada)
    assert [node.node.ref_doc_id for node in nodes] == ["docs/pay.md", "docs/keys.md"]
    shown = nodes[0].node.get_content(MetadataMode.LLM)
    assert "blob: docs/pay.md" in shown
    assert "etag" not in shown


async def test_both_show_nobody_what_is_not_theirs_on_every_way(index: ragstore.Index, configuration: Path) -> None:
    bob = index.principal("Bob")
    langchain = ragstore_langchain.RagstoreRetriever(index=index, principal=bob)
    llama = ragstore_llama_index.RagstoreRetriever(index, principal=bob)
    answers: list[Any] = [langchain.invoke(QUESTION), await langchain.ainvoke(QUESTION), *langchain.batch([QUESTION, CANARY])]
    answers += [llama.retrieve(QUESTION), await llama.aretrieve(CANARY)]
    async with ragstore.open_async(configuration) as other:
        answers.append(await ragstore_langchain.RagstoreRetriever(index=other, principal=bob).ainvoke(CANARY))
        answers.append(await ragstore_llama_index.RagstoreRetriever(other, principal=bob).aretrieve(QUESTION))
    assert all(len(answer) == 1 for answer in answers)
    assert CANARY not in repr(answers)


async def test_the_index_of_an_event_loop_is_asked_on_it(index: ragstore.Index, configuration: Path) -> None:
    ada = index.principal("Ada")
    async with ragstore.open_async(configuration) as other:
        langchain = ragstore_langchain.RagstoreRetriever(index=other, principal=ada)
        llama = ragstore_llama_index.RagstoreRetriever(other, principal=ada)
        assert [document.id for document in await langchain.ainvoke(QUESTION)] == [node.node_id for node in await llama.aretrieve(QUESTION)]
        with pytest.raises(TypeError, match="ainvoke"):
            langchain.invoke(QUESTION)
        with pytest.raises(TypeError, match="aretrieve"):
            llama.retrieve(QUESTION)


def test_a_retriever_is_a_part_of_a_chain(index: ragstore.Index) -> None:
    retriever = ragstore_langchain.RagstoreRetriever(index=index, principal=index.principal("Bob"))
    names = RunnableLambda[list[Document], list[str]](lambda documents: [document.metadata["blob"] for document in documents])
    assert (retriever | names).invoke(QUESTION) == ["docs/keys.md"]


def test_there_is_no_retriever_without_a_principal(index: ragstore.Index) -> None:
    for nobody in (None, "Ada", {"id": "ada", "name": "Ada"}):
        with pytest.raises(ValidationError, match="principal"):
            ragstore_langchain.RagstoreRetriever(index=index, principal=nobody)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"no principal: give index\.principal"):
            ragstore_llama_index.RagstoreRetriever(index, principal=nobody)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="principal"):
        ragstore_langchain.RagstoreRetriever(index=index)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="principal"):
        ragstore_llama_index.RagstoreRetriever(index)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no index"):
        ragstore_llama_index.RagstoreRetriever("index", principal=index.principal("Ada"))  # type: ignore[arg-type]


def test_a_principal_that_is_taken_away_later_is_nobody(index: ragstore.Index) -> None:
    retriever = ragstore_langchain.RagstoreRetriever(index=index, principal=index.principal("Ada"))
    retriever.principal = None  # type: ignore[assignment]
    with pytest.raises(AccessError):
        retriever.invoke(QUESTION)


def test_no_call_and_no_option_asks_as_somebody_else(index: ragstore.Index) -> None:
    ada, bob = index.principal("Ada"), index.principal("Bob")
    langchain = ragstore_langchain.RagstoreRetriever(index=index, principal=bob)
    with pytest.raises(TypeError, match="principal"):
        langchain.invoke(QUESTION, principal=ada)
    with pytest.raises(TypeError, match="principal"):
        ragstore_langchain.RagstoreRetriever(index=index, principal=bob, options={"principal": ada}).invoke(QUESTION)
    with pytest.raises(TypeError, match="principal"):
        ragstore_llama_index.RagstoreRetriever(index, principal=bob, options={"principal": ada}).retrieve(QUESTION)


def test_limit_filter_and_options_reach_the_search(index: ragstore.Index) -> None:
    ada = index.principal("Ada")
    options: dict[str, Any] = {"limit": 1, "filter": "path = 'keys.md'", "options": {"fusion": "rrf"}}
    langchain = ragstore_langchain.RagstoreRetriever(index=index, principal=ada, **options)
    assert [document.metadata["blob"] for document in langchain.invoke(QUESTION)] == ["docs/keys.md"]
    assert len(langchain.invoke(QUESTION, limit=5, filter=None)) == 2
    llama = ragstore_llama_index.RagstoreRetriever(index, principal=ada, **options)
    assert [node.node.ref_doc_id for node in llama.retrieve(QUESTION)] == ["docs/keys.md"]
    for wrong in ({"limit": 0}, {"filter": "path ="}, {"options": {"fusion": "none"}}):
        with pytest.raises(ConfigError):
            ragstore_langchain.RagstoreRetriever(index=index, principal=ada, **wrong).invoke(QUESTION)
        with pytest.raises(ConfigError):
            ragstore_llama_index.RagstoreRetriever(index, principal=ada, **wrong).retrieve(QUESTION)


def test_what_is_traced_of_a_retriever_does_not_tell_who_asks(index: ragstore.Index) -> None:
    somebody = Principal(id="somebody", name="Somebody")
    retriever = ragstore_langchain.RagstoreRetriever(index=index, principal=somebody)
    assert "somebody" not in f"{retriever!r} {retriever.model_dump()} {retriever.model_dump_json()}".casefold()


def _hit_of_document(document: Document) -> Hit:
    fields = {name: value for name, value in document.metadata.items() if name != "source"}
    assert document.id == fields["chunk"]
    return Hit(text=document.page_content, **fields)


def _hit_of_node(scored: NodeWithScore) -> Hit:
    return Hit(chunk=scored.node_id, text=scored.text, score=scored.score or 0.0, **scored.metadata)
