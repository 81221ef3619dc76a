"""The write side in, its own cost out: per chunk, per changed document and per unchanged blob, with a constant-time embedder.

    python tests/benchmarks/pipeline.py overhead|changes|unchanged [--quick] [--output FILE]

Indexes the Markdown corpus of `$RAGSTORE_SHARED/data/corpus`, or this project's own texts where that is absent, with `hash` vectors of
384 dimensions, the default store and the default chunk size. A small document is indexed first: imports are done and the store is open
before anything is timed. Beside each figure stands what the raw parts need for the same work in the same process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ragstore
from ragstore.ingest.report import SyncReport
from tests.benchmarks import raw
from tests.benchmarks.corpus import Corpus
from tests.benchmarks.figures import Figure, Stopwatch, finish, options

_SOME = 40
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over the sources."""

    report: SyncReport
    wall: float
    cpu: float
    embedding: float
    """Seconds inside the embedder."""
    embedded: int
    """Texts that the embedder got, whatever the report says."""
    store_calls: int
    """Calls that read or write rows."""


def run(index: ragstore.Index, corpus: Corpus) -> Pass:
    """One `sync`, measured."""
    texts, seconds, calls = corpus.embedder.texts, corpus.embedder.seconds, corpus.store.calls
    with Stopwatch() as watch:
        report = index.sync()
    return Pass(
        report=report,
        wall=watch.wall,
        cpu=watch.cpu,
        embedding=corpus.embedder.seconds - seconds,
        embedded=corpus.embedder.texts - texts,
        store_calls=corpus.store.calls - calls,
    )


def _work() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ragstore-benchmark-")


def _documents(*, quick: bool) -> int:
    return 300 if quick else 1500


# Per chunk.


def overhead(*, quick: bool) -> list[Figure]:
    """Wall seconds of a first pass, those inside the embedder left out, per chunk; the median of some rounds."""
    rounds = sorted((_first_pass(_documents(quick=quick)) for _ in range(1 if quick else _ROUNDS)), key=lambda each: each[0])
    per_chunk, done, baseline = rounds[len(rounds) // 2]
    cpu = min((each.cpu - each.embedding) * 1000 / each.report.chunks for _, each, _ in rounds)
    note = f"{done.report.chunks} chunks of {done.report.blobs} blobs; rounds: {', '.join(f'{each[0]:.3f}' for each in rounds)}"
    return [
        Figure(
            name="overhead per chunk",
            value=per_chunk,
            unit="ms",
            target=0.3,
            wall=done.wall,
            cpu=done.cpu,
            baseline=baseline,
            baseline_name="raw merge",
            note=note,
        ),
        Figure(name="overhead per chunk, CPU of all threads", value=cpu, unit="CPU-ms", note="least of the rounds"),
    ]


def _first_pass(documents: int) -> tuple[float, Pass, float]:
    """Milliseconds per chunk, the pass, and milliseconds per row of raw LanceDB merging the same rows."""
    with _work() as folder:
        corpus = Corpus(Path(folder))
        with corpus.open() as index:
            corpus.fill(documents)
            done = run(index, corpus)
        rows = raw.rows_of(corpus.base)
        merged = raw.merge(rows, corpus.base / "raw")
    return (done.wall - done.embedding) * 1000 / done.report.chunks, done, merged * 1000 / len(rows)


# Per changed document.


def changes(*, quick: bool) -> list[Figure]:
    """What each kind of change embeds, and the time of a pass over all documents that finds 40 of them changed."""
    with _work() as folder:
        corpus = Corpus(Path(folder))
        corpus.fill(_documents(quick=quick))
        with corpus.open() as index:
            rows = raw.rows_of(corpus.base)
            documents = raw.some_documents(rows, _SOME)
            raw_delete = raw.delete(rows, documents, corpus.base / "raw-delete")
            raw_move = raw.move(rows, documents, corpus.base / "raw-move")
            figures = [
                *_one_edit(index, corpus),
                *_forty("retag", index, corpus, _retag, target=None),
                *_forty("duplicate", index, corpus, _duplicate, target=None),
                *_forty("rename", index, corpus, _rename, target=0.3, baseline=raw_move),
                *_forty("delete", index, corpus, _delete, target=0.3, baseline=raw_delete),
            ]
            nothing = run(index, corpus)
            difference = index.verify()
    if difference:
        raise RuntimeError(f"the index is not in step with its source: {difference}")
    return [*figures, Figure(name="re-run: texts embedded", value=nothing.embedded, unit="texts", target=0)]


def _one_edit(index: ragstore.Index, corpus: Corpus) -> list[Figure]:
    """A sentence put into the middle of the longest document."""
    longest = max(corpus.names, key=lambda name: (corpus.docs / name).stat().st_size)
    file = corpus.docs / longest
    before = raw.texts_of(corpus.base, longest)
    text = file.read_text(encoding="utf-8")
    middle = text.index("\n\n", len(text) // 2)
    file.write_text(f"{text[:middle]}\n\nHere a sentence was inserted yesterday.{text[middle:]}", encoding="utf-8")
    done = run(index, corpus)
    changed = len(raw.texts_of(corpus.base, longest) - before)
    note = f"{changed} of {len(before)} chunks of the document changed"
    return [
        Figure(name="one edit: texts embedded", value=done.embedded, unit="texts", target=changed, note=note),
        Figure(name="one edit: pass", value=done.wall, unit="s", wall=done.wall, cpu=done.cpu),
    ]


def _forty(
    kind: str,
    index: ragstore.Index,
    corpus: Corpus,
    change: Callable[[Corpus, Sequence[str], int], None],
    *,
    target: float | None,
    baseline: float | None = None,
) -> list[Figure]:
    """Three times 40 other documents; the median of the times, the sum of the texts."""
    passes = []
    for number in range(_ROUNDS):
        names = [name for name in corpus.names if not name.startswith(("moved/", "copied/"))][number :: len(corpus.names) // _SOME][:_SOME]
        change(corpus, names, number)
        corpus.save_tags()
        passes.append(run(index, corpus))
    median = sorted(passes, key=lambda each: each.wall)[len(passes) // 2]
    return [
        Figure(name=f"{kind} {_SOME}: texts embedded", value=sum(each.embedded for each in passes), unit="texts", target=0),
        Figure(
            name=f"{kind} {_SOME}: pass",
            value=median.wall,
            unit="s",
            target=target,
            wall=median.wall,
            cpu=median.cpu,
            baseline=baseline,
            baseline_name=f"raw {kind}" if baseline else "",
            note=f"of {median.report.blobs} blobs; rounds: {', '.join(f'{each.wall:.3f}' for each in passes)}",
        ),
    ]


def _retag(corpus: Corpus, names: Sequence[str], number: int) -> None:
    corpus.tags.update(dict.fromkeys(names, f"grp-new-{number}"))


def _duplicate(corpus: Corpus, names: Sequence[str], number: int) -> None:
    for name in names:
        copy = corpus.docs / "copied" / str(number) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((corpus.docs / name).read_bytes())
        corpus.tags[copy.relative_to(corpus.docs).as_posix()] = corpus.tags[name]


def _rename(corpus: Corpus, names: Sequence[str], number: int) -> None:
    for name in names:
        corpus.move(name, f"moved/{number}/{name}")


def _delete(corpus: Corpus, names: Sequence[str], number: int) -> None:
    for name in names:
        (corpus.docs / name).unlink()
        del corpus.tags[name]


# Per unchanged blob.


def unchanged(*, quick: bool) -> list[Figure]:
    """A pass that finds nothing to do, beside a bare walk of the same folder, interleaved; the store is not asked for rows."""
    with _work() as folder:
        corpus = Corpus(Path(folder))
        corpus.fill(_documents(quick=quick))
        with corpus.open() as index:
            run(index, corpus)
            pairs = [(run(index, corpus), _bare_listing(corpus.docs)) for _ in range(5 if quick else 15)]
    done, listing = sorted(pairs, key=lambda pair: pair[0].wall - pair[1])[len(pairs) // 2]
    blobs = done.report.blobs
    per_blob = (done.wall - listing) * 1000 / blobs
    return [
        Figure(
            name="re-run: per blob, beyond the listing",
            value=per_blob,
            unit="ms",
            target=0.1,
            wall=done.wall,
            cpu=done.cpu,
            baseline=listing * 1000 / blobs,
            baseline_name="bare listing",
            note=f"{blobs} blobs; median of {len(pairs)}",
        ),
        Figure(name="re-run: calls that read or write rows", value=max(each.store_calls for each, _ in pairs), unit="calls", target=0),
    ]


def _bare_listing(folder: Path) -> float:
    """Seconds of walking the folder and looking at each file, the least that any listing has to do."""
    begin = time.perf_counter()
    folders = [str(folder)]
    seen = []
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    seen.append(entry.stat(follow_symlinks=False))
    return time.perf_counter() - begin


BENCHMARKS = {"overhead": overhead, "changes": changes, "unchanged": unchanged}


def main() -> int:
    """Run the named benchmark."""
    chosen = options(__doc__, BENCHMARKS)
    return finish(BENCHMARKS[chosen.name](quick=chosen.quick), chosen.output)


if __name__ == "__main__":
    sys.exit(main())
