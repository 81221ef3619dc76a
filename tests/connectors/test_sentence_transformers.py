"""SentenceTransformersEmbedder over all-MiniLM-L6-v2 from the data wheel: the suite, agreement with `minilm`, prompts, wrong set-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ragstore.contracts import Embedder
from ragstore.errors import ConfigError
from ragstore.testing.embedders import ODD_TEXTS, EmbedderSuite
from ragstore_onnx import MiniLMEmbedder, minilm
from ragstore_sentence_transformers import SentenceTransformersEmbedder

INSTALLED = find_spec("sentence_transformers") is not None
pytestmark = [
    pytest.mark.skipif(find_spec(minilm.MINILM.package) is None, reason=f"no weights: {minilm.MINILM.install}"),
    # torch and the libraries around it warn about each other's plans.
    pytest.mark.filterwarnings("default"),
]
NEEDS_TORCH = pytest.mark.skipif(not INSTALLED, reason="sentence-transformers and torch are not installed (extra `sentence-transformers`)")


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm.folder(base=None, model_path=None, download=False)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Iterator[SentenceTransformersEmbedder]:
    embedder = SentenceTransformersEmbedder(model=folder.name, base=folder.parent, scripts=["latin"])
    yield embedder
    asyncio.run(embedder.close())


@NEEDS_TORCH
class TestSentenceTransformersEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self, loaded: SentenceTransformersEmbedder) -> Embedder:
        return loaded


@NEEDS_TORCH
async def test_vectors_and_counts_are_those_of_minilm(loaded: SentenceTransformersEmbedder) -> None:
    texts = ["Hello world", "The key is rotated every ninety days. " * 40, *ODD_TEXTS]
    other = MiniLMEmbedder(download=False)
    vectors = await other.embed(texts, purpose="document")
    await other.close()
    assert ((await loaded.embed(texts, purpose="document")) * vectors).sum(axis=1).min() > 0.9999
    assert loaded.count_tokens(texts) == other.count_tokens(texts)
    assert (loaded.dimensions, loaded.max_tokens, loaded.scripts) == (other.dimensions, other.max_tokens, other.scripts)


@NEEDS_TORCH
async def test_prompts_change_vectors_and_fingerprint(loaded: SentenceTransformersEmbedder, folder: Path) -> None:
    prompted = SentenceTransformersEmbedder(model=str(folder), query_prompt="query: ", document_prompt="passage: ")
    assert prompted.fingerprint != loaded.fingerprint
    query = await prompted.embed(["some text"], purpose="query")
    document = await prompted.embed(["some text"], purpose="document")
    plain = await loaded.embed(["query: some text", "passage: some text"], purpose="document")
    assert np.abs(np.concatenate([query, document]) - plain).max() < 1e-5
    await prompted.close()


@NEEDS_TORCH
async def test_vectors_can_be_cut(folder: Path) -> None:
    embedder = SentenceTransformersEmbedder(model=str(folder), dimensions=64)
    vectors = await embedder.embed(["some text"], purpose="document")
    assert vectors.shape == (1, embedder.dimensions) == (1, 64)
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-5)
    await embedder.close()


@NEEDS_TORCH
def test_a_model_that_cannot_be_loaded_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        SentenceTransformersEmbedder(model="empty", base=tmp_path)


@pytest.mark.skipif(INSTALLED, reason="sentence-transformers is installed")
def test_without_the_package_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"ragstore\[sentence-transformers\]"):
        SentenceTransformersEmbedder(model="any")


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        SentenceTransformersEmbedder(model="any", batch_size=0)
