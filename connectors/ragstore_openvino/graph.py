"""Weights of a BERT sentence encoder in, an OpenVINO model out that ends in masked mean and L2 normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import openvino
from openvino import opset13 as ops

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Weights = Mapping[str, NDArray[np.float32]]

LAYERS: Final = 6
HEADS: Final = 12
HIDDEN: Final = 384
EPSILON: Final = 1e-12  # config.json, layer_norm_eps
_MASKED: Final = -1e9  # a score whose exponential is zero in every precision


def build(weights: Weights) -> openvino.Model:
    """The model over these weights, which are named as `transformers.BertModel` names them.

    Inputs `ids` and `mask` (int32, batch x tokens, padded on the right), output `vectors` (float32, batch x hidden). The weights are
    not copied: they must live as long as the model.
    """
    encoder = _Encoder(weights)
    ids = ops.parameter([-1, -1], np.int32, name="ids")
    mask = ops.convert(ops.parameter([-1, -1], np.int32, name="mask"), np.float32)
    mask_input = mask.input_value(0).get_node()
    bias = ops.unsqueeze(ops.multiply(ops.subtract(np.float32(1), mask), np.float32(_MASKED)), np.array([1, 2]))
    x = encoder.embed(ids)
    for layer in range(LAYERS):
        x = encoder.layer(x, bias, f"encoder.layer.{layer}")
    # The sum over the tokens; dividing by their number would cancel in the normalisation.
    summed = ops.squeeze(ops.matmul(ops.unsqueeze(mask, np.array([1])), x, transpose_a=False, transpose_b=False), np.array([1]))
    vectors = ops.normalize_l2(summed, np.array([1]), 1e-12, "max")
    return openvino.Model([vectors], [ids, mask_input], "sentence-encoder")


class _Encoder:
    """The parts of the network, over weights found by name."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def embed(self, ids: openvino.Node) -> openvino.Node:
        """Words, positions and the one segment, normalised."""
        name = "embeddings"
        words = ops.gather(self._constant(f"{name}.word_embeddings.weight"), ids, np.int64(0))
        tokens = ops.gather(ops.shape_of(ids), np.int64(1), np.int64(0))
        positions = ops.range(np.int64(0), tokens, np.int64(1), "i64")
        # There is one segment only, so that its embedding is part of every position's.
        table = self._weights[f"{name}.position_embeddings.weight"] + self._weights[f"{name}.token_type_embeddings.weight"][0]
        return self._norm(ops.add(words, ops.gather(ops.constant(table), positions, np.int64(0))), f"{name}.LayerNorm")

    def layer(self, x: openvino.Node, bias: openvino.Node, name: str) -> openvino.Node:
        """One transformer layer."""
        parts = [self._heads(self._linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value")]
        mixed = ops.transpose(ops.scaled_dot_product_attention(*parts, bias), np.array([0, 2, 1, 3]))
        joined = ops.reshape(mixed, np.array([0, 0, HIDDEN]), special_zero=True)
        x = self._norm(ops.add(self._linear(joined, f"{name}.attention.output.dense"), x), f"{name}.attention.output.LayerNorm")
        wide = ops.gelu(self._linear(x, f"{name}.intermediate.dense"), "erf")
        return self._norm(ops.add(self._linear(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")

    def _heads(self, x: openvino.Node) -> openvino.Node:
        """Batch x tokens x hidden to batch x heads x tokens x part of a head."""
        split = ops.reshape(x, np.array([0, 0, HEADS, HIDDEN // HEADS]), special_zero=True)
        return ops.transpose(split, np.array([0, 2, 1, 3]))

    def _linear(self, x: openvino.Node, name: str) -> openvino.Node:
        product = ops.matmul(x, self._constant(f"{name}.weight"), transpose_a=False, transpose_b=True)
        return ops.add(product, self._constant(f"{name}.bias"))

    def _norm(self, x: openvino.Node, name: str) -> openvino.Node:
        scaled = ops.mvn(x, np.array([-1]), normalize_variance=True, eps=EPSILON, eps_mode="inside_sqrt")
        return ops.add(ops.multiply(scaled, self._constant(f"{name}.weight")), self._constant(f"{name}.bias"))

    def _constant(self, name: str) -> openvino.Node:
        return openvino.op.Constant(self._weights[name], shared_memory=True)
