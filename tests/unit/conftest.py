"""The command line over a small folder, for the tests of its commands and of its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore.cli.outcome import run
from tests.support.commands import Ragstore, Ran


@pytest.fixture
def ragstore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ragstore:
    """The command line, run in an empty folder with an embedder that needs no model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGSTORE_EMBEDDER__TYPE", "hash")

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return ran


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "keys.md").write_text("# Keys\n\nRotate every access key after ninety days.\n")
    (folder / "food.md").write_text("# Food\n\nThe kitchen serves lentil soup on Mondays.\n")
    return folder


@pytest.fixture
def groups(tmp_path: Path, docs: Path) -> None:
    """A configuration in which keys.md is for security, food.md for staff, and Bob is staff."""
    (tmp_path / "principals.json").write_text('[{"id": "bob", "name": "Bob", "groups": ["staff"]}]')
    (tmp_path / "tags.json").write_text('{"keys.md": {"allowed": "security"}, "food.md": {"allowed": "staff"}}')
    (tmp_path / "ragstore.toml").write_text(
        '[source]\ntype = "folder"\npath = "docs"\ntags = "tags.json"\n'
        '[access]\nmode = "groups"\ntag_key = "allowed"\nprincipals = "principals.json"\n'
    )
