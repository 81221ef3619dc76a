"""All benchmarks in, one table out: each runs in a process of its own, and its figures stand beside their targets.

    python tests/benchmarks/run.py [--only NAME ...] [--quick]

`overhead`, `changes`, `unchanged` (pipeline.py), `files`, `blob` (memory.py), `latency`, `throughput` (worker.py), `change-feed`,
`embedding`, `quality`, `access`, `filtered`, `serving` and `stores`. Targets of time are meant for a quiet machine: compare CPU seconds and
ratios where others work on it.
RAGSTORE_SHARED names the folder of test data; without it the pipeline reads this project's own texts, and `quality` is left out. Writes
`results/run.json`. Ends with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import RESULTS, Figure, head, pace

HERE = Path(__file__).parent
_BUSY = 1.5
"""So many runnable processes per core, and wall times say more about the machine than about us."""

EMBEDDING_TARGETS = {"chunk": 1.15, "mixed": 1.3}
"""CPU time of sentence-transformers with torch over that of the default embedder."""
OPENVINO_TARGETS = {True: 2.0, False: 1.25}
"""By whether the processor has bfloat16 or AMX instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A script, its arguments, where it leaves its result, and how that becomes figures."""

    script: str
    arguments: Sequence[str] = ()
    quick: Sequence[str] = ("--quick",)
    result: Path
    """Read only where the script wrote it in this run."""
    figures: Callable[[Mapping[str, Any]], list[Figure]]
    needs_shared: bool = False


def _own(told: Mapping[str, Any]) -> list[Figure]:
    return [Figure(**figure) for figure in told["figures"]]


def _embedding(told: Mapping[str, Any]) -> list[Figure]:
    """The ratios and cosines of `embedding.json`; without sentence-transformers there is nothing to compare with."""
    base = told["base"]
    times = told["cpu_ms_per_text"]
    if base != "sentence-transformers":
        note = "NOT COMPARED: pip install 'ragstore[sentence-transformers]' first"
        return [Figure(name=f"{name}: CPU per chunk", value=cost["chunk"], unit="CPU-ms", note=note) for name, cost in times.items()]
    figures = []
    for name, costs in times.items():
        if name == base:
            continue
        for kind, cost in costs.items():
            figures.append(
                Figure(
                    name=f"{name}: speed on {kind}",
                    value=told["ratio"][name][kind],
                    unit="times",
                    target=_embedding_target(name, kind),
                    at_least=True,
                    note=f"{cost:.2f} CPU-ms per text, {base} {times[base][kind]:.2f}",
                )
            )
        exact = "bf16" not in name
        least = told["least_cosine"][name]
        figures.append(Figure(name=f"{name}: least cosine", value=least, unit="", target=0.9999 if exact else None, at_least=True))
    return figures


def _embedding_target(name: str, kind: str) -> float | None:
    if name == "minilm":
        return EMBEDDING_TARGETS.get(kind)
    return OPENVINO_TARGETS[_has_short_floats()] if (name, kind) == ("openvino bf16", "chunk") else None


def _has_short_floats() -> bool:
    """Whether the processor computes in bfloat16, as Linux tells."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _quality(told: Mapping[str, Any]) -> list[Figure]:
    return [
        Figure(
            name=f"{found['name']}: nDCG@10",
            value=found["ndcg"],
            unit="",
            target=found["target"],
            at_least=True,
            wall=found["index_seconds"],
            note=f"{found['queries']} queries over {found['documents']} documents, median {found['query_milliseconds']} ms",
        )
        for found in told["sets"]
    ]


def _measured(script: str, name: str) -> Benchmark:
    result = RESULTS / f"{name}.json"
    return Benchmark(script=script, arguments=(name, "--output", str(result)), result=result, figures=_own)


BENCHMARKS: dict[str, Benchmark] = {
    **{name: _measured("pipeline.py", name) for name in ("overhead", "changes", "unchanged")},
    **{name: _measured("memory.py", name) for name in ("files", "blob")},
    **{name: _measured("worker.py", name) for name in ("latency", "throughput")},
    "change-feed": _measured("change_feed.py", "change-feed"),
    "access": _measured("access.py", "access"),
    "filtered": _measured("filtered.py", "filtered"),
    "serving": _measured("serving.py", "serving"),
    "stores": _measured("stores.py", "stores"),
    "embedding": Benchmark(
        script="embedding.py", quick=("--rounds", "2", "--texts", "16"), result=RESULTS / "embedding.json", figures=_embedding
    ),
    "quality": Benchmark(script="quality.py", quick=("limit-small",), result=RESULTS / "quality.json", figures=_quality, needs_shared=True),
}


def _run(name: str, benchmark: Benchmark, *, quick: bool) -> tuple[list[Figure], str]:
    """The figures of one benchmark, and why there are none."""
    if benchmark.needs_shared and not os.environ.get("RAGSTORE_SHARED"):
        return [], "left out: RAGSTORE_SHARED does not name the folder of test data"
    began = time.time()
    command = [sys.executable, str(HERE / benchmark.script), *benchmark.arguments, *(benchmark.quick if quick else ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not benchmark.result.exists() or benchmark.result.stat().st_mtime < began:
        return [], f"FAILED, exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return benchmark.figures(json.loads(benchmark.result.read_text(encoding="utf-8"))), ""


def main() -> int:
    """Run them, show them, write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="less data, rougher figures, other targets of size")
    chosen = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(head())
    good = True
    written: dict[str, Any] = {}
    for name in chosen.only or BENCHMARKS:
        load, before = os.getloadavg()[0], pace()
        figures, problem = _run(name, BENCHMARKS[name], quick=chosen.quick)
        busy = f", BUSY: load {load:.1f} on {os.cpu_count()} cores, wall times are too long" if load > _BUSY * (os.cpu_count() or 1) else ""
        print(f"-- {name}, pace {(before + pace()) / 2:.3f} s{busy}")
        for figure in figures:
            print(figure.line(), flush=True)
        if problem:
            print(problem, flush=True)
        good = good and not problem.startswith("FAILED") and all(figure.reached for figure in figures)
        written[name] = {"load": load, "problem": problem, "figures": [asdict(figure) for figure in figures]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "run.json").write_text(json.dumps({"quick": chosen.quick, "benchmarks": written}, indent=1) + "\n", encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
