"""OpenVINOEmbedder: the conformance suite in each precision that the CPU has, and agreement with `minilm`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ragstore import plugins
from ragstore.contracts import Embedder
from ragstore.errors import ConfigError
from ragstore.testing.embedders import ODD_TEXTS, EmbedderSuite
from ragstore_onnx import MiniLMEmbedder, minilm

if TYPE_CHECKING:
    from ragstore_openvino import OpenVINOEmbedder

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed (extra `openvino`)")
pytestmark = pytest.mark.skipif(find_spec(minilm.MINILM.package) is None, reason=f"no weights: {minilm.MINILM.install}")

HAS_BFLOAT16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
NEEDS_BFLOAT16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="this CPU has no bfloat16")


def running(precision: str) -> Iterator[OpenVINOEmbedder]:
    embedder: OpenVINOEmbedder = plugins.build("embedders", "openvino", {"precision": precision, "download": False})
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture(scope="module")
def in_float32() -> Iterator[OpenVINOEmbedder]:
    yield from running("f32")


@pytest.fixture(scope="module")
def in_bfloat16() -> Iterator[OpenVINOEmbedder]:
    yield from running("bf16")


class TestFloat32(EmbedderSuite):
    @pytest.fixture
    def embedder(self, in_float32: OpenVINOEmbedder) -> Embedder:
        return in_float32


@NEEDS_BFLOAT16
class TestBfloat16(EmbedderSuite):
    tolerance = 4e-3  # eight bits of mantissa: the order of additions, which depends on the batch's shape, shows

    @pytest.fixture
    def embedder(self, in_bfloat16: OpenVINOEmbedder) -> Embedder:
        return in_bfloat16


TEXTS = ["Hello world", "The key is rotated every ninety days. " * 20, "A short question?", *ODD_TEXTS]


async def reference() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    embedder = MiniLMEmbedder(download=False)
    try:
        return await embedder.embed(TEXTS, purpose="document")
    finally:
        await embedder.close()


async def test_float32_vectors_and_their_fingerprint_are_those_of_minilm(in_float32: OpenVINOEmbedder) -> None:
    vectors = await in_float32.embed(TEXTS, purpose="document")
    assert np.abs(vectors - await reference()).max() < 1e-5
    assert in_float32.fingerprint == "minilm:53aa5117:mean:384:f32"


@NEEDS_BFLOAT16
async def test_bfloat16_vectors_are_near_but_have_their_own_fingerprint(in_bfloat16: OpenVINOEmbedder) -> None:
    vectors = await in_bfloat16.embed(TEXTS, purpose="document")
    assert (vectors * await reference()).sum(axis=1).min() > 0.999
    assert in_bfloat16.fingerprint == "minilm:53aa5117:mean:384:bf16"


@NEEDS_BFLOAT16
def test_the_precision_that_the_cpu_multiplies_fastest_is_the_default() -> None:
    assert plugins.build("embedders", "openvino", {"download": False}).fingerprint.endswith(":bf16")


def test_bfloat16_is_refused_where_the_cpu_would_emulate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldCore:
        def get_property(self, *_: str) -> list[str]:
            return ["FP32", "INT8"]

    monkeypatch.setattr(openvino, "Core", OldCore)
    with pytest.raises(ConfigError, match="no bfloat16"):
        plugins.build("embedders", "openvino", {"precision": "bf16", "download": False})
    assert plugins.build("embedders", "openvino", {"download": False}).fingerprint.endswith(":f32")


def test_an_unknown_precision_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="precision"):
        plugins.build("embedders", "openvino", {"precision": "int8"})
