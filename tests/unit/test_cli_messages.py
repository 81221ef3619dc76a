"""Slips that a newcomer makes in; messages that say what to do about them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragstore.cli.outcome import Exit
from ragstore.errors import OutageError
from tests.support.commands import Ragstore


@pytest.mark.usefixtures("groups")
def test_a_configured_folder_that_is_named_keeps_its_tags(ragstore: Ragstore) -> None:
    ragstore("index")
    ran = ragstore("index", "./docs/", "--json")
    assert (ran.code, ran.json["unchanged"], ran.json["retagged"], ran.err) == (Exit.DONE, 2, 0, "")


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(("option", "reason"), [("tag_key", "no index tags"), ("metadata_key", "no metadata")])
def test_a_folder_that_nobody_could_ever_read_is_noticed(ragstore: Ragstore, tmp_path: Path, option: str, reason: str) -> None:
    file = tmp_path / "ragstore.toml"
    file.write_text(file.read_text().replace('tags = "tags.json"\n', "").replace("tag_key", option))
    ran = ragstore("plan", "--json")
    assert (ran.code, ran.json["added"]) == (Exit.DONE, 2)
    assert f"nobody may read anything from the folder 'docs', because its files have {reason}" in ran.err


def test_a_filter_that_is_wrong_gets_one_line_that_shows_the_place(ragstore: Ragstore, docs: Path) -> None:
    ragstore("index", "docs")
    ran = ragstore("search", "keys", "--filter", "path like 'docs'")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert "at character 6, before >>like 'docs'<<" in ran.err


def test_an_error_of_several_lines_becomes_one(ragstore: Ragstore, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> None:
        raise OutageError("the service is down\r\n  Time: 12:00\n")

    monkeypatch.setattr("ragstore.blocking.Index.sync", down)
    assert ragstore("index", "docs").err.endswith("error: the service is down Time: 12:00\n")


@pytest.mark.usefixtures("groups")
def test_where_nobody_is_listed_an_unknown_principal_is_told_how(ragstore: Ragstore, tmp_path: Path) -> None:
    (tmp_path / "principals.json").write_text("[]")
    ran = ragstore("search", "keys", "--as", "Bob")
    assert ran.code == Exit.USAGE
    assert '[{"id": "ada", "name": "Ada", "groups": ["staff"]}]' in ran.err


def test_one_blob_is_not_called_blobs(ragstore: Ragstore, docs: Path) -> None:
    (docs / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    planned, done = ragstore("plan", "docs"), ragstore("index", "docs")
    assert "docs/broken.pdf: corrupt" in planned.err
    assert "1 blob cannot be indexed; the reasons stand above" in planned.err
    assert "1 blob cannot be indexed; see why with: ragstore failures" in done.err
    assert "ragstore failures drop" in ragstore("failures").err


@pytest.mark.parametrize("command", [("init",), ("plan",), ("index",)])
def test_an_account_without_a_container_is_told_at_once(ragstore: Ragstore, command: tuple[str, ...]) -> None:
    ran = ragstore(*command, "https://example.blob.core.windows.net/")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "no container" in ran.err


@pytest.mark.parametrize("command", [("index",), ("plan",), ("worker", "--until-idle")])
def test_a_source_that_is_wrong_is_told_before_a_model_is_looked_for(
    ragstore: Ragstore, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("ragstore.assembly.Connectors.embedder", lambda *_: pytest.fail("a model was looked for"))
    file = tmp_path / "ragstore.toml"
    file.write_text(f'source = {{type = "folder", path = "{docs}", nonsense = 1}}\naccess = {{mode = "open"}}\n')
    ran = ragstore(*command)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert "nonsense" in ran.err
