"""A small index and a judged set in; the figures, pictures and question sets of `ragstore eval` out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ragstore.cli.outcome import Exit
from ragstore.cli.terminal import Terminal
from ragstore.config import Settings, from_mapping
from ragstore.evaluation import plotting
from tests.support.commands import Ragstore
from tests.support.judged import HEADER, make_set, write_lines


@pytest.fixture
def small(tmp_path: Path, ragstore: Ragstore) -> Path:
    """A set whose documents are indexed."""
    folder = make_set(tmp_path / "small")
    assert ragstore("eval", "unpack", "small", "docs").out == "3 documents in docs\n"
    assert ragstore("index", "docs").code == Exit.DONE
    return folder


def judged(folder: Path, queries: dict[str, str], lines: str) -> Path:
    """A set about documents that are named by their paths."""
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "queries.jsonl", [{"_id": query, "text": text} for query, text in queries.items()])
    (folder / "qrels" / "test.tsv").write_text(HEADER + lines, encoding="utf-8")
    return folder


def test_configurations_stand_side_by_side_with_intervals(ragstore: Ragstore, small: Path) -> None:
    ran = ragstore("eval", "small", "--as", "me", "--json")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert (ran.json["set"], ran.json["queries"], ran.json["queries_left_out"], ran.json["documents_missing"]) == ("small", 2, 1, 0)
    assert [one["name"] for one in ran.json["configurations"]] == ["configured", "rrf", "vector", "text"]
    first, *others = ran.json["configurations"]
    assert first["ndcg@10"] == first["recall@10"] == first["mrr@10"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert 0 < first["p50_ms"]["low"] <= first["p50_ms"]["value"] <= first["p95_ms"]["value"]
    assert first["ndcg_above_first"] is None
    assert [one["ndcg_above_first"]["value"] for one in others] == [0.0, 0.0, 0.0]
    assert ragstore("eval", "run", "small", "--as", "me", "--json").json["queries"] == 2


def test_the_table_names_its_columns_also_in_a_pipe(ragstore: Ragstore, small: Path) -> None:
    ran = ragstore("eval", "small", "--as", "me", "--compare", "text", "--compare", "rrf per-blob=all", "-k", "3")
    head, *rows = [line.split("\t") for line in ran.out.splitlines()]
    assert head == ["configuration", "nDCG@10", "recall@3", "MRR@10", "above first", "p50 (ms)", "p95 (ms)"]
    assert [row[:3] for row in rows] == [[name, *["1.000 (1.000 to 1.000)"] * 2] for name in ("text", "rrf per-blob=all")]
    assert "questions without a relevant document, which were left out: 1" in ran.err


def test_the_table_fits_a_terminal_of_80_columns_and_cuts_nothing_off(
    ragstore: Ragstore, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Terminal, "styled", property(lambda _terminal: True))
    ran = ragstore("eval", "small", "--as", "me", "-q", "--compare", "vector", "--compare", "rrf mmr=0.5 vector-weight=0.3 per-blob=all")
    title, head, *rows = ran.out.splitlines()
    assert title == "small, 2 questions; below each figure its 95 % interval"
    assert head.split() == ["nDCG@10", "recall@10", "MRR@10", "above", "first", "p50", "(ms)", "p95", "(ms)"]
    assert max(map(len, rows)) <= 80
    assert ran.out.count("1.00..1.00") == 6
    assert "".join(row[:14].strip() for row in rows[2:]).replace(" ", "").startswith("rrfmmr=0.5")


def test_a_document_further_down_costs_what_the_formula_says(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    (docs / "other.md").write_text("lentil soup, and lentil soup again\n")
    judged(tmp_path / "set", {"q": "lentil soup"}, "q\tkeys.md\t1\nq\tfood.md\t1\n")
    ragstore("index", "docs")
    (found,) = ragstore("eval", "set", "--as", "me", "--compare", "text", "--json").json["configurations"]
    # The text leg finds two documents, and one of the two that are relevant stands second.
    second = 1 / 1.584962500721156
    assert found["ndcg@10"]["value"] == pytest.approx(second / (1 + second), abs=1e-4)
    assert (found["recall@10"]["value"], found["mrr@10"]["value"]) == (0.5, 0.5)


def test_nobody_is_measured_by_what_he_may_not_read_and_absent_and_forbidden_look_the_same(
    ragstore: Ragstore, groups: None, tmp_path: Path
) -> None:
    assert ragstore("index").code == Exit.DONE
    queries = {"q1": "access key", "q2": "lentil soup"}
    judged(tmp_path / "set", queries, "q1\tkeys.md\t1\nq2\tfood.md\t1\n")
    judged(tmp_path / "gone", queries, "q1\tnone.md\t1\nq2\tfood.md\t1\n")
    hidden, absent = (ragstore("eval", name, "--as", "Bob") for name in ("set", "gone"))
    assert (hidden.code, hidden.out) == (Exit.USAGE, "")
    assert "1 of 2 relevant documents are not in the index, or 'Bob' may not read them: 'keys.md'" in hidden.err
    assert hidden.err.replace("keys.md", "none.md") == absent.err
    for name in ("set", "gone"):
        ran = ragstore("eval", name, "--as", "Bob", "--allow-missing", "--compare", "text", "--json")
        assert (ran.json["documents_missing"], ran.json["configurations"][0]["recall@10"]["value"]) == (1, 0.5)


def test_a_principal_must_be_named_and_known(ragstore: Ragstore, groups: None, tmp_path: Path) -> None:
    ragstore("index")
    judged(tmp_path / "set", {"q": "soup"}, "q\tfood.md\t1\n")
    for command in (("eval", "set"), ("eval", "make", "new")):
        assert "--as" in ragstore(*command).err
        assert ragstore(*command, "--as", "Mallory").code == Exit.USAGE
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_measured_or_drawn_is_said_before_anything_is_asked(ragstore: Ragstore, small: Path) -> None:
    asked = ("eval", "small", "--as", "me")
    for options, message in (
        (("--compare", "rff"), "did you mean 'rrf'"),
        (("-k", "0"), "between 1 and 1000"),
        (("--plot", "a.pdf"), "must end in .png or .svg"),
        (("--plot", "nowhere/a.png"), "there is no folder 'nowhere'"),
        (("--split", "dev"), "no qrels/dev.tsv"),
    ):
        ran = ragstore(*asked, *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
        assert message in ran.err
    assert "cannot be read" in ragstore("eval", "nowhere", "--as", "me").err


def test_the_picture_is_one_in_both_formats(ragstore: Ragstore, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    plots = [option for name in ("a.png", "a.svg") for option in ("--plot", name)]
    assert ragstore("eval", "small", "--as", "me", "--compare", "max-norm", "--compare", "rrf", *plots).code == Exit.DONE
    picture = imread(tmp_path / "a.png")
    height, width, _ = picture.shape
    assert (width, height) > (1000, 400)
    for colour in plotting._COLOURS:
        wanted = [part / 255 for part in bytes.fromhex(colour[1:])]
        assert (abs(picture[:, :, :3] - wanted).max(axis=2) < 0.002).sum() > 100, "a mark of each kind"
    drawn = ET.parse(tmp_path / "a.svg").getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}use"))) > 20


def test_equal_figures_give_equal_pictures_and_names_of_others_are_only_text(ragstore: Ragstore, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dataclasses import replace

    import ragstore as package
    from ragstore.evaluation import Variant, evaluate, load

    with package.open(_settings(tmp_path)) as index:
        found = evaluate(index, load(small), principal=index.principal("me"), variants=[Variant(name="$x^{$ <b>\x1b[31m")])
    found = replace(found, name="数据 $\\alpha$\n" + "long" * 50)
    for name in ("a.svg", "b.svg", "a.png"):
        plotting.save(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "<date" not in (tmp_path / "a.svg").read_text(encoding="utf-8")


def _settings(base: Path) -> Settings:
    data = {"source": {"type": "folder", "path": "docs"}, "embedder": {"type": "hash"}, "access": {"mode": "open"}}
    return from_mapping(data, base=base, environ={})


def test_matplotlib_is_loaded_for_a_picture_only_and_its_absence_leads_to_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util, ragstore.evaluation, ragstore.evaluation.plotting as p, pathlib\n"
        "assert 'matplotlib' not in sys.modules\n"
        "importlib.util.find_spec = lambda name: None\n"
        f"p.check(pathlib.Path({str(tmp_path / 'a.png')!r}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'ragstore[eval]'" in ran.stderr


def test_questions_are_made_of_what_may_be_read_and_the_same_for_a_seed(ragstore: Ragstore, groups: None, docs: Path) -> None:
    (docs / "long.md").write_text("# Tides\n\n" + "\n\n".join(f"## About {n}\n\nThe moon number{n} pulls the sea." for n in range(40)))
    tags = json.loads(Path("tags.json").read_text())
    Path("tags.json").write_text(json.dumps({**tags, "long.md": {"allowed": "staff"}}))
    ragstore("index")
    ran = ragstore("eval", "make", "mine", "--as", "Bob", "-n", "3", "--json")
    assert (ran.code, ran.json["documents"]) == (Exit.DONE, 2)
    made = {file.name: file.read_text(encoding="utf-8") for file in Path("mine").rglob("*") if file.is_file()}
    assert "keys" not in made["queries.jsonl"] + made["test.tsv"]
    assert "They do not measure" in made["README.md"]
    assert ragstore("eval", "mine", "--as", "Bob", "--compare", "max-norm", "--json").json["queries"] == ran.json["queries"]
    assert ragstore("eval", "make", "again", "--as", "Bob", "-n", "3").code == Exit.DONE
    assert {file.name: file.read_text(encoding="utf-8") for file in Path("again").rglob("*") if file.is_file()} == made
    assert ragstore("eval", "make", "mine", "--as", "Bob").code == Exit.USAGE
    assert ragstore("eval", "make", "x", "--as", "Bob", "--by", "colour").code == Exit.USAGE


def test_where_nothing_can_be_asked_about_no_set_is_made(ragstore: Ragstore, groups: None, tmp_path: Path) -> None:
    (tmp_path / "tags.json").write_text("{}")
    ragstore("index")
    ran = ragstore("eval", "make", "mine", "--as", "Bob")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "'Bob' may read nothing in this index of which a question could be made" in ran.err
    assert not (tmp_path / "mine").exists()
