"""CPU milliseconds per text of each local embedder, side by side: chunks, queries and mixed lengths, in interleaved rounds.

python tests/benchmarks/embedding.py [--rounds 5] [--texts 32]

CPU time of the process is compared, not wall time, so that other work on the machine disturbs little. sentence-transformers is the
base where it is installed. Chunks have 250 word pieces, queries 17, mixed texts 10 to 254. Writes `results/embedding.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragstore.contracts import Embedder
from ragstore_onnx import MiniLMEmbedder, minilm

RESULTS = Path(__file__).parent / "results" / "embedding.json"
BASE = "sentence-transformers"
START = (
    "import asyncio, time; from ragstore_onnx import MiniLMEmbedder;"
    "asyncio.run(MiniLMEmbedder().embed(['hello'], purpose='query')); print(time.process_time())"
)


def embedders() -> dict[str, Embedder]:
    """All that can run here, the base first."""
    found: dict[str, Embedder] = {}
    try:
        from ragstore_sentence_transformers import SentenceTransformersEmbedder

        found[BASE] = SentenceTransformersEmbedder(model=str(minilm.folder(base=None, model_path=None, download=False)))
    except Exception as error:  # noqa: BLE001 - an optional part, whatever is wrong with it
        print(f"without {BASE}: {error}")
    found["minilm"] = MiniLMEmbedder(download=False)
    try:
        from ragstore_openvino import OpenVINOEmbedder

        found["openvino f32"] = OpenVINOEmbedder(precision="f32", download=False)
        found["openvino bf16"] = OpenVINOEmbedder(precision="bf16", download=False)
    except Exception as error:  # noqa: BLE001 - an optional part, whatever is wrong with it
        print(f"without OpenVINO or its bfloat16: {error}")
    return found


def corpora(texts: int) -> dict[str, list[str]]:
    """Texts of English words; the words do not matter for the time, their number does."""
    dice = random.Random(0)
    words = ("the", "of", "and", "contract", "system", "value", "is", "in", "process", "which", "over", "time", "with", "water", "law")

    def text(tokens: int) -> str:
        return " ".join(dice.choice(words) for _ in range(tokens))

    return {
        "chunk": [text(250) for _ in range(texts)],
        "query": [text(17) for _ in range(4 * texts)],
        "mixed": [text(dice.randint(10, 254)) for _ in range(2 * texts)],
    }


async def measure(embedder: Embedder, texts: Sequence[str]) -> tuple[float, np.ndarray[Any, np.dtype[np.float32]]]:
    """CPU milliseconds per text, and the vectors."""
    start = time.process_time()
    vectors = await embedder.embed(texts, purpose="document")
    return (time.process_time() - start) * 1000 / len(texts), vectors


async def run(*, rounds: int, texts: int) -> dict[str, Any]:
    """Median over the rounds per embedder and corpus, ratios to the base and least cosine to it."""
    running, sets = embedders(), corpora(texts)
    base = next(iter(running))
    times: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in sets} for name in running}
    cosine = dict.fromkeys(running, 1.0)
    for embedder in running.values():
        await embedder.embed(sets["mixed"][:8], purpose="document")  # load and warm up
    for _ in range(rounds):
        for kind, inputs in sets.items():
            reference: np.ndarray[Any, np.dtype[np.float32]] | None = None
            for name, embedder in running.items():
                cost, vectors = await measure(embedder, inputs)
                times[name][kind].append(cost)
                reference = vectors if reference is None else reference
                cosine[name] = min(cosine[name], float((vectors * reference).sum(axis=1).min()))
    for embedder in running.values():
        await embedder.close()
    medians = {name: {kind: statistics.median(costs) for kind, costs in kinds.items()} for name, kinds in times.items()}
    ratios = {
        name: {kind: statistics.median(b / c for b, c in zip(times[base][kind], times[name][kind], strict=True)) for kind in sets}
        for name in running
    }
    return {"base": base, "rounds": rounds, "cpu_ms_per_text": medians, "ratio": ratios, "least_cosine": cosine, "start_cpu_s": start_up()}


def start_up() -> float:
    """CPU seconds of a process that makes one `minilm` vector, with the environment that the command line sets; the least of nine."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    runs = [subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True, env=environment) for _ in range(9)]
    return min(float(done.stdout) for done in runs)


def show(result: dict[str, Any]) -> None:
    """The table, one line per embedder."""
    print(f"{'CPU ms per text':24}{'chunk':>9}{'query':>9}{'mixed':>9}   ratio to {result['base']:24}least cosine")
    for name, costs in result["cpu_ms_per_text"].items():
        ratios = " / ".join(f"{result['ratio'][name][kind]:.2f}" for kind in costs)
        print(f"{name:24}" + "".join(f"{cost:9.2f}" for cost in costs.values()) + f"   {ratios:33}{result['least_cosine'][name]:.6f}")
    print(f"start and first vector: {result['start_cpu_s']:.2f} CPU-s")


def main() -> None:
    """Run, show and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=32)
    options = parser.parse_args()
    result = asyncio.run(run(rounds=options.rounds, texts=options.texts))
    show(result)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
