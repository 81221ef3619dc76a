"""Folders in BEIR layout in, well made and hostile; judged questions, or an error that says where and what, out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore.errors import ConfigError
from ragstore.evaluation import load, unpack
from ragstore.evaluation.judged import documents, file_name, locate
from tests.support.judged import HEADER, JUDGEMENTS, QUERIES, make_set, write_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(tmp_path / "small")


def judge(folder: Path, lines: str, *, header: str = HEADER, split: str = "test") -> Path:
    (folder / "qrels" / f"{split}.tsv").write_text(header + lines, encoding="utf-8")
    return folder


def test_a_set_holds_answered_questions_only_and_says_how_many_it_left_out(folder: Path) -> None:
    judged = load(folder)
    assert (judged.name, dict(judged.queries)) == ("small", {"q1": "rotate signing key", "q2": "bread in the oven"})
    assert judged.judgements == {"q1": {"a/b: 1": 1}, "q2": {"2": 2}}
    assert judged.left_out == 1


def test_a_document_is_its_title_and_its_text(folder: Path) -> None:
    assert dict(documents(folder)) == {
        "a/b: 1": "Keys\nHow to rotate a signing key.",
        "2": "Bread is baked in an oven.",
        ".3": "Sea\nThe tide follows the moon.",
    }


def test_a_set_needs_no_corpus_and_takes_crlf_marks_of_order_and_numbers_as_ids(folder: Path) -> None:
    (folder / "corpus.jsonl").unlink()
    (folder / "queries.jsonl").write_bytes('\ufeff{"_id": 7, "text": "soup"}\r\n\r\n'.encode())
    (folder / "qrels" / "test.tsv").write_bytes(b"query-id\tcorpus-id\tscore\r\n7\tdocs/soup.md\t1\r\n")
    assert load(folder).judgements == {"7": {"docs/soup.md": 1}}


def test_the_split_is_the_one_that_is_named_or_test_or_the_only_one(folder: Path) -> None:
    judge(folder, "q2\t2\t1\n", split="dev")
    assert len(load(folder).queries) == 2
    assert list(load(folder, split="dev").queries) == ["q2"]
    (folder / "qrels" / "test.tsv").unlink()
    assert list(load(folder).queries) == ["q2"]
    judge(folder, "q2\t2\t1\n", split="train")
    with pytest.raises(ConfigError, match=r"no qrels/test\.tsv; there is dev, train; choose with --split"):
        load(folder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q1\t2\n", r"qrels/test\.tsv, line 2: 3 columns are expected"),
        ("q1\t2\t1\textra\n", "line 2: 3 columns are expected"),
        ("q1 2 1\n", "line 2: 3 columns are expected"),
        ("q1\t\t1\n", "line 2: 3 columns are expected"),
        ("q1\t2\thigh\n", "line 2: the score must be a whole number, not 'high'"),
        ("q1\t2\t0.5\n", "whole number"),
        ("q1\t2\t" + "9" * 5000 + "\n", "whole number"),
        ("q1\t2\t1\nq2\t2\t1\nq1\t2\t1\n", "line 4: document '2' is judged twice for query 'q1'"),
        ("q1\t2\t1\nq9\t2\t1\n", r"judges queries that are not in queries\.jsonl: 'q9'"),
        ("q1\t2\t0\n", "no relevant document for any query"),
        ("", "no relevant document for any query"),
    ],
)
def test_judgements_that_are_wrong_are_refused_with_their_line(folder: Path, lines: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(judge(folder, lines))


@pytest.mark.parametrize("header", ["", "query-id\tcorpus-id\n", "corpus-id\tquery-id\tscore\n", "query-id,corpus-id,score\n"])
def test_columns_that_are_not_those_of_the_layout_are_refused(folder: Path, header: str) -> None:
    with pytest.raises(ConfigError, match=r"first line of qrels/test\.tsv must be query-id corpus-id score"):
        load(judge(folder, JUDGEMENTS, header=header))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 4 is no JSON"),
        ("[" * 100_000, "line 4 is no JSON"),
        ("[]", 'line 4 must be {"_id"'),
        ('{"_id": "q4"}', 'line 4 must be {"_id"'),
        ('{"_id": "q4", "text": " "}', 'line 4 must be {"_id"'),
        ('{"_id": null, "text": "x"}', 'line 4 must be {"_id"'),
        ('{"_id": true, "text": "x"}', 'line 4 must be {"_id"'),
        ('{"_id": "q4", "text": "\\ud800"}', 'line 4 must be {"_id"'),
        ('{"_id": "q1", "text": "x"}', "line 4: the id 'q1' is that of line 1 already"),
    ],
)
def test_questions_that_are_wrong_are_refused_with_their_line(folder: Path, line: str, message: str) -> None:
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match=message):
        load(folder)


def test_files_that_are_not_there_or_not_text_are_named(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes(b'{"_id": "q1", "text": "\xff"}\n')
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"queries\.jsonl' cannot be read: No such file"):
        load(folder)


def test_documents_become_files_whose_names_lead_back_to_their_ids(folder: Path, tmp_path: Path) -> None:
    assert unpack(folder, tmp_path / "docs") == 3
    files = {file.name: file.read_text(encoding="utf-8") for file in (tmp_path / "docs").iterdir()}
    assert files["a%2Fb%3A 1.txt"] == "Keys\nHow to rotate a signing key."
    found, missing = locate(["a/b: 1", "2", ".3", "4"], [f"docs/{name}" for name in files])
    assert found == {identifier: f"docs/{file_name(identifier)}" for identifier in ("a/b: 1", "2", ".3")}
    assert missing == ["4"]


@pytest.mark.parametrize("identifier", ["..", "../../etc/passwd", "/etc/passwd", ".", "a\0b", "C:\\x", "~", "a\nb"])
def test_no_id_leads_out_of_the_folder(folder: Path, tmp_path: Path, identifier: str) -> None:
    write_lines(folder / "corpus.jsonl", [{"_id": identifier, "text": "x"}])
    unpack(folder, tmp_path / "docs")
    (file,) = (tmp_path / "docs").rglob("*")
    assert locate([identifier], [f"docs/{file.name}"]) == ({identifier: f"docs/{file.name}"}, [])


def test_nothing_is_overwritten_and_an_id_that_no_file_can_have_is_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not empty, and nothing is overwritten"):
        unpack(folder, folder)
    write_lines(folder / "corpus.jsonl", [{"_id": "a", "text": "x"}, {"_id": "x" * 300, "text": "x"}])
    with pytest.raises(ConfigError, match="too long for the name of a file"):
        unpack(folder, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_a_document_is_named_whole_or_by_its_path_and_one_that_may_be_several_is_refused() -> None:
    blobs = ["docs/a.md", "docs/sub/a.md", "other/a.md", "docs/b.md"]
    assert locate(["docs/a.md", "sub/a.md", "b.md"], blobs)[0] == {
        "docs/a.md": "docs/a.md",
        "sub/a.md": "docs/sub/a.md",
        "b.md": "docs/b.md",
    }
    with pytest.raises(ConfigError, match=r"'a\.md' may be 'docs/a\.md', 'other/a\.md'; name it CONTAINER/PATH"):
        locate(["a.md"], blobs)


def test_a_question_twice_in_one_file_is_refused_also_where_nothing_judges_it(folder: Path) -> None:
    write_lines(folder / "queries.jsonl", [*QUERIES, {"_id": "q3", "text": "again"}])
    with pytest.raises(ConfigError, match="'q3' is that of line 3"):
        load(folder)
