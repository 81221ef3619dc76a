"""Weights of a BERT sentence encoder in, a serialised ONNX model (some kilobytes) and its initializers out.

The graph ends in the mean over all tokens that the mask admits and in L2 normalisation. It uses the fused operators that
onnxruntime brings for the CPU (domain `com.microsoft`).
Field numbers are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragstore_onnx import protobuf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = Mapping[str, NDArray[np.float32]]

LAYERS: Final = 6
HEADS: Final = 12
HIDDEN: Final = 384
EPSILON: Final = 1e-12  # config.json, layer_norm_eps

_FUSED: Final = "com.microsoft"
_PROJECTIONS: Final = ("query", "key", "value")
_FLOAT, _INT32, _INT64 = 1, 6, 7  # TensorProto.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What an onnxruntime session is made of."""

    graph: bytes
    """A ModelProto. Inputs `ids` and `mask` (int32, batch x tokens, padded on the right), output `vectors` (float32, batch x hidden)."""
    initializers: Mapping[str, NDArray[np.float32]]
    """The graph names them as external data; hand them over with `SessionOptions.add_external_initializers`."""


def build(weights: Weights) -> Model:
    """The model over these weights, which are named as `transformers.BertModel` names them."""
    initializers = _arrange(weights)
    embedded = ["ids", "", "words", "positions", "", "words.gain", "words.bias", "mask"]
    nodes = [_node("EmbedLayerNormalization", embedded, ["x0", "lengths"], domain=_FUSED, epsilon=EPSILON)]
    nodes += _rows()
    for layer in range(LAYERS):
        nodes += _layer(layer)
    nodes += [
        _node("Cast", ["mask"], ["mask.float"], to=_FLOAT),
        _node("Unsqueeze", ["mask.float", "one"], ["mask.row"]),
        # The sum over the tokens; dividing by their number would cancel in the normalisation.
        _node("MatMul", ["mask.row", f"x{LAYERS}"], ["sum.row"]),
        _node("Squeeze", ["sum.row", "one"], ["sum"]),
        _node("LpNormalization", ["sum"], ["vectors"], axis=-1, p=2),
    ]
    graph = [
        *(protobuf.message(1, node) for node in nodes),
        protobuf.text(2, "sentence-encoder"),
        *(protobuf.message(5, _external(name, array.shape)) for name, array in initializers.items()),
        protobuf.message(5, _integers("one", [1])),
        protobuf.message(5, _integers("all", [-1])),
        protobuf.message(5, _integers("rows", [1, -1, HIDDEN])),
        protobuf.message(11, _value("ids", _INT32, ["batch", "tokens"])),
        protobuf.message(11, _value("mask", _INT32, ["batch", "tokens"])),
        protobuf.message(12, _value("vectors", _FLOAT, ["batch", HIDDEN])),
    ]
    model = [
        protobuf.integer(1, 8),  # ir_version
        protobuf.message(8, protobuf.text(1, ""), protobuf.integer(2, 17)),
        protobuf.message(8, protobuf.text(1, _FUSED), protobuf.integer(2, 1)),
        protobuf.message(7, *graph),
    ]
    return Model(graph=b"".join(model), initializers=initializers)


def _layer(layer: int) -> list[bytes]:
    """One transformer layer: `x{layer}` to `x{layer + 1}`."""
    x, name = f"x{layer}", f"layer{layer}"
    projections = [f"{name}.{part}" for part in _PROJECTIONS]
    heads = [*(f"{projection}.of" for projection in projections), f"{name}.projection.bias", "lengths"]
    return [
        *(_linear(x, projection, f"{projection}.of") for projection in projections),
        _node("MultiHeadAttention", heads, [f"{name}.heads"], domain=_FUSED, num_heads=HEADS),
        _linear(f"{name}.heads", f"{name}.out", f"{name}.attended"),
        *_add_and_normalise(f"{name}.attended", x, f"{name}.out", f"{name}.middle"),
        _linear(f"{name}.middle", f"{name}.up", f"{name}.wide"),
        _node("BiasGelu", [f"{name}.wide", f"{name}.up.bias"], [f"{name}.active"], domain=_FUSED),
        _linear(f"{name}.active", f"{name}.down", f"{name}.narrow"),
        *_add_and_normalise(f"{name}.narrow", f"{name}.middle", f"{name}.down", f"x{layer + 1}"),
    ]


def _linear(value: str, weight: str, output: str) -> bytes:
    """A product with the transposed weight: matrices lie in the file as output x input, and only the runtime's packing copies them."""
    return _node("FusedMatMul", [value, weight], [output], domain=_FUSED, transB=1)


def _rows() -> list[bytes]:
    """`units` and `zeros`: as many as there are tokens in the batch; `shape` is that of the hidden states."""
    return [
        _node("Shape", ["x0"], ["shape"]),
        _node("Reshape", ["ids", "all"], ["flat"]),
        _node("Shape", ["flat"], ["count"]),
        _node("Expand", ["unit", "count"], ["units"]),
        _node("Expand", ["zero", "count"], ["zeros"]),
    ]


def _add_and_normalise(value: str, residual: str, weight: str, output: str) -> list[bytes]:
    """LayerNorm(value + bias + residual).

    SkipLayerNormalization would be one node, but it sums number by number, and took a tenth of the whole time. InstanceNormalization
    over tokens as channels computes the same in vector instructions.
    """
    step = [f"{output}.{number}" for number in range(6)]
    return [
        _node("Add", [value, f"{weight}.bias"], [step[0]]),
        _node("Add", [step[0], residual], [step[1]]),
        _node("Reshape", [step[1], "rows"], [step[2]]),
        _node("InstanceNormalization", [step[2], "units", "zeros"], [step[3]], epsilon=EPSILON),
        _node("Mul", [step[3], f"{weight}.gain"], [step[4]]),
        _node("Add", [step[4], f"{weight}.shift"], [step[5]]),
        _node("Reshape", [step[5], "shape"], [output]),
    ]


def _arrange(weights: Weights) -> dict[str, NDArray[np.float32]]:
    """The arrays under the names of the graph, nearly all as given. They must be C-contiguous: the runtime sees only the pointer."""
    import numpy as np

    arranged = {
        "words": weights["embeddings.word_embeddings.weight"],
        # There is one segment only, so that its embedding is part of every position's.
        "positions": weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0],
        "words.gain": weights["embeddings.LayerNorm.weight"],
        "words.bias": weights["embeddings.LayerNorm.bias"],
        "unit": np.ones(1, np.float32),
        "zero": np.zeros(1, np.float32),
    }
    for layer in range(LAYERS):
        old, new = f"encoder.layer.{layer}", f"layer{layer}"
        for part in _PROJECTIONS:
            arranged[f"{new}.{part}"] = weights[f"{old}.attention.self.{part}.weight"]
        arranged[f"{new}.projection.bias"] = np.concatenate([weights[f"{old}.attention.self.{part}.bias"] for part in _PROJECTIONS])
        for short, long in (("out", "attention.output.dense"), ("up", "intermediate.dense"), ("down", "output.dense")):
            arranged[f"{new}.{short}"] = weights[f"{old}.{long}.weight"]
            arranged[f"{new}.{short}.bias"] = weights[f"{old}.{long}.bias"]
        for short, long in (("out", "attention.output.LayerNorm"), ("down", "output.LayerNorm")):
            arranged[f"{new}.{short}.gain"] = weights[f"{old}.{long}.weight"]
            arranged[f"{new}.{short}.shift"] = weights[f"{old}.{long}.bias"]
    return {name: np.ascontiguousarray(array) for name, array in arranged.items()}


def _node(operator: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: float) -> bytes:
    """A NodeProto; an attribute is an int or a float by its Python type."""
    fields = [protobuf.text(1, name) for name in inputs]
    fields += [protobuf.text(2, name) for name in outputs]
    fields.append(protobuf.text(4, operator))
    for name, value in attributes.items():
        kind = (
            [protobuf.integer(3, value), protobuf.integer(20, 2)]
            if isinstance(value, int)
            else [protobuf.float32(2, value), protobuf.integer(20, 1)]
        )
        fields.append(protobuf.message(5, protobuf.text(1, name), *kind))
    fields.append(protobuf.text(7, domain))
    return b"".join(fields)


def _integers(name: str, values: Sequence[int]) -> bytes:
    """A TensorProto of one dimension."""
    data = [protobuf.integer(7, value) for value in values]
    return b"".join([protobuf.integer(1, len(values)), protobuf.integer(2, _INT64), *data, protobuf.text(8, name)])


def _external(name: str, shape: Sequence[int]) -> bytes:
    """A float TensorProto whose data lies outside of the model; the location is never opened."""
    location = protobuf.message(13, protobuf.text(1, "location"), protobuf.text(2, "memory"))
    dimensions = [protobuf.integer(1, size) for size in shape]
    return b"".join([*dimensions, protobuf.integer(2, _FLOAT), protobuf.text(8, name), location, protobuf.integer(14, 1)])


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto; a dimension is a size or a name."""
    dimensions = [protobuf.message(1, protobuf.integer(1, size) if isinstance(size, int) else protobuf.text(2, size)) for size in shape]
    tensor = protobuf.message(1, protobuf.integer(1, kind), protobuf.message(2, *dimensions))
    return protobuf.text(1, name) + protobuf.message(2, tensor)
