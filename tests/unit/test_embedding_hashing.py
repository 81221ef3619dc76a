"""The hash embedder: deterministic, instant, and near where words are shared."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragstore import plugins
from ragstore.embedding.hashing import HashEmbedder
from ragstore.errors import ConfigError
from ragstore.testing.embedders import EmbedderSuite

TEXTS = st.lists(st.text(st.characters(), min_size=1, max_size=200), max_size=8)


class TestHashEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self) -> HashEmbedder:
        return HashEmbedder()


@given(TEXTS)
async def test_any_texts_have_the_vectors_that_they_have_alone(texts: list[str]) -> None:
    embedder = HashEmbedder(dimensions=16)
    together = await embedder.embed(texts, purpose="document")
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal((await embedder.embed([text], purpose="query"))[0], vector)


async def test_case_and_punctuation_do_not_matter() -> None:
    first, second = await HashEmbedder().embed(["Rotate the KEY!", "rotate, the key"], purpose="document")
    assert np.array_equal(first, second)


async def test_shared_words_make_texts_near_in_scripts_without_spaces_as_well() -> None:
    a, b, c = await HashEmbedder(dimensions=256).embed(["密钥轮换周期", "密钥轮换的周期", "香蕉是黄色水果"], purpose="document")
    assert a @ b > 0.8
    assert a @ c < 0.5


async def test_another_model_name_gives_other_vectors_and_another_fingerprint() -> None:
    first, second = HashEmbedder(), HashEmbedder(model="other")
    assert first.fingerprint != second.fingerprint
    assert not np.allclose(await first.embed(["some text"], purpose="document"), await second.embed(["some text"], purpose="document"))


def test_vectors_are_the_same_in_another_process() -> None:
    code = (
        "import asyncio; from ragstore.embedding.hashing import HashEmbedder;"
        "print(asyncio.run(HashEmbedder().embed(['some text, née'], purpose='document')).tobytes().hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    vectors = asyncio.run(HashEmbedder().embed(["some text, née"], purpose="document"))
    assert done.stdout.strip() == vectors.tobytes().hex()


async def test_a_thousand_characters_cost_microseconds() -> None:
    texts = [f"{number} quick brown foxes jump over lazy dogs, again and again; " * 16 for number in range(500)]
    embedder = HashEmbedder()
    await embedder.embed(texts[:8], purpose="document")

    async def cost() -> float:
        start = time.process_time()
        await embedder.embed(texts, purpose="document")
        return (time.process_time() - start) / len(texts)

    assert min([await cost() for _ in range(5)]) < 100e-6  # 14 on a quiet machine


def test_tokens_are_a_quarter_of_the_bytes_and_at_least_one() -> None:
    assert HashEmbedder().count_tokens(["a", "abcd", "abcde", "密钥"]) == [1, 1, 2, 2]


def test_dimensions_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="at least 1 dimension"):
        HashEmbedder(dimensions=0)


def test_it_is_registered_under_its_name() -> None:
    assert plugins.build("embedders", "hash", {"dimensions": 8}).dimensions == 8
